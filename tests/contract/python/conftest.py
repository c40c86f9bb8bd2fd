"""The server under test is given by TILEWRIGHT_URL (and TILEWRIGHT_API_KEY); see ../run.sh."""
import os
import pathlib
import sys

import openai
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from http_api import Api  # noqa: E402


@pytest.fixture(scope="session")
def api():
    url = os.environ.get("TILEWRIGHT_URL")
    if not url:
        pytest.exit("TILEWRIGHT_URL is not set; tests/contract/run.sh starts a server and sets it",
                    returncode=2)
    return Api(url.rstrip("/"), os.environ.get("TILEWRIGHT_API_KEY"))


@pytest.fixture(scope="session")
def client(api):
    # Retries would hide what the server answered.
    return openai.OpenAI(base_url=api.url + "/v1", api_key=api.key or "none", max_retries=0,
                         timeout=120)


@pytest.fixture(scope="session")
def model(client):
    return client.models.list().data[0].id
