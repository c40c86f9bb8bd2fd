"""Errors as the official client raises them: each typed, naming its field."""
import json

import openai
import pytest

HELLO = [{"role": "user", "content": "Hello"}]


def chat(client, model, **kwargs):
    kwargs.setdefault("messages", HELLO)
    return client.chat.completions.create(model=model, max_tokens=4, **kwargs)


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as raised:
        chat(client, "gpt-99")
    assert raised.value.code == "model_not_found"
    assert "gpt-99" in raised.value.message


@pytest.mark.parametrize("key", ["wrong", "contract-key-and-more", "contract-ke"])
def test_wrong_key(api, model, key):
    if not api.key:
        pytest.skip("the server needs no key")
    stranger = openai.OpenAI(base_url=api.url + "/v1", api_key=key, max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        chat(stranger, model)


def test_missing_key(api):
    if not api.key:
        pytest.skip("the server needs no key")
    reply = api.get("/v1/models", headers={"Authorization": ""})
    assert reply.status == 401
    assert reply.headers["www-authenticate"].startswith("Bearer")
    # Probes and scrapers have no key.
    assert api.get("/health", headers={"Authorization": ""}).status == 200
    assert api.get("/metrics", headers={"Authorization": ""}).status == 200


BAD_FIELDS = [
    ("temperature", -1), ("temperature", "hot"), ("top_p", 0), ("top_p", 1.5), ("n", 0),
    ("n", 100000), ("frequency_penalty", 3), ("presence_penalty", -3), ("seed", 1.5),
    ("top_logprobs", 5), ("messages", []), ("messages", "hi"), ("stream", "yes"),
    ("logit_bias", {"x": 1}), ("logit_bias", {"5": 1000}), ("stop", 5), ("stop", ["a"] * 10000),
    ("response_format", {"type": "xml"}), ("tool_choice", "required"),
]


@pytest.mark.parametrize("field,value", BAD_FIELDS,
                         ids=[f"{name}={str(value)[:20]}" for name, value in BAD_FIELDS])
def test_bad_fields_are_named(client, model, field, value):
    with pytest.raises(openai.BadRequestError) as raised:
        chat(client, model, **({field: value} if field == "messages" else
                               {"extra_body": {field: value}}))
    assert raised.value.param.startswith(field)
    assert raised.value.type == "invalid_request_error"
    assert field in raised.value.message


@pytest.mark.parametrize("message,param", [
    ({"content": "no role"}, "messages[0].role"),
    ({"role": "user", "content": 5}, "messages[0].content"),
    ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
     "messages[0].content[0].type"),
    ("text", "messages[0]"),
])
def test_bad_messages_are_located(client, model, message, param):
    with pytest.raises(openai.BadRequestError) as raised:
        chat(client, model, messages=[message])
    assert raised.value.param == param


def test_a_prompt_longer_than_the_context(client, model):
    with pytest.raises(openai.BadRequestError) as raised:
        chat(client, model, messages=[{"role": "user", "content": "word " * 20000}])
    assert raised.value.code == "context_length_exceeded"


def test_a_megabyte_without_spaces(client, model):
    """Tokenizers may take long for one long word; it must not take down the server."""
    with pytest.raises(openai.BadRequestError) as raised:
        chat(client, model, messages=[{"role": "user", "content": "a" * 1_000_000}])
    assert raised.value.code == "context_length_exceeded"


BAD_BODIES = {
    "empty": b"",
    "not json": b"hello",
    "cut short": b'{"model": "x", "messages": [',
    "an array": b"[]",
    "null": b"null",
    "invalid utf-8": b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "overlong utf-8": b'{"messages": [{"role": "user", "content": "\xc0\xaf"}]}',
    "encoded surrogate": b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
    "lone surrogate": b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    "deep": b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "trailing text": b'{"messages": []} x',
    "nan": b'{"temperature": NaN}',
    "huge exponent": b'{"temperature": 1e999, "messages": [{"role": "user", "content": "x"}]}',
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/generate"])
@pytest.mark.parametrize("name", BAD_BODIES)
def test_bad_bodies(api, path, name):
    reply = api.post(path, BAD_BODIES[name])
    assert reply.status == 400, reply.body
    error = reply.json()["error"]
    assert error["message"] and error["type"] == "invalid_request_error"


def test_the_server_is_well_after_all_that(client, model):
    assert chat(client, model).choices[0].message.content


def test_a_body_of_100_megabytes(api):
    connection = api.connect()
    connection.putrequest("POST", "/v1/completions")
    for name, value in api.headers({"Content-Length": str(100 << 20)}).items():
        connection.putheader(name, value)
    connection.endheaders()
    chunk = b" " * (1 << 20)
    # The server answers early and closes; that it no longer reads is not an error of ours.
    try:
        for _ in range(100):
            connection.send(chunk)
    except OSError:
        pass
    answer = connection.getresponse()
    assert answer.status == 413
    assert json.loads(answer.read())["error"]["type"] == "invalid_request_error"
    connection.close()


def test_unknown_route_and_method(api):
    reply = api.post("/v1/embeddingz", {})
    assert reply.status == 404
    assert "/v1/embeddingz" in reply.json()["error"]["message"]
    reply = api.get("/v1/chat/completions")
    assert reply.status == 405
    assert "POST" in reply.headers["allow"]
