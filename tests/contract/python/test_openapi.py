"""/openapi.json is true: a generator of requests from the document finds no answer that it does not
describe, no body accepted that its schemas forbid, and no 500."""
import os
import pathlib
import subprocess
import sys

import pytest

from server_process import running_server

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Small, so that texts without a limit end soon.
MODEL = ROOT / ".cache/test-models/tiny-llama3"
CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance",
          "response_schema_conformance", "negative_data_rejection", "unsupported_method",
          "allow_header_conformance", "ignored_auth"]
# What else is valid there depends on the request as a whole or on the server's state: the schemas'
# descriptions say it.
ACCEPTED = "/v1/embeddings|/rerank|/tokenize|/detokenize|/abort_request|/v1/models|/health|/get_|/metrics"
SECONDS = int(os.environ.get("TILEWRIGHT_SCHEMA_SECONDS", 8))


def generate_requests(url, folder, *flags):
    """The same requests each time, as many as there is time for."""
    program = pathlib.Path(sys.executable).parent / "schemathesis"
    command = [str(program), "run", url + "/openapi.json", "--header", "Authorization: Bearer key",
               "--phases", "examples,coverage,fuzzing", "--continue-on-failure", "--max-time", str(SECONDS),
               "--generation-deterministic", "--request-timeout", "20", "--no-color",
               "--exclude-path-regex", "^/page/", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60 + SECONDS, cwd=folder)


@pytest.fixture(scope="module")
def url():
    if not MODEL.exists():
        pytest.skip(f"{MODEL} is missing; tools/proxy/make_proxy.py --tests makes it")
    with running_server("--api-key", "key", "--threads", "1", model=MODEL) as server:
        yield server.api.url
        assert server.api.get("/health").status == 200


def test_answers_are_as_described(url, tmp_path):
    ran = generate_requests(url, tmp_path, "--checks", ",".join(CHECKS))
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr


def test_valid_requests_are_accepted(url, tmp_path):
    ran = generate_requests(url, tmp_path, "--checks", "positive_data_acceptance", "--include-path-regex", ACCEPTED)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr
