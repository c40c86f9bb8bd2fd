#!/usr/bin/env python3
"""Checks that the documentation speaks of things that are there.

    docs_test.py TILEWRIGHT_BINARY SOURCE_DIR

Links lead to files; `tilewright COMMAND --flag` names a command and a flag of it, flags anywhere in
text or tables belong to some command; `make VERB` names a verb; docs/metrics.md and
router.md list exactly the metrics of the source; commands in blocks marked ```sh test run and succeed.
"""
import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

BINARY, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODEL = pathlib.Path(os.environ.get("TW_MODEL_DIR", ROOT / ".cache/models")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
PAGES_SERVER = "127.0.0.1:30000"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(\w*)( test)?\n(.*?)^```", re.M | re.S)
COMMAND = re.compile(r"\btilewright +([a-z]+)\b((?:[^\n|;&`]|\\\n)*)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
# Pages on the project's tools name flags of these as well.
FOREIGN = {"docs/performance.md", "docs/install.md", "docs/tuning.md", "docs/models.md", "docs/extending.md",
           "docs/parallelism.md", "README.md"}


def help_of(*command):
    return subprocess.run([BINARY, *command, "--help"], capture_output=True, text=True, check=True).stdout


def commands():
    """-> {command: its flags, those of its own subcommands included}"""
    flags = {}
    for name in subcommands():
        flags[name] = set(FLAG.findall(help_of(name)))
        for nested in subcommands(name):
            flags[name] |= set(FLAG.findall(help_of(name, nested)))
    return flags


def subcommands(*command):
    listed = help_of(*command).partition("Subcommands:")[2]
    return re.findall(r"^  ([a-z]+)\b", listed, re.M)


@contextlib.contextmanager
def served(folder):
    """-> HOST:PORT of a server of MODEL"""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [BINARY, "serve", MODEL, "--port", address.rpartition(":")[2], "--profile-dir", folder,
               "--max-total-tokens", "4096"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while server.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/health"):
                break
            time.sleep(0.1)
        yield address
    finally:
        server.kill()
        server.wait()


class Docs(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.commands = commands()
        cls.flags = set().union(*cls.commands.values()) | {"--version", "--help"}

    def pages(self):
        for path in PAGES:
            yield path.relative_to(ROOT).as_posix(), path, path.read_text()

    def test_links_lead_somewhere(self):
        for name, path, text in self.pages():
            for target in LINK.findall(text):
                if re.match(r"[a-z]+:", target) or target.startswith("#"):
                    continue
                self.assertTrue((path.parent / target.split("#")[0]).exists(), f"{name}: {target}")

    def test_commands_and_their_flags_exist(self):
        found = 0
        for name, _, text in self.pages():
            code = "\n".join(block for _, _, block in BLOCK.findall(text))
            code += "\n".join(re.findall(r"`([^`\n]+)`", text))
            for command, rest in COMMAND.findall(code):
                self.assertIn(command, self.commands, f"{name}: tilewright {command}")
                unknown = set(FLAG.findall(rest.split(" #")[0])) - self.commands[command] - {"--help"}
                self.assertFalse(unknown, f"{name}: tilewright {command}")
                found += 1
        self.assertGreater(found, 5)

    def test_flags_in_text_exist(self):
        for name, _, text in self.pages():
            if name in FOREIGN or name.startswith("docs/decisions"):
                continue
            prose = BLOCK.sub("", text)
            for span in re.findall(r"`(--[^`\n]+)`", prose):
                self.assertLessEqual(set(FLAG.findall(span)), self.flags, name)

    def test_verbs_exist(self):
        verbs = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
        for name, _, text in self.pages():
            for verb in re.findall(r"(?:^|`)make ([a-z][a-z-]*)", text, re.M):
                self.assertIn(verb, verbs, name)

    def test_every_metric_is_described(self):
        sources = [*(ROOT / "src/server").glob("metrics*.cc"), *(ROOT / "src/router").glob("*metrics.cc")]
        source = "".join(path.read_text() for path in sources)
        pages = "".join((ROOT / "docs" / page).read_text() for page in ("metrics.md", "router.md"))
        described = set(re.findall(r"^\| `(tilewright_\w+)` \|", pages, re.M))
        self.assertEqual(described, set(re.findall(r'"(tilewright_\w+)"', source)))

    def test_marked_commands_succeed(self):
        """With MODEL for a model, FOLDER for what they write, and a server where pages have it on :30000."""
        with tempfile.TemporaryDirectory(prefix="tw_docs_") as folder, served(folder) as address:
            for name, _, text in self.pages():
                for language, marked, block in BLOCK.findall(text):
                    if language == "sh" and marked:
                        with self.subTest(page=name, block=block):
                            self.run_block(block, folder, address)

    def run_block(self, block, folder, address):
        for written, meant in (("MODEL", str(MODEL)), ("FOLDER", f"{folder}/written"), (PAGES_SERVER, address)):
            block = re.sub(rf"\b{re.escape(written)}\b", meant, block)
        # Of a server that refuses, curl tells by its status alone.
        script = f'tilewright() {{ "{BINARY}" "$@"; }}\ncurl() {{ command curl -sS --fail-with-body "$@"; }}\n'
        ran = subprocess.run(["bash", "-ec", script + block], cwd=folder, capture_output=True, text=True,
                             timeout=300)
        self.assertEqual(ran.returncode, 0, f"{block}\n{ran.stdout}{ran.stderr}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
