"""/v1/chat/completions through the official client."""
import math
import time

import pytest

QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
LIST = [{"role": "user", "content": "List five fruits."}]  # answered "1. ...\n2. ...\n3. ..."


def chat(client, model, messages=None, **kwargs):
    kwargs.setdefault("temperature", 0)
    kwargs.setdefault("max_tokens", 24)
    return client.chat.completions.create(model=model, messages=messages or QUESTION, **kwargs)


def test_answers(client, model):
    answer = chat(client, model)
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == model
    [choice] = answer.choices
    assert choice.index == 0
    assert choice.message.role == "assistant"
    assert "Paris" in choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage.prompt_tokens > 0
    assert 0 < answer.usage.completion_tokens <= 24
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_stops_at_the_end_of_the_turn(client, model):
    answer = chat(client, model, max_tokens=200)
    assert answer.choices[0].finish_reason == "stop"
    assert "<|im_end|>" not in answer.choices[0].message.content


def test_length_limits_the_output(client, model):
    for limit in ({"max_tokens": 5}, {"max_tokens": None, "max_completion_tokens": 5}):
        answer = chat(client, model, LIST, **limit)
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage.completion_tokens == 5


def test_greedy_repeats_itself(client, model):
    first, second = chat(client, model), chat(client, model)
    assert first.choices[0].message.content == second.choices[0].message.content
    assert first.id != second.id


def test_a_shared_prefix_is_cached(client, model):
    messages = [{"role": "system", "content": "You are terse. " * 30}, *QUESTION]
    chat(client, model, messages)
    again = chat(client, model, messages)
    assert again.usage.prompt_tokens_details.cached_tokens > again.usage.prompt_tokens // 2


def test_content_parts_equal_a_string(client, model):
    parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"]}]}]
    as_parts, as_string = chat(client, model, parts), chat(client, model)
    assert as_parts.choices[0].message.content == as_string.choices[0].message.content
    assert as_parts.usage.prompt_tokens == as_string.usage.prompt_tokens


def test_roles(client, model):
    answer = chat(client, model, [
        {"role": "system", "content": "You answer with one word."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "Say hello again."},
    ])
    assert answer.choices[0].message.content


def test_seed_makes_sampling_repeatable(client, model):
    sampled = {"temperature": 1.0, "max_tokens": 16}
    texts = [chat(client, model, seed=seed, **sampled).choices[0].message.content
             for seed in (7, 7, 8, 9, 10)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_n_choices(client, model):
    answer = chat(client, model, n=3, temperature=1.0, seed=3, max_tokens=12)
    assert sorted(choice.index for choice in answer.choices) == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1
    assert answer.usage.completion_tokens > 12  # of all choices; the prompt counts once
    assert answer.usage.prompt_tokens == chat(client, model, max_tokens=1).usage.prompt_tokens


@pytest.mark.parametrize("stop", ["\n3", ["never said", "\n3"]], ids=["string", "array"])
def test_stop_strings_end_the_text(client, model, stop):
    whole = chat(client, model, LIST).choices[0].message.content
    assert "\n3" in whole
    answer = chat(client, model, LIST, stop=stop)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == whole.split("\n3")[0]


def test_a_stop_string_across_tokens(client, model):
    """The stop is cut out of the middle of what greedy decoding says, so it spans tokens."""
    whole = chat(client, model).choices[0].message.content
    middle = len(whole) // 2
    stop = whole[middle - 3:middle + 4]
    answer = chat(client, model, stop=[stop])
    assert answer.choices[0].message.content == whole[:whole.index(stop)]


def test_logprobs(client, model):
    answer = chat(client, model, logprobs=True, top_logprobs=3, max_tokens=4)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for token in content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        values = [entry.logprob for entry in token.top_logprobs]
        assert values == sorted(values, reverse=True)
        # Greedy: the chosen token is the likeliest one.
        assert token.token == token.top_logprobs[0].token
        assert math.isclose(token.logprob, token.top_logprobs[0].logprob, abs_tol=1e-5)
        assert sum(map(math.exp, values)) <= 1.0001
    shown = b"".join(bytes(token.bytes) for token in content).decode(errors="replace")
    assert shown.startswith(answer.choices[0].message.content)


def test_no_logprobs_unless_asked(client, model):
    assert chat(client, model).choices[0].logprobs is None


def test_logit_bias_forbids_a_token(client, model, api):
    plain = api.post("/generate", {"text": "The capital of France is", "return_logprob": True,
                                   "sampling_params": {"temperature": 0, "max_new_tokens": 1}})
    token = plain.json()["meta_info"]["output_token_logprobs"][0][1]
    biased = client.completions.create(model=model, prompt="The capital of France is",
                                       temperature=0, max_tokens=1, logit_bias={str(token): -100})
    assert biased.choices[0].text != plain.json()["text"]


def test_tools_reach_the_model_unharmed(client, model):
    """Without a parser, calls stay text; a request that offers tools is answered all the same."""
    tool = {"type": "function", "function": {
        "name": "weather", "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
    answer = chat(client, model, tools=[tool], tool_choice="auto")
    assert answer.choices[0].message.role == "assistant"


class TestStream:
    def test_pieces_make_the_whole(self, client, model):
        whole = chat(client, model).choices[0]
        chunks = list(chat(client, model, stream=True))
        assert len({chunk.id for chunk in chunks}) == 1
        assert all(chunk.object == "chat.completion.chunk" for chunk in chunks)
        assert chunks[0].choices[0].delta.role == "assistant"
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        assert text == whole.message.content
        reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
        assert reasons[-1] == whole.finish_reason
        assert not any(reasons[:-1])
        assert all(chunk.usage is None for chunk in chunks)

    def test_comes_in_pieces(self, client, model):
        chunks = list(chat(client, model, LIST, stream=True))
        assert len([chunk for chunk in chunks if chunk.choices[0].delta.content]) > 5

    def test_usage_comes_last(self, client, model):
        whole = chat(client, model)
        chunks = list(chat(client, model, stream=True, stream_options={"include_usage": True}))
        assert chunks[-1].choices == []
        assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
        assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
        assert all(chunk.usage is None for chunk in chunks[:-1])

    def test_n_choices_interleave(self, client, model):
        texts, reasons = {}, {}
        for chunk in chat(client, model, n=3, temperature=1.0, seed=3, max_tokens=12, stream=True):
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
                if choice.finish_reason:
                    assert choice.index not in reasons
                    reasons[choice.index] = choice.finish_reason
        whole = chat(client, model, n=3, temperature=1.0, seed=3, max_tokens=12)
        assert texts == {choice.index: choice.message.content for choice in whole.choices}
        assert sorted(reasons) == [0, 1, 2]

    def test_stop_string_is_never_shown(self, client, model):
        whole = chat(client, model).choices[0].message.content
        middle = len(whole) // 2
        stop = whole[middle - 3:middle + 4]
        chunks = chat(client, model, stop=stop, stream=True)
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        assert text == whole[:whole.index(stop)]

    def test_logprobs(self, client, model):
        chunks = list(chat(client, model, stream=True, logprobs=True, top_logprobs=2, max_tokens=8))
        entries = [entry for chunk in chunks for choice in chunk.choices if choice.logprobs
                   for entry in choice.logprobs.content]
        whole = chat(client, model, logprobs=True, top_logprobs=2, max_tokens=8)
        expected = whole.choices[0].logprobs.content
        assert [entry.token for entry in entries] == [entry.token for entry in expected]
        for entry, other in zip(entries, expected):
            # Another batch, another order of additions.
            assert math.isclose(entry.logprob, other.logprob, rel_tol=1e-2, abs_tol=1e-2)
            assert len(entry.top_logprobs) == 2

    def test_leaving_early_frees_the_server(self, client, model, api):
        stream = chat(client, model, LIST, stream=True, max_tokens=1500,
                      extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if api.load() == (0, 0):
                return
            time.sleep(0.05)
        raise AssertionError("the abandoned request still runs")


class TestSglangExtras:
    def test_ignore_eos_and_min_tokens(self, client, model):
        plain = chat(client, model, max_tokens=30)
        assert plain.choices[0].finish_reason == "stop"
        answer = chat(client, model, max_tokens=30, extra_body={"ignore_eos": True})
        assert answer.usage.completion_tokens == 30
        answer = chat(client, model, max_tokens=30, extra_body={"min_tokens": 25})
        assert 25 <= answer.usage.completion_tokens <= 30

    def test_no_stop_trim(self, client, model):
        answer = chat(client, model, LIST, stop="\n3", extra_body={"no_stop_trim": True})
        assert answer.choices[0].message.content.endswith("\n3")

    def test_top_k_one_is_greedy(self, client, model):
        greedy = chat(client, model).choices[0].message.content
        answer = chat(client, model, temperature=1.5, extra_body={"top_k": 1})
        assert answer.choices[0].message.content == greedy

    def test_others_are_accepted(self, client, model):
        answer = chat(client, model, extra_body={
            "min_p": 0.05, "repetition_penalty": 1.1, "stop_token_ids": [2],
            "skip_special_tokens": False, "chat_template_kwargs": {"enable_thinking": False},
            "a_field_of_the_future": {"x": 1}})
        assert answer.choices[0].finish_reason in ("stop", "length")
