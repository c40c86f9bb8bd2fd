"""SGLang's native interface: /generate and its companions."""
import threading
import time

import pytest

GREEDY = {"temperature": 0, "max_new_tokens": 8}
PROMPT = "The capital of France is"


def generate(api, **body):
    body.setdefault("sampling_params", GREEDY)
    reply = api.post("/generate", body)
    assert reply.status == 200, reply.body
    return reply.json()


def test_generate(api):
    answer = generate(api, text=PROMPT)
    assert answer["text"].startswith(" Paris")
    meta = answer["meta_info"]
    assert meta["prompt_tokens"] > 3
    assert meta["completion_tokens"] == 8
    assert meta["finish_reason"] == {"type": "length", "length": 8}
    assert meta["cached_tokens"] <= meta["prompt_tokens"]
    assert meta["id"] and meta["e2e_latency"] > 0


def test_finish_reason_names_the_stop(api):
    answer = generate(api, text=PROMPT, sampling_params={**GREEDY, "stop": ["Paris"]})
    assert answer["text"] == " "[:len(answer["text"])]
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": "Paris"}


def test_stop_token(api):
    scored = generate(api, text=PROMPT, return_logprob=True)
    ids = [entry[1] for entry in scored["meta_info"]["output_token_logprobs"]]
    answer = generate(api, text=PROMPT, sampling_params={**GREEDY, "stop_token_ids": [ids[1]]})
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": ids[1]}
    assert scored["text"].startswith(answer["text"])


def test_batch_of_texts_and_of_ids(api):
    single = generate(api, text=PROMPT)
    answers = generate(api, text=[PROMPT, "One, two, three,"])
    assert len(answers) == 2 and answers[0]["text"] == single["text"]
    scored = generate(api, text=PROMPT, return_logprob=True, logprob_start_len=0)
    ids = [entry[1] for entry in scored["meta_info"]["input_token_logprobs"]]
    assert generate(api, input_ids=ids)["text"] == single["text"]
    answers = generate(api, input_ids=[ids, ids], sampling_params=[GREEDY, {**GREEDY,
                                                                           "max_new_tokens": 3}])
    assert [answer["meta_info"]["completion_tokens"] for answer in answers] == [8, 3]


def test_logprobs(api):
    meta = generate(api, text=PROMPT, return_logprob=True, top_logprobs_num=2,
                    logprob_start_len=0)["meta_info"]
    assert len(meta["output_token_logprobs"]) == meta["completion_tokens"]
    assert len(meta["output_top_logprobs"]) == meta["completion_tokens"]
    assert all(len(top) == 2 for top in meta["output_top_logprobs"])
    assert len(meta["input_token_logprobs"]) == meta["prompt_tokens"]
    assert meta["input_token_logprobs"][0][0] is None
    for value, token, _ in meta["output_token_logprobs"]:
        assert value <= 0 and isinstance(token, int)


def test_stream_is_cumulative(api):
    reply = api.post("/generate", {"text": PROMPT, "stream": True, "sampling_params": GREEDY})
    events = reply.events()
    assert events[-1] == "[DONE]"
    texts = [event["text"] for event in events[:-1]]
    assert all(later.startswith(earlier) for earlier, later in zip(texts, texts[1:]))
    assert texts[-1] == generate(api, text=PROMPT)["text"]
    assert events[0]["meta_info"]["finish_reason"] is None
    assert events[-2]["meta_info"]["finish_reason"]["type"] == "length"
    assert events[-2]["meta_info"]["completion_tokens"] == 8


def test_abort_request(api):
    result = {}
    body = {"text": PROMPT, "rid": "to-be-aborted",
            "sampling_params": {"max_new_tokens": 1500, "ignore_eos": True}}
    worker = threading.Thread(target=lambda: result.update(reply=api.post("/generate", body)))
    worker.start()
    deadline = time.monotonic() + 30
    while worker.is_alive() and time.monotonic() < deadline:
        assert api.post("/abort_request", {"rid": "to-be-aborted"}).status == 200
        worker.join(0.1)
    assert not worker.is_alive()
    meta = result["reply"].json()["meta_info"]
    assert meta["finish_reason"]["type"] == "abort"
    assert meta["completion_tokens"] < 1500


def test_info(api, model):
    info = api.get("/get_model_info").json()
    assert info["model_path"] and info["is_generation"] is True
    assert api.get("/get_server_info").json()["served_model_name"] == model
    assert api.get("/health").status == 200
    assert api.get("/health_generate").status == 200


def test_flush_cache_forgets_prefixes(api):
    text = "A prefix that is long enough to fill a few pages of the cache. " * 8
    generate(api, text=text)
    assert generate(api, text=text)["meta_info"]["cached_tokens"] > 0
    deadline = time.monotonic() + 10  # refused while requests run
    while api.post("/flush_cache", {}).status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert generate(api, text=text)["meta_info"]["cached_tokens"] == 0


def test_metrics_count(api):
    expected = {"tilewright_generation_tokens_total": 8,
                "tilewright_e2e_request_latency_seconds_count": 1,
                "tilewright_time_to_first_token_seconds_count": 1}

    def counts():
        samples = api.metrics()
        return {start: sum(value for name, value in samples.items() if name.startswith(start))
                for start in expected}

    def settled():
        # The engine publishes its counters after it has sent the last token.
        before = None
        while before != (now := counts()):
            before = now
            time.sleep(0.2)
        return now

    before = settled()
    generate(api, text=PROMPT)
    after = settled()
    assert {name: after[name] - before[name] for name in expected} == expected


def test_metrics_compare_with_the_machine(api):
    def sums():
        samples = api.metrics()
        return {name: sum(value for key, value in samples.items() if key.startswith(f"tilewright_{name}{{"))
                for name in ("memory_bytes_total", "operations_total", "forward_seconds_total",
                             "memory_bandwidth_limit_bytes", "operations_limit")}

    before = sums()
    generate(api, text=PROMPT)
    after = sums()
    bytes_moved, operations, seconds = (
        after[name] - before[name]
        for name in ("memory_bytes_total", "operations_total", "forward_seconds_total"))
    # A token of the small model reads all its weights, over 70 MB; the machine reads at least 1 GB/s.
    assert bytes_moved > 4 * 70e6 and operations > 4 * 200e6 and seconds > 0
    assert after["memory_bandwidth_limit_bytes"] > 1e9 and after["operations_limit"] > 1e9


@pytest.mark.parametrize("body", [
    {}, {"text": PROMPT, "input_ids": [1]}, {"text": 5}, {"text": []}, {"input_ids": ["a"]},
    {"input_ids": [1 << 30]}, {"input_ids": [-1]}, {"input_ids": []}, {"text": ""},
    {"text": PROMPT, "sampling_params": {"temperature": -1}},
    {"text": PROMPT, "sampling_params": 5},
    {"text": PROMPT, "top_logprobs_num": 1000, "return_logprob": True},
    {"text": ["a", "b"], "sampling_params": [GREEDY]},
], ids=str)
def test_bad_requests(api, body):
    reply = api.post("/generate", body)
    assert reply.status == 400, reply.body
    assert reply.json()["error"]["message"]
