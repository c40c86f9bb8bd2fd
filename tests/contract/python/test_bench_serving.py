"""`tilewright bench serve` against the server: its figures add up, and failures are told."""
import json
import os
import subprocess
import xml.etree.ElementTree

import pytest


def bench(api, *flags):
    if not os.environ.get("TILEWRIGHT_BINARY"):
        pytest.skip("TILEWRIGHT_BINARY is not set")
    command = [os.environ["TILEWRIGHT_BINARY"], "bench", "serve", "--base-url", api.url, "--api-key",
               api.key or "none", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_random_prompts(api, tmp_path):
    output = tmp_path / "result.jsonl"
    ran = bench(api, "--num-prompts", "6", "--random-input-len", "20", "--random-output-len", "8",
                "--max-concurrency", "3", "--request-rate", "50", "--output-file", str(output),
                "--plot", str(tmp_path / "plot.svg"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = json.loads(output.read_text())
    assert (result["completed"], result["failed"]) == (6, 0)
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (120, 48)
    assert result["output_throughput"] == pytest.approx(48 / result["duration"])
    assert 0 < result["median_ttft_ms"] <= result["p99_ttft_ms"] <= result["p99_e2e_latency_ms"]
    assert 0 < result["mean_tpot_ms"] < result["mean_e2e_latency_ms"]
    assert 0 < result["concurrency"] <= 3.01
    assert "median ttft ms" in ran.stdout
    plot = xml.etree.ElementTree.parse(tmp_path / "plot.svg").getroot()
    assert len(plot.findall("{*}polyline")) == 3


def test_sharegpt_prompts(api, tmp_path):
    data = tmp_path / "conversations.json"
    data.write_text(json.dumps([
        {"conversations": [{"value": "Name a colour."}, {"value": "Blue is one."}]},
        {"conversations": [{"value": "alone"}]}]))
    output = tmp_path / "result.jsonl"
    ran = bench(api, "--dataset-name", "sharegpt", "--dataset-path", str(data), "--num-prompts", "2",
                "--output-file", str(output))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(output.read_text())["total_output_tokens"] == 6


def test_failures_are_told(api):
    ran = bench(api, "--model", "no-such-model", "--num-prompts", "2", "--warmup-requests", "0")
    assert ran.returncode == 1
    assert "2 of 2 requests failed: HTTP 404" in ran.stderr
