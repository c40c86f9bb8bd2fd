"""A full queue, and the end of a server that is busy."""
import threading
import time

import openai
import pytest

from server_process import running_server, started_server

LONG = {"text": "Once upon a time", "sampling_params": {"max_new_tokens": 1000, "ignore_eos": True}}


def wait_for(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def test_a_full_queue_is_a_rate_limit():
    with running_server("--max-running-requests", "1", "--max-queued-requests", "1") as server:
        threads = []
        for expected in [(1, 0), (1, 1)]:
            threads.append(threading.Thread(target=server.api.post, args=("/generate", LONG)))
            threads[-1].start()
            wait_for(lambda: server.api.load() == expected)
        client = openai.OpenAI(base_url=server.api.url + "/v1", api_key="none", max_retries=0)
        with pytest.raises(openai.RateLimitError) as raised:
            client.completions.create(model=client.models.list().data[0].id, prompt="Hello")
        assert int(raised.value.response.headers["retry-after"]) >= 1
        assert server.api.post("/abort_request", {"abort_all": True}).status == 200
        for thread in threads:
            thread.join()
        assert server.api.post("/generate", {"text": "Hi"}).status == 200


def test_running_requests_finish_before_the_end():
    with running_server("--drain-timeout", "300") as server:
        replies = []
        body = {**LONG, "sampling_params": {"max_new_tokens": 60, "ignore_eos": True}}
        threads = [threading.Thread(target=lambda: replies.append(server.api.post("/generate", body)))
                   for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_for(lambda: server.api.load() == (3, 0))
        server.terminate()
        for thread in threads:
            thread.join()
        assert [reply.json()["meta_info"]["completion_tokens"] for reply in replies] == [60] * 3
        assert server.wait() == 0, server.output()
        with pytest.raises(OSError):
            server.api.get("/health")


def test_requests_that_take_too_long_are_aborted():
    with running_server("--drain-timeout", "0.5") as server:
        replies = []
        thread = threading.Thread(target=lambda: replies.append(server.api.post("/generate", LONG)))
        thread.start()
        wait_for(lambda: server.api.load() == (1, 0))
        server.terminate()
        thread.join()
        assert replies[0].json()["meta_info"]["finish_reason"]["type"] == "abort"
        assert server.wait() == 0, server.output()


def test_an_idle_server_ends_at_once():
    with running_server() as server:
        server.terminate()
        assert server.wait(20) == 0, server.output()


def test_a_port_in_use_is_named():
    with running_server() as first:
        port = first.api.address.port
        with started_server(port=port) as second:
            assert second.wait() == 2, second.output()
            assert str(port) in second.output()
        assert first.api.get("/health").status == 200
