"""`tilewright router` in front of two servers of its own."""
import concurrent.futures
import contextlib
import signal
import time

import openai
import pytest

from server_process import running_server, started_router

FLAGS = ("--threads", "1", "--max-total-tokens", "4096", "--served-model-name", "routed")


@pytest.fixture(scope="module")
def fleet():
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(running_server(*FLAGS)) for _ in range(2)]
        router = stack.enter_context(started_router(
            "--worker-urls", *(server.api.url for server in servers),
            "--health-check-interval-secs", "0.2"))
        wait_for_workers(router, 2)
        yield router, servers


def wait_for_workers(router, count, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if router.api.get("/health").json()["healthy_workers"] == count:
                return
        assert router.process.poll() is None, router.output()
        time.sleep(0.05)
    raise AssertionError(f"not {count} workers:\n" + router.output())


def ask(client, text, **kwargs):
    return client.chat.completions.create(
        model="routed", messages=[{"role": "user", "content": text}], temperature=0, max_tokens=8,
        **kwargs)


def client_of(router):
    return openai.OpenAI(base_url=router.api.url + "/v1", api_key="none", max_retries=0, timeout=120)


def test_a_client_sees_one_server(fleet):
    router, servers = fleet
    client = client_of(router)
    assert client.models.list().data[0].id == "routed"
    whole = ask(client, "Say hello.").choices[0].message.content
    pieces = ask(client, "Say hello.", stream=True)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == whole
    assert ask(client_of(servers[0]), "Say hello.").choices[0].message.content == whole


def test_errors_are_the_servers_own(fleet):
    router, _ = fleet
    client = client_of(router)
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="another", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="routed", messages=[], max_tokens=1)


def test_a_long_prefix_stays_with_its_server(fleet):
    router, servers = fleet
    client = client_of(router)
    assert router.api.post("/flush_cache", None).status == 200
    before = [server.api.metrics()["tilewright_cached_tokens_total{model_name=\"routed\"}"]
              for server in servers]
    system = "You are told about numbers. " + " ".join(map(str, range(100)))
    for question in range(4):
        client.chat.completions.create(
            model="routed", temperature=0, max_tokens=2,
            messages=[{"role": "system", "content": system},
                      {"role": "user", "content": f"What about {question}?"}])
    gains = [server.api.metrics()["tilewright_cached_tokens_total{model_name=\"routed\"}"] - was
             for server, was in zip(servers, before)]
    assert min(gains) == 0 and max(gains) > 3 * 100, gains


def test_a_server_that_is_killed_takes_no_request_along(fleet):
    router, servers = fleet
    client = client_of(router)
    texts = [f"Write about the number {i}." for i in range(12)]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(ask, client, text) for text in texts]
        concurrent.futures.wait(answers, return_when=concurrent.futures.FIRST_COMPLETED)
        servers[1].process.send_signal(signal.SIGKILL)
        assert all(answer.result().choices[0].message.content for answer in answers)
    wait_for_workers(router, 1)
    assert ask(client, "Still there?").choices[0].message.content


def test_impossible_flags_are_refused():
    for flags, culprit in ((("--worker-urls", "https://node:1"), "https://node:1"),
                           (("--worker-urls", "node:1", "http://node:1"), "http://node:1"),
                           (("--policy", "sticky"), "sticky"),
                           (("--cache-threshold", "2"), "--cache-threshold")):
        with started_router(*flags) as router:
            assert router.wait() == 2
            assert culprit in router.output()
