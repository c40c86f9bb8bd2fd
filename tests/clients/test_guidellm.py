"""GuideLLM, vLLM's load generator."""
import json
import os
import pathlib
import subprocess
import sys


def test_synchronous_requests(url, model, tokenizer, tmp_path):
    output = tmp_path / "report.json"
    ran = subprocess.run(
        [str(pathlib.Path(sys.executable).parent / "guidellm"), "benchmark", "run", "--target", url,
         "--model", model, "--backend-kwargs", json.dumps({"api_key": "key"}), "--profile", "synchronous",
         "--max-requests", "4", "--data", "prompt_tokens=32,output_tokens=8", "--processor", str(tokenizer),
         "--output-path", str(output)],
        capture_output=True, text=True, timeout=600, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    benchmark = json.loads(output.read_text())["benchmarks"][0]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (4, 0), totals
