"""GuideLLM, vLLM's load generator."""
import json
import os
import pathlib
import subprocess
import sys


def test_synchronous_requests(url, model, tokenizer, tmp_path):
    output = tmp_path / "report.json"
    ran = subprocess.run(
        [str(pathlib.Path(sys.executable).parent / "guidellm"), "run", "--disable-console-interactive",
         "--backend", f"kind=openai_http,target={url},api_key=key,model={model}",
         "--profile", "kind=synchronous", "--constraint", "kind=max_requests,count=4",
         "--tokenizer", f"kind=huggingface_auto,model={tokenizer}",
         "--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=8", "--output", f"kind=json,path={output}"],
        capture_output=True, text=True, timeout=600, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    totals = json.loads(output.read_text())["benchmarks"][0]["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (4, 0), totals
