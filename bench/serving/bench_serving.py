#!/usr/bin/env python3
"""Measures a server under load: throughput, time to first token (TTFT), time per output token after
it (TPOT), time between pieces of text (ITL). Flags and names of figures are those of SGLang's
bench_serving; the server is any with OpenAI's /v1/completions that takes `ignore_eos`."""
import argparse
import concurrent.futures
import json
import math
import random
import sys
import time

import datasets
import report
from stream_client import StreamClient

PORTS = {"tilewright": 30000, "sglang": 30000, "vllm": 8000, "llama.cpp": 8080}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=PORTS, default="tilewright", help="sets the default port")
    parser.add_argument("--base-url", help="http://HOST:PORT (default: this machine, the backend's port)")
    parser.add_argument("--model", help="default: the first of /v1/models")
    parser.add_argument("--api-key")
    parser.add_argument("--dataset-name", choices=["random", "sharegpt"], default="random")
    parser.add_argument("--dataset-path", help="file of --dataset-name sharegpt")
    parser.add_argument("--num-prompts", type=positive, default=100)
    parser.add_argument("--random-input-len", type=positive, default=1024)
    parser.add_argument("--random-output-len", type=positive, default=128)
    parser.add_argument("--random-range-ratio", type=share, default=1.0,
                        help="shortest length as a share of the longest (1: all are equal)")
    parser.add_argument("--sharegpt-output-len", type=positive, help="instead of the recorded answer's")
    parser.add_argument("--request-rate", type=rate, default=math.inf,
                        help="requests per second, arriving as a Poisson process (inf: all at once)")
    parser.add_argument("--max-concurrency", type=positive, help="requests under way at once")
    parser.add_argument("--warmup-requests", type=int, default=1)
    parser.add_argument("--extra-request-body", type=json.loads, default={}, metavar="JSON")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output-file", help="appends one line of JSON")
    given = parser.parse_args()
    if given.dataset_name == "sharegpt" and not given.dataset_path:
        parser.error("--dataset-name sharegpt needs --dataset-path FILE")
    return given


def positive(text):
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def share(text):
    if not 0 <= (value := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def rate(text):
    if not (value := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def requests_of(given):
    if given.dataset_name == "sharegpt":
        return datasets.sharegpt_requests(given.dataset_path, given.num_prompts,
                                          given.sharegpt_output_len, given.seed)
    return datasets.random_requests(given.num_prompts, given.random_input_len, given.random_output_len,
                                    given.random_range_ratio, given.seed)


def run(client, requests, given):
    """-> (timings, seconds). Arrivals don't wait for answers, unless --max-concurrency holds them."""
    gaps = random.Random(given.seed)
    workers = given.max_concurrency or len(requests)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        begin = time.monotonic()
        arrival = begin
        under_way = []
        for prompt, output_len in requests:
            time.sleep(max(0, arrival - time.monotonic()))
            under_way.append(pool.submit(client.complete, prompt, output_len, given.extra_request_body))
            if given.request_rate < math.inf:
                arrival += gaps.expovariate(given.request_rate)
        timings = [answer.result() for answer in under_way]
        return timings, time.monotonic() - begin


def main():
    given = arguments()
    base_url = given.base_url or f"http://127.0.0.1:{PORTS[given.backend]}"
    client = StreamClient(base_url, given.model, given.api_key)
    try:
        client.model = given.model or client.served_model()
        requests = requests_of(given)
    except (OSError, RuntimeError, ValueError) as problem:
        sys.exit(f"bench_serving: {base_url}: {problem}")
    # Prompts of their own: the measured ones must not be in the server's prefix cache.
    for prompt, output_len in datasets.random_requests(given.warmup_requests, 32, 8, 1, given.seed + 1):
        client.complete(prompt, output_len, given.extra_request_body)
    timings, duration = run(client, requests, given)
    result = {"backend": given.backend, "model": client.model, "dataset_name": given.dataset_name,
              "num_prompts": len(requests),
              "request_rate": given.request_rate if given.request_rate < math.inf else "inf",
              "max_concurrency": given.max_concurrency, **report.figures(timings, duration)}
    print(report.table(result))
    if given.output_file:
        with open(given.output_file, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
    problems = [timing.problem for timing in timings if timing.problem]
    if problems:
        sys.exit(f"bench_serving: {len(problems)} of {len(timings)} requests failed: {problems[0]}")


if __name__ == "__main__":
    main()
