"""/v1/messages through Anthropic's official client."""
import anthropic
import pytest

from test_tools import WRITTEN, writes

TOOLS = [{"name": "get_weather", "description": "The weather of a city", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"], "additionalProperties": False}},
    {"name": "get_time", "input_schema": {"type": "object"}}]


@pytest.fixture(scope="module")
def claude(api):
    return anthropic.Anthropic(base_url=api.url, api_key=api.key or "none", max_retries=0,
                               timeout=120)


def ask(claude, model, text="Say hello.", **kwargs):
    kwargs.setdefault("max_tokens", 12)
    # The client has no temperature of its own any more.
    kwargs["extra_body"] = {"temperature": 0, **kwargs.get("extra_body", {})}
    messages = kwargs.pop("messages", [{"role": "user", "content": text}])
    return claude.messages.create(model=model, messages=messages, **kwargs)


def test_answers(claude, model):
    answer = ask(claude, model, system="Be brief.")
    assert answer.type == "message" and answer.role == "assistant"
    assert answer.content[0].type == "text" and answer.content[0].text
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert answer.usage.output_tokens <= 12


def test_limits_and_stops(claude, model):
    assert ask(claude, model, max_tokens=2).stop_reason == "max_tokens"
    answer = ask(claude, model, "Count.", extra_body={"regex": "one two three"},
                 stop_sequences=["two"])
    assert answer.stop_reason == "stop_sequence" and answer.stop_sequence == "two"
    assert answer.content[0].text == "one "


def test_stream(claude, model):
    whole = ask(claude, model)
    with claude.messages.stream(model=model, max_tokens=12, extra_body={"temperature": 0},
                                messages=[{"role": "user", "content": "Say hello."}]) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_and_tools(claude, model, stream):
    body = dict(model=model, max_tokens=250, tools=TOOLS,
                messages=[{"role": "user", "content": "The weather in Paris?"}],
                extra_body={"temperature": 0, **writes(WRITTEN)})
    if stream:
        with claude.messages.stream(**body) as events:
            answer = events.get_final_message()
    else:
        answer = claude.messages.create(**body)
    thinking, text, weather, _ = answer.content
    assert thinking.type == "thinking" and thinking.thinking == "Should I look?"
    assert text.text.strip() == "I look."
    assert weather.type == "tool_use" and weather.input["city"] == "Paris"
    assert answer.stop_reason == "tool_use"


def test_forced_calls_and_their_results(claude, model):
    question = {"role": "user", "content": "The weather in Paris?"}
    answer = ask(claude, model, messages=[question], tools=TOOLS, max_tokens=80,
                 tool_choice={"type": "tool", "name": "get_weather"})
    [call] = answer.content
    assert call.type == "tool_use" and set(call.input) == {"city"}
    messages = [question, {"role": "assistant", "content": [call.model_dump()]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id,
                                              "content": [{"type": "text", "text": "12"}]}]}]
    assert ask(claude, model, messages=messages, tools=TOOLS, max_tokens=4).content


def test_counts_tokens(claude, model):
    messages = [{"role": "user", "content": "Say hello."}]
    count = claude.messages.count_tokens(model=model, messages=messages).input_tokens
    answer = ask(claude, model)
    assert count == answer.usage.input_tokens + answer.usage.cache_read_input_tokens


def test_errors(claude, model):
    with pytest.raises(anthropic.BadRequestError) as raised:
        ask(claude, model, messages=[{"role": "user", "content": [{"type": "image"}]}])
    assert "messages[0].content[0]" in raised.value.message
    with pytest.raises(anthropic.NotFoundError):
        ask(claude, "no-such-model")
    wrong = anthropic.Anthropic(base_url=claude.base_url, api_key="wrong", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError):
        ask(wrong, model)
