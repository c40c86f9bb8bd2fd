"""lm-evaluation-harness over /v1/completions, with a task from local files: log-likelihoods of answers
(echo and logprobs) and generation until a stop string."""
import json
import os
import pathlib
import subprocess
import sys

CHOICES = """\
task: local_capitals
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: multiple_choice
doc_to_text: "The capital of {{{{country}}}} is"
doc_to_choice: [" Paris", " Rome", " Madrid"]
doc_to_target: answer
metric_list: [{{metric: acc}}]
"""
GENERATION = """\
task: local_words
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: generate_until
doc_to_text: "The capital of {{{{country}}}} is"
doc_to_target: "{{{{capital}}}}"
generation_kwargs: {{until: ["."], max_gen_toks: 8, temperature: 0}}
metric_list: [{{metric: exact_match}}]
"""
ROWS = [{"country": "France", "capital": "Paris", "answer": 0}, {"country": "Italy", "capital": "Rome", "answer": 1},
        {"country": "Spain", "capital": "Madrid", "answer": 2}]


def test_a_local_task(url, model, tokenizer, tmp_path):
    data = tmp_path / "capitals.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in ROWS))
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "capitals.yaml").write_text(CHOICES.format(data=data))
    (tasks / "words.yaml").write_text(GENERATION.format(data=data))
    arguments = f"model={model},base_url={url}/v1/completions,tokenizer={tokenizer},num_concurrent=2,max_length=512"
    ran = subprocess.run(
        [str(pathlib.Path(sys.executable).parent / "lm_eval"), "--model", "local-completions", "--model_args", arguments,
         "--tasks", "local_capitals,local_words", "--include_path", str(tasks), "--output_path", str(tmp_path / "out")],
        capture_output=True, text=True, timeout=600,
        env={**os.environ, "OPENAI_API_KEY": "key", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"})
    assert ran.returncode == 0, ran.stderr[-3000:]
    results = json.loads(next((tmp_path / "out").rglob("results*.json")).read_text())["results"]
    assert results["local_capitals"]["acc,none"] == 1.0
    assert "exact_match,none" in results["local_words"]
