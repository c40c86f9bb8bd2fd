"""What deploy/ says about the server is true: metrics, flags, paths, and the build's commands."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"


def serve_flags():
    binary = os.environ.get("TILEWRIGHT_BINARY")
    if not binary:
        pytest.skip("TILEWRIGHT_BINARY is not set")
    text = subprocess.run([binary, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--[a-z][a-z-]+", text))


def test_the_dashboard_shows_metrics_that_exist(api):
    dashboard = json.loads((DEPLOY / "grafana/tilewright.json").read_text())
    exposed = {name.split("{")[0] for name in api.metrics()}
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [variable["query"] for variable in dashboard["templating"]["list"]]
    named = set(re.findall(r"\btilewright_\w+", " ".join(queries)))
    assert len(named) > 15
    assert named <= exposed, named - exposed
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_flags_in_deployments_exist():
    known = serve_flags()
    for path in sorted(DEPLOY.rglob("*")):
        if path.suffix not in (".yaml", ".service") and path.name != "Dockerfile":
            continue
        for line in path.read_text().splitlines():
            if "tilewright" in line and "serve" in line or "args:" in line or "timeout" in line.lower():
                named = set(re.findall(r"--[a-z][a-z-]+", line))
                assert named <= known, f"{path.name}: {named - known}"


def test_probes_ask_paths_that_answer(api):
    manifest = (DEPLOY / "kubernetes/tilewright.yaml").read_text()
    paths = set(re.findall(r"path: (/[a-z_]+)", manifest)) - {"/models"}
    assert paths == {"/health", "/metrics"}
    for path in paths:
        assert api.request("GET", path, headers={"Authorization": ""}).status == 200


def test_the_image_is_built_as_the_makefile_builds():
    dockerfile = (DEPLOY / "docker/Dockerfile").read_text()
    makefile = (ROOT / "Makefile").read_text()
    assert "cmake --preset release" in dockerfile and "cmake --preset $(PRESET)" in makefile
    assert "cmake --build --preset release" in dockerfile and "cmake --build --preset $(PRESET)" in makefile
    assert "tools/setup.sh build" in dockerfile
    assert '"${1:-}" = build' in (ROOT / "tools/setup.sh").read_text()
    assert re.search(r"^USER 10001$", dockerfile, re.M)
    for options in re.findall(r"-D(TW_\w+)=", dockerfile):
        assert f"option({options} " in (ROOT / "CMakeLists.txt").read_text()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.M):
        for source in sources.split():
            assert (ROOT / source).exists(), source


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_the_unit_is_one(tmp_path):
    # systemd-analyze wants the program to be there.
    unit = (DEPLOY / "systemd/tilewright.service").read_text()
    path = tmp_path / "tilewright.service"
    path.write_text(unit.replace("/usr/local/bin/tilewright", shutil.which("true")))
    checked = subprocess.run(["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True)
    assert "tilewright.service" not in checked.stderr, checked.stderr
    assert checked.returncode == 0, checked.stderr
