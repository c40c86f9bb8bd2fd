"""A server under the load of many concurrent streams, through the OpenAI completions endpoint that
tilewright and llama-server both have. One client for both; Python's standard library alone."""

import contextlib
import dataclasses
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import threading
import time


@dataclasses.dataclass
class Load:
    output_tokens_per_second: float
    median_ttft: float  # seconds from sending a request to its first event
    p99_ttft: float
    median_time_per_token: float  # seconds, after the first


class Server:
    def __init__(self, process):
        self.process = process

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def serving(command, port, log_path):
    """Starts a server, waits until it is healthy, and ends it."""
    with open(log_path, "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=False)
    try:
        deadline = time.monotonic() + 120
        while not is_healthy(port):
            if process.poll() is not None:
                raise SystemExit(f"{command[0]} ended with {process.returncode}; see --log")
            if time.monotonic() > deadline:
                raise SystemExit(f"{command[0]} was not healthy after 120 s; see --log")
            time.sleep(0.05)
        stream_completion(port, [5, 6, 7, 8], 4)  # warm
        yield Server(process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def is_healthy(port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


def stream_completion(port, prompt, max_tokens):
    """-> (time of sending, of the first event, of the end, completion tokens)"""
    body = json.dumps({
        "model": "default", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
        "stream": True, "ignore_eos": True, "stream_options": {"include_usage": True}})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    sent = time.monotonic()
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"HTTP {response.status}: {response.read(500)}")
    first = None
    usage = None
    while line := response.readline():
        if not line.startswith(b"data: {"):
            continue
        if first is None:
            first = time.monotonic()
        # Only the last events carry usage; the others are not parsed, to leave the server its time.
        if b'"completion_tokens"' in line:
            usage = json.loads(line[6:]).get("usage") or usage
    end = time.monotonic()
    connection.close()
    if usage is None:
        raise RuntimeError("the stream had no usage")
    return sent, first, end, usage["completion_tokens"]


def run_load(port, num_streams, prompt_tokens, output_tokens, vocab_size, seed):
    """All streams begin at once, each with a prompt of its own."""
    numbers = random.Random(seed)
    prompts = [[numbers.randrange(256, vocab_size) for _ in range(prompt_tokens)]
               for _ in range(num_streams)]
    start = threading.Barrier(num_streams)
    results, problems = [], []

    def client(prompt):
        try:
            start.wait()
            results.append(stream_completion(port, prompt, output_tokens))
        except Exception as problem:  # noqa: BLE001: every problem ends the measurement below
            problems.append(problem)

    threads = [threading.Thread(target=client, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise SystemExit(f"{len(problems)} of {num_streams} streams failed: {problems[0]}")
    short = [tokens for _, _, _, tokens in results if tokens != output_tokens]
    if short:
        raise SystemExit(f"{len(short)} streams had {short[0]} tokens instead of {output_tokens}")
    wall = max(end for _, _, end, _ in results) - min(sent for sent, _, _, _ in results)
    ttft = sorted(first - sent for sent, first, _, _ in results)
    return Load(
        output_tokens_per_second=num_streams * output_tokens / wall,
        median_ttft=statistics.median(ttft),
        p99_ttft=ttft[min(len(ttft) - 1, int(0.99 * len(ttft)))],
        median_time_per_token=statistics.median(
            (end - first) / (output_tokens - 1) for _, first, end, _ in results))
