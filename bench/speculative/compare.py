#!/usr/bin/env python3
"""Generation with guessed tokens against plain generation: speed, and that the text is the same.

    compare.py --model PATH [--draft-model PATH] [--eagle-head PATH] [--nextn] [--batches 1,4,16]

One server for each mode runs all the time; requests go to one after the other, forth and back, so that
drift of the machine meets all. Each repetition's speed is divided by the plain run's beside it, and the median
of these ratios is printed. Prompts: code and prose, gone on from greedily, and mixed words, sampled so
hot that nothing repeats.
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import random
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench" / "peer"))
from server_load import serving  # noqa: E402

FIRST_PORT = 31100


def prompts(kind, count):
    """Different beginnings, so that no two requests share a prefix."""
    if kind == "code":
        text = (ROOT / "src/kernels/gemm/scalar.cc").read_text()
    else:
        text = (ROOT / "docs/ARCHITECTURE.md").read_text()
    if kind == "mixed":
        words = text.split()
        random.Random(1).shuffle(words)
        text = " ".join(words)
    return [text[200 * i:200 * i + 2000] for i in range(count)]


def post(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        sys.exit(f"HTTP {response.status}: {answer[:500]}")
    return answer


def flush(port):
    post(port, "/flush_cache", {})


def complete(port, kind, prompt, max_tokens):
    answer = post(port, "/v1/completions", {"model": "m", "prompt": prompt, "seed": 1,
                                          "temperature": 1.5 if kind == "mixed" else 0,
                                          "max_tokens": max_tokens, "ignore_eos": True})
    return json.loads(answer)


def run(port, kind, texts, max_tokens):
    """-> (output tokens per second without the prompts' time, texts)"""
    flush(port)  # of what NGRAM remembers of the run before, too
    for text in texts:  # the prefix cache takes the prompts
        complete(port, kind, text, 1)
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(texts)) as pool:
        answers = list(pool.map(lambda text: complete(port, kind, text, max_tokens), texts))
    seconds = time.monotonic() - begin
    tokens = sum(answer["usage"]["completion_tokens"] for answer in answers)
    return tokens / seconds, [answer["choices"][0]["text"] for answer in answers]


def drafts(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    counts = {}
    for line in connection.getresponse().read().decode().splitlines():
        for name in ("accepted_draft_tokens_total", "draft_tokens_total"):
            if line.startswith(f"tilewright_{name}"):
                counts[name] = float(line.split()[-1])
    return counts["accepted_draft_tokens_total"], counts["draft_tokens_total"]


def compare(servers, kind, batch, options):
    texts = prompts(kind, batch)
    speeds = {mode: [] for mode in servers}
    before = {mode: drafts(port) for mode, port in servers.items()}
    for repetition in range(options.repetitions):
        outputs = {}
        for mode, port in list(servers.items())[::-1 if repetition % 2 else 1]:
            speed, outputs[mode] = run(port, kind, texts, options.output_tokens)
            speeds[mode].append(speed)
        for mode, output in outputs.items():
            if output != outputs["plain"]:
                sys.exit(f"{mode}: the text differs from the plain run's")
    for mode, port in servers.items():
        if mode == "plain":
            continue
        accepted, made = (now - then for now, then in zip(drafts(port), before[mode]))
        ratio = statistics.median(a / b for a, b in zip(speeds[mode], speeds["plain"]))
        plain = statistics.median(speeds["plain"])
        print(f"| {kind} | {batch} | {mode} | {plain:.1f} | {ratio:.2f}x | "
              f"{made / options.repetitions / batch:.0f} | "
              f"{100 * accepted / made if made else 0:.0f} % |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tilewright", default=str(ROOT / "build/release/apps/tilewright"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--draft-model", help="adds the mode STANDALONE")
    parser.add_argument("--eagle-head", help="adds the mode EAGLE3")
    parser.add_argument("--nextn", action="store_true", help="adds the mode NEXTN")
    parser.add_argument("--batches", default="1,4,16")
    parser.add_argument("--kinds", default="code,prose,mixed")
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--log", default="/dev/null")
    options = parser.parse_args()
    modes = {"plain": [], "NGRAM": ["--speculative-algorithm", "NGRAM"]}
    for mode, path in (("STANDALONE", options.draft_model), ("EAGLE3", options.eagle_head)):
        if path:
            modes[mode] = ["--speculative-algorithm", mode, "--speculative-draft-model-path", path]
    if options.nextn:
        modes["NEXTN"] = ["--speculative-algorithm", "NEXTN"]
    with contextlib.ExitStack() as stack:
        servers = {}
        for port, (mode, flags) in enumerate(modes.items(), FIRST_PORT):
            command = [options.tilewright, "serve", "--model-path", options.model, "--port",
                       str(port), "--served-model-name", "m", "--max-total-tokens", "16384",
                       "--context-length", "2048", *flags]
            stack.enter_context(serving(command, port, options.log))
            servers[mode] = port
        print("| text | batch | mode | plain tokens/s | ratio | guesses per request | right |")
        print("|---|---|---|---|---|---|---|")
        for kind in options.kinds.split(","):
            for batch in map(int, options.batches.split(",")):
                compare(servers, kind, batch, options)


if __name__ == "__main__":
    main()
