"""A server of the small real model, for clients that users bring."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/contract/python"))
from server_process import running_server  # noqa: E402

NAME = "served-model"


@pytest.fixture(scope="session")
def url():
    with running_server("--served-model-name", NAME, "--api-key", "key", "--context-length", "2048") as server:
        yield server.api.url
        assert server.api.get("/health").status == 200


@pytest.fixture(scope="session")
def model():
    return NAME


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    """A folder with the model's tokenizer, as Transformers reads it."""
    folder = tmp_path_factory.mktemp("converted") / "model"
    subprocess.run([os.environ["TILEWRIGHT_BINARY"], "convert", os.environ["TILEWRIGHT_MODEL"], str(folder)],
                   check=True, capture_output=True)
    return folder
