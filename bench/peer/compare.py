#!/usr/bin/env python3
"""tilewright against llama.cpp on the same work, on this machine, in one run.

    compare.py model  --model FILE.gguf ...    prefill and decode of one sequence
    compare.py server --model FILE.gguf ...    many concurrent streams over HTTP

Needs nothing beyond Python. Both programs run alternately (ours, peer, ours, peer, ...), so that
drift of the machine meets both; of each pair the ratio is taken, and of all ratios the median.
Above 1.00x tilewright is ahead. README.md beside this file says how to get llama.cpp.
"""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys

from server_load import run_load, serving

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run_json(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}\nfailed with exit code {done.returncode}:\n"
                 f"{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def measure_tilewright(options):
    result = run_json([
        options.tilewright, "bench", "latency", "--model-path", options.model, "--threads",
        str(options.threads), "--prompt-tokens", str(options.prompt_tokens), "--output-tokens",
        str(options.output_tokens), "--repetitions", str(options.repetitions), "--json"])
    return {"prefill": result["prefill_tokens_per_second"],
            "decode": result["decode_tokens_per_second"]}


def measure_llama_bench(options):
    def tokens_per_second(*test):
        result = run_json([
            *shlex.split(options.peer), "llama-bench", "-m", options.peer_model, "-t",
            str(options.threads), "-r", str(options.repetitions), "-o", "json", *test])
        return statistics.median(result[0]["samples_ts"])

    # Decoding starts behind the prompt, as it does in ours.
    prompt, output = str(options.prompt_tokens), str(options.output_tokens)
    return {"prefill": tokens_per_second("-p", prompt, "-n", "0"),
            "decode": tokens_per_second("-p", "0", "-n", output, "-d", prompt)}


def load_of(command, options, round_number):
    with serving(command, options.port, options.log) as server:
        load = run_load(options.port, options.streams, options.prompt_tokens,
                        options.output_tokens, options.vocab_size, seed=round_number)
        return {"output tokens/s": load.output_tokens_per_second,
                "median TTFT s": load.median_ttft, "p99 TTFT s": load.p99_ttft,
                "median ms/token": 1000 * load.median_time_per_token,
                "resident MiB": server.resident_bytes() / 2**20}


def tilewright_server(options):
    return [options.tilewright, "serve", "--model-path", options.model, "--host", "127.0.0.1",
            "--port", str(options.port), "--threads", str(options.threads)]


def llama_server(options):
    # A place per stream, with room for its prompt and output.
    context = options.streams * (options.prompt_tokens + options.output_tokens + 64)
    return [*shlex.split(options.peer), "llama-server", "-m", options.peer_model, "-t",
            str(options.threads), "-np", str(options.streams), "-c", str(context), "--host",
            "127.0.0.1", "--port", str(options.port), *shlex.split(options.peer_options)]


LOWER_IS_BETTER = {"median TTFT s", "p99 TTFT s", "median ms/token", "resident MiB"}


def print_table(title, ours, peers):
    print(f"\n{title}\n{'':18}{'tilewright':>12}{'llama.cpp':>12}{'ratio':>9}")
    ratios = {}
    for metric in ours[0]:
        pairs = [(a[metric], b[metric]) for a, b in zip(ours, peers)]
        ratios[metric] = statistics.median(
            b / a if metric in LOWER_IS_BETTER else a / b for a, b in pairs)
        mine, theirs = (statistics.median(column) for column in zip(*pairs))
        print(f"{metric:18}{mine:12.2f}{theirs:12.2f}{ratios[metric]:8.2f}x")
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["model", "server"])
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--tilewright", default=str(ROOT / "build/release/apps/tilewright"))
    parser.add_argument("--peer", default="",
                        help="what stands before llama.cpp's commands, e.g. 'chroot /srv/peer'")
    parser.add_argument("--peer-model", help="the model's path as the peer sees it")
    parser.add_argument("--peer-options", default="",
                        help="further options of llama-server, e.g. '--poll 0'")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="pairs of runs")
    parser.add_argument("--repetitions", type=int, default=3, help="measurements within a run")
    parser.add_argument("--prompt-tokens", type=int, help="default: 512 (model), 128 (server)")
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--vocab-size", type=int, default=32000,
                        help="prompts are random ids below it (at most the model's)")
    parser.add_argument("--port", type=int, default=31999)
    parser.add_argument("--log", default="/dev/null", help="where the servers' output goes")
    parser.add_argument("--json", help="file for all single results")
    options = parser.parse_args()
    options.peer_model = options.peer_model or options.model
    if options.prompt_tokens is None:
        options.prompt_tokens = 512 if options.what == "model" else 128

    ours, peers = [], []
    for number in range(options.rounds):
        if options.what == "model":
            ours.append(measure_tilewright(options))
            peers.append(measure_llama_bench(options))
        else:
            ours.append(load_of(tilewright_server(options), options, number))
            peers.append(load_of(llama_server(options), options, number))
        print(f"round {number + 1}: tilewright {format_result(ours[-1])}; "
              f"llama.cpp {format_result(peers[-1])}", flush=True)
    work = (f"{options.prompt_tokens} tokens in, {options.output_tokens} out, "
            f"{options.threads} threads")
    if options.what == "server":
        work = f"{options.streams} streams, {work}"
    ratios = print_table(f"{pathlib.Path(options.model).name}: {work}", ours, peers)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(
            {"model": options.model, "work": work, "tilewright": ours, "llama.cpp": peers,
             "ratios": ratios}, indent=2) + "\n")


def format_result(result):
    return ", ".join(f"{metric} {value:.2f}" for metric, value in result.items())


if __name__ == "__main__":
    main()
