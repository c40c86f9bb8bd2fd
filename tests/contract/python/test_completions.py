"""/v1/completions through the official client."""
import math

import openai
import pytest

PROMPT = "The capital of France is"


def complete(client, model, prompt=PROMPT, **kwargs):
    kwargs.setdefault("temperature", 0)
    return client.completions.create(model=model, prompt=prompt, **kwargs)


def test_completes(client, model):
    answer = complete(client, model, max_tokens=8)
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    [choice] = answer.choices
    assert choice.text.startswith(" Paris")
    assert choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 8


def test_default_length_is_16(client, model):
    answer = complete(client, model, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 16


def test_all_forms_of_a_prompt(client, model, api):
    ids = api.post("/generate", {
        "text": PROMPT, "return_logprob": True, "logprob_start_len": 0,
        "sampling_params": {"temperature": 0, "max_new_tokens": 1}})
    ids = [entry[1] for entry in ids.json()["meta_info"]["input_token_logprobs"]]
    text = complete(client, model, max_tokens=8).choices[0].text
    assert complete(client, model, ids, max_tokens=8).choices[0].text == text
    for prompts in ([PROMPT, "One, two, three,"], [ids, ids[:3]]):
        answer = complete(client, model, prompts, max_tokens=8)
        assert [choice.index for choice in answer.choices] == [0, 1]
        assert answer.choices[0].text == text
        assert answer.choices[1].text != text


def test_n_times_prompts(client, model):
    answer = complete(client, model, [PROMPT, "One, two,"], n=2, max_tokens=4)
    # As OpenAI numbers them: the choices of a prompt are neighbours.
    texts = [choice.text for choice in sorted(answer.choices, key=lambda choice: choice.index)]
    assert texts[0] == texts[1] != texts[2] == texts[3]


def test_echo_gives_the_prompt_back(client, model):
    answer = complete(client, model, echo=True, max_tokens=4)
    assert answer.choices[0].text == PROMPT + complete(client, model, max_tokens=4).choices[0].text


def test_echo_with_logprobs_scores_the_prompt(client, model):
    answer = complete(client, model, echo=True, logprobs=2, max_tokens=2)
    scores = answer.choices[0].logprobs
    num_tokens = answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert len(scores.tokens) == len(scores.token_logprobs) == num_tokens
    assert scores.token_logprobs[0] is None
    assert all(value <= 0 for value in scores.token_logprobs[1:])
    assert "".join(scores.tokens) == answer.choices[0].text
    for offset, token in zip(scores.text_offset, scores.tokens):
        assert answer.choices[0].text[offset:offset + len(token)] == token


def test_logprobs(client, model):
    answer = complete(client, model, logprobs=3, max_tokens=5)
    scores = answer.choices[0].logprobs
    assert "".join(scores.tokens) == answer.choices[0].text
    for token, value, top in zip(scores.tokens, scores.token_logprobs, scores.top_logprobs):
        assert math.isclose(max(top.values()), value, abs_tol=1e-5)
        assert token in top
    assert complete(client, model, max_tokens=1).choices[0].logprobs is None


def test_stream_makes_the_whole(client, model):
    whole = complete(client, model, max_tokens=12)
    chunks = list(complete(client, model, max_tokens=12, stream=True,
                           stream_options={"include_usage": True}))
    text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].text
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens


def test_stream_with_echo_begins_with_the_prompt(client, model):
    chunks = list(complete(client, model, max_tokens=4, echo=True, stream=True))
    text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert text == complete(client, model, max_tokens=4, echo=True).choices[0].text


def test_emoji_stay_whole(client, model):
    """The ids of an emoji's bytes arrive one by one; no half of it may be shown."""
    chunks = complete(client, model, "Repeat: 🙂🙂🙂🙂🙂🙂🙂🙂 again: 🙂🙂🙂", max_tokens=16, stream=True)
    for chunk in chunks:
        for choice in chunk.choices:
            assert "\ufffd" not in choice.text or choice.finish_reason


@pytest.mark.parametrize("field", [{"suffix": "."}, {"best_of": 3, "n": 4}], ids=["suffix", "best_of"])
def test_refuses_what_it_cannot_do(client, model, field):
    with pytest.raises(openai.BadRequestError) as raised:
        complete(client, model, **field)
    assert raised.value.param == next(iter(field))
