"""Models by their hub's name, from a fake hub: what is fetched, kept, resumed, checked and refused.

usage: hub_test.py TILEWRIGHT
"""
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

from fake_hub import FakeHub

TILEWRIGHT = sys.argv[1]
CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 64,
          "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 10}


def safetensors(num_floats=1000):
    header = json.dumps({"model.norm.weight": {"dtype": "F32", "shape": [num_floats],
                                               "data_offsets": [0, 4 * num_floats]}}).encode()
    numbers = struct.pack(f"<{num_floats}f", *(i % 251 for i in range(num_floats)))
    return struct.pack("<Q", len(header)) + header + numbers


def gguf(architecture):
    """No tensors, one key: enough to be opened."""
    def string(text):
        return struct.pack("<Q", len(text)) + text.encode()
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("general.architecture") + \
        struct.pack("<I", 8) + string(architecture)


FOLDER = {"README.md": b"# not needed", "config.json": json.dumps(CONFIG).encode(),
          "tokenizer_config.json": b"{}", "model.safetensors": safetensors(),
          "pytorch_model.bin": b"not needed"}


class Hub(unittest.TestCase):
    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="tw_hub_"))
        self.addCleanup(shutil.rmtree, self.home)
        self.hub = FakeHub()
        self.addCleanup(self.hub.close)
        self.hub.add("org/model", FOLDER)
        self.repository = self.home / "hub/models--org--model"

    def run_command(self, *arguments, restricted=None, **environment):
        variables = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and "proxy" not in k.lower()}
        variables.update({"HF_HOME": str(self.home), "HF_ENDPOINT": self.hub.url, **environment})
        return subprocess.run([TILEWRIGHT, *arguments], capture_output=True, text=True, timeout=60, env=variables,
                              preexec_fn=restricted, restore_signals=False)

    def inspect(self, model, *more, **environment):
        return self.run_command("inspect", model, *more, **environment)

    def expect_refused(self, result, *words, code=2):
        self.assertEqual(result.returncode, code, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def expect_model(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("model.norm.weight", result.stdout)

    def incomplete(self):
        return list(self.repository.glob("blobs/*.incomplete"))

    def test_a_folder_comes_as_hugging_face_keeps_it(self):
        self.expect_model(self.inspect("org/model"))
        snapshot = self.repository / "snapshots/c0ffee"
        self.assertEqual(sorted(p.name for p in snapshot.iterdir()),
                         ["config.json", "model.safetensors", "tokenizer_config.json"])
        self.assertEqual((self.repository / "refs/main").read_text(), "c0ffee")
        for path in snapshot.iterdir():
            self.assertTrue(path.is_symlink())
            self.assertEqual(path.resolve().parent, (self.repository / "blobs").resolve())
            self.assertEqual(path.read_bytes(), FOLDER[path.name])
        self.assertFalse(self.incomplete())

    def test_commands_that_write_folders_fetch_too(self):
        for command in (("convert", "org/model", str(self.home / "out")),
                        ("quantize", "--model-path", "org/model", "-q", "fp8", "-o", str(self.home / "out"))):
            result = self.run_command(*command)
            # The model has no layers; what is missing is said of the fetched one.
            self.assertIn("snapshots/c0ffee", result.stderr)
            self.assertNotIn("org/model:", result.stderr)

    @unittest.skipUnless(shutil.which("openssl"), "makes the certificate")
    def test_certificates_that_are_trusted(self):
        certificate = self.home / "certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=hub", "-days", "1",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", certificate, "-out", self.home / "c.pem"],
                       check=True, capture_output=True)
        with open(certificate, "ab") as file:
            file.write((self.home / "c.pem").read_bytes())
        hub = FakeHub(certificate)
        self.addCleanup(hub.close)
        hub.add("org/model", FOLDER)
        self.expect_refused(self.inspect("org/model", HF_ENDPOINT=hub.url), "certificate")
        self.expect_model(self.inspect("org/model", HF_ENDPOINT=hub.url,
                                       REQUESTS_CA_BUNDLE=str(self.home / "c.pem")))

    def test_what_is_there_is_not_fetched_again(self):
        self.expect_model(self.inspect("org/model"))
        del self.hub.requests[:]
        self.expect_model(self.inspect("org/model"))
        self.assertEqual([path for _, path, _ in self.hub.requests], ["/api/models/org/model/revision/main"])
        # A new commit fetches what changed.
        changed = {**FOLDER, "tokenizer_config.json": b'{"a": 1}'}
        self.hub.add("org/model", changed, commit="c2")
        self.expect_model(self.inspect("org/model"))
        self.assertEqual(self.hub.downloads(), [])
        self.assertEqual((self.repository / "refs/main").read_text(), "c2")

    def test_offline_and_without_a_connection_the_cache_serves(self):
        self.expect_refused(self.inspect("org/model", HF_HUB_OFFLINE="1"), "org/model", "cache", "HF_HUB_OFFLINE")
        nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9"}
        self.expect_refused(self.inspect("org/model", **nowhere), "cannot be asked", "127.0.0.1:9")
        self.expect_model(self.inspect("org/model"))
        del self.hub.requests[:]
        self.expect_model(self.inspect("org/model", HF_HUB_OFFLINE="1"))
        self.expect_model(self.inspect("org/model", "--revision", "c0ffee", HF_HUB_OFFLINE="1"))
        self.assertEqual(self.hub.requests, [])
        self.expect_model(self.inspect("org/model", **nowhere))

    def test_broken_connections_go_on_where_they_broke(self):
        self.hub.cut_after["model.safetensors"] = 1234
        self.expect_model(self.inspect("org/model"))
        self.assertEqual([ranges for _, ranges in self.hub.downloads()], [None, "bytes=1234-"])

    def test_partial_files_of_earlier_tries_are_used(self):
        self.expect_model(self.inspect("org/model"))
        blob = (self.repository / "snapshots/c0ffee/model.safetensors").resolve()
        data = blob.read_bytes()
        for partial, ranges in ((data[:1000], "bytes=1000-"), (b"wrong" + data[5:1000], "bytes=1000-"),
                                (data + b"too long", f"bytes={len(data) + 8}-")):
            shutil.rmtree(self.repository / "snapshots")
            blob.unlink()
            blob.with_name(blob.name + ".incomplete").write_bytes(partial)
            del self.hub.requests[:]
            result = self.inspect("org/model")
            if partial.startswith(b"wrong"):
                self.expect_refused(result, "SHA-256", blob.name)
                self.assertFalse(self.incomplete(), "what is wrong is thrown away")
                result = self.inspect("org/model")
            self.expect_model(result)
            self.assertEqual(self.hub.downloads()[0][1], ranges)

    def test_servers_without_ranges(self):
        self.hub.ignore_ranges = True
        self.hub.cut_after["model.safetensors"] = 1234
        self.expect_model(self.inspect("org/model"))

    def test_damaged_bytes_are_refused(self):
        self.hub.damage.add("model.safetensors")
        self.expect_refused(self.inspect("org/model"), "model.safetensors", "SHA-256")
        self.assertFalse((self.repository / "refs/main").exists())

    def test_a_busy_hub_is_asked_again(self):
        self.hub.busy = 3
        self.expect_model(self.inspect("org/model"))
        self.assertEqual(self.hub.busy, 0)

    def test_gated_missing_and_unknown(self):
        self.hub.gated.add("org/model")
        self.expect_refused(self.inspect("org/model"), "org/model", "gated", "HF_TOKEN")
        self.expect_refused(self.inspect("org/model", HF_TOKEN="hf_wrong"), "gated")
        self.expect_model(self.inspect("org/model", HF_TOKEN="hf_secret"))
        self.assertEqual(self.hub.tokens_elsewhere, [], "the token is for the hub alone")
        self.expect_refused(self.inspect("org/none"), "org/none", "no such model", "HF_TOKEN")
        self.expect_refused(self.inspect("org/model", "--revision", "v9", HF_TOKEN="hf_secret"), "--revision")
        self.expect_refused(self.inspect("org/model", "--revision", "../x"), "--revision ../x")

    def test_revisions(self):
        self.hub.add("org/model", {**FOLDER, "generation_config.json": b'{"top_k": 7}'}, "v2", "c2")
        self.assertNotIn("top_k", self.inspect("org/model").stdout)
        self.assertIn('"top_k":7', self.inspect("org/model", "--revision", "v2").stdout)
        self.assertEqual((self.repository / "refs/v2").read_text(), "c2")

    def test_gguf_files_by_tag(self):
        self.hub.add("org/model", {"m-Q4_0.gguf": gguf("llama"), "m-Q8_0.gguf": gguf("qwen2")})
        self.expect_refused(self.inspect("org/model"), "several", "Q4_0, Q8_0")
        self.expect_refused(self.inspect("org/model:Q2_K"), "Q2_K", "Q4_0, Q8_0")
        self.expect_refused(self.inspect("org/model:q8_0"), "snapshots/c0ffee/m-Q8_0.gguf", "qwen2.embedding_length")
        self.assertEqual(len(self.hub.downloads()), 1)

    def test_names_that_lead_out_of_the_folder(self):
        self.hub.add("org/model", {**FOLDER, "../../evil": b"x"})
        self.expect_refused(self.inspect("org/model"), "leads out")
        self.assertFalse(list(self.home.rglob("evil")))

    def test_files_that_cannot_grow_are_named(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        result = self.run_command("inspect", "org/model", restricted=limit)
        self.expect_refused(result, ".incomplete", "cannot write", "too large", code=1)

    def test_paths_stay_paths(self):
        self.expect_refused(self.inspect(str(self.home / "none")), "none")
        self.assertEqual(self.hub.requests, [])

    def test_commands_take_the_name_as_it_is(self):
        result = self.run_command("generate", "org/model", "--prompt", "x", "--log-level", "info")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("model.embed_tokens.weight", result.stderr, "it got as far as loading")
        self.assertIn("downloading org/model at main", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
