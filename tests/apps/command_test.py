"""Runs the tilewright command as a user does: good input, bad input, exit codes and messages.

usage: command_test.py TILEWRIGHT SOURCE_DIR
"""
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

TILEWRIGHT = sys.argv[1]
SOURCE = pathlib.Path(sys.argv[2])
MODEL = pathlib.Path(os.environ.get("TW_MODEL_DIR", SOURCE / ".cache/models")) / \
    "SmolLM2-135M-Instruct.Q4_1.gguf"
TEST_MODELS = SOURCE / ".cache/test-models"
TINY = TEST_MODELS / "tiny-llama-4bit"  # in bf16
PROMPT = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"


def run(*arguments, timeout=300, environment=None, stdin=None):
    return subprocess.run([TILEWRIGHT, *map(str, arguments)], capture_output=True, text=True,
                          timeout=timeout, env={**os.environ, **(environment or {})}, input=stdin)


def gguf(metadata=(), tensors=(), version=3, magic=b"GGUF"):
    """A small GGUF file; metadata values are strings or unsigned integers."""
    def string(text):
        return struct.pack("<Q", len(text)) + text.encode()
    data = magic + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata:
        data += string(key)
        data += struct.pack("<I", 8) + string(value) if isinstance(value, str) else \
            struct.pack("<II", 4, value)
    offset = 0
    for name, shape in tensors:
        data += string(name) + struct.pack("<I", len(shape))
        data += b"".join(struct.pack("<Q", dimension) for dimension in shape)
        data += struct.pack("<IQ", 0, offset)
        size = 4
        for dimension in shape:
            size *= dimension
        offset += (size + 31) // 32 * 32
    data += b"\0" * (-len(data) % 32)
    return data + b"\0" * offset


class Command(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tw_command_"))
        self.addCleanup(shutil.rmtree, self.folder)

    def expect_refused(self, result, *words):
        self.assertEqual(result.returncode, 2, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path


class GoodInput(Command):
    def test_an_adapter_changes_what_is_generated(self):
        model, adapter = TEST_MODELS / "tiny-mistral", TEST_MODELS / "lora-mistral-all"
        arguments = ("generate", model, "-p", "abc", "--max-tokens", "24", "--temperature", "0")
        plain = run(*arguments)
        adapted = run(*arguments, "--lora-path", adapter)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertEqual(adapted.returncode, 0, adapted.stderr)
        self.assertNotEqual(plain.stdout, adapted.stdout)
        self.expect_refused(run(*arguments, "--lora-path", self.folder), str(self.folder),
                            "adapter_config.json")
        self.expect_refused(run(*arguments, "--lora-path", TEST_MODELS / "lora-glm4"), "lora-glm4")

    def test_help_teaches(self):
        result = run("--help")
        self.assertEqual(result.returncode, 0)
        for command in ("serve", "generate", "chat", "bench", "plan", "inspect", "convert", "quantize"):
            self.assertIn(command, result.stdout)
            self.assertEqual(run(command, "--help").returncode, 0)
        self.assertIn("--max-total-tokens", run("serve", "--help").stdout)
        self.assertIn("tilewright", run("--version").stdout)

    def test_generate(self):
        result = run("generate", "--model-path", MODEL, "--prompt", PROMPT, "--temperature", 0,
                     "--max-new-tokens", 16)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Paris", result.stdout)

    def test_two_ranks_say_the_same_as_one(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("needs two processors")
        generate = ("generate", "--model-path", MODEL, "--prompt", PROMPT, "--temperature", 0,
                    "--max-new-tokens", 16, "--log-level", "info")
        one, two = run(*generate), run(*generate, "--numa", "2x1", "--tp", 2)
        self.assertEqual(two.returncode, 0, two.stderr)
        self.assertEqual(two.stdout, one.stdout)
        self.assertRegex(two.stdout + two.stderr, r"rank 0: 1 thread on CPUs \d+.*rank 1: 1 thread on")

    def test_a_draft_model_changes_nothing(self):
        generate = ("generate", "--model-path", MODEL, "--prompt", PROMPT, "--temperature", 0,
                    "--max-new-tokens", 16)
        drafted = run(*generate, "--speculative-algorithm", "STANDALONE",
                      "--speculative-draft-model-path", MODEL, "--speculative-num-steps", 3)
        self.assertEqual(drafted.returncode, 0, drafted.stderr)
        self.assertEqual(drafted.stdout, run(*generate).stdout)

    def test_generate_stops_before_a_stop_string(self):
        result = run("generate", "--model-path", MODEL, "--prompt", PROMPT, "--temperature", 0,
                     "--stop", "Paris")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("capital of France is", result.stdout)
        self.assertNotIn("Paris", result.stdout)

    def test_chat(self):
        result = run("chat", "--model-path", MODEL, "--temperature", 0, "--max-new-tokens", 20,
                     stdin="Hello, who are you?\n/clear\n/quit\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("help", result.stdout)

    def test_convert_gives_the_same_model(self):
        target = self.folder / "hf"
        result = run("convert", MODEL, target)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.expect_refused(run("convert", MODEL, target), "not empty", "--force")
        generate = ("generate", "--prompt", PROMPT, "--temperature", 0, "--max-new-tokens", 16,
                    "--model-path")
        folder, file = run(*generate, target), run(*generate, MODEL)
        self.assertEqual(folder.returncode, 0, folder.stderr)
        self.assertEqual(folder.stdout, file.stdout)
        inspected = run("inspect", target).stdout
        self.assertIn("model.layers.29.mlp.down_proj.weight", inspected)
        self.assertIn("BF16", inspected)

    def test_convert_with_force_leaves_nothing_of_an_older_checkpoint(self):
        target = self.folder / "hf"
        target.mkdir()
        for name in ("model-00001-of-00002.safetensors", "model.safetensors.index.json",
                     "chat_template.jinja"):
            (target / name).write_text("old")
        (target / "notes.txt").write_text("mine")
        result = run("convert", MODEL, target, "--force")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertFalse((target / "model-00001-of-00002.safetensors").exists())
        self.assertFalse((target / "model.safetensors.index.json").exists())
        self.assertEqual((target / "notes.txt").read_text(), "mine")
        self.assertEqual(run("inspect", target).returncode, 0)

    @unittest.skipUnless(TINY.exists(), "needs tools/proxy/make_proxy.py --tests")
    def test_quantize_writes_a_folder_that_serves(self):
        for name, form in (("w8a8_int8", "int-quantized"), ("fp8", "float-quantized"),
                           ("int4", "pack-quantized"), ("mxfp4", "mxfp4-pack-quantized")):
            target = self.folder / name
            quantize = ("quantize", "--model-path", TINY, "--quantization", name, "--output", target)
            result = run(*quantize, "--max-shard-size", 0.001)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.expect_refused(run(*quantize), name, "not empty", "--force")
            self.assertEqual(run(*quantize, "--force").returncode, 0)
            for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
                self.assertEqual((target / file).read_bytes(), (TINY / file).read_bytes())
            written = json.loads((target / "config.json").read_text())["quantization_config"]
            self.assertEqual(written["quant_method"], "compressed-tensors")
            self.assertIn("lm_head", written["ignore"])
            self.assertIn(f"compressed-tensors, {form}", run("inspect", target).stdout)
            generate = ("generate", "--prompt", "abc", "--temperature", 0, "--max-new-tokens", 8,
                        "--ignore-eos", "--model-path")
            folder, online = run(*generate, target), run(*generate, TINY, "--quantization", name)
            self.assertEqual(folder.returncode, 0, folder.stderr)
            self.assertEqual(folder.stdout, online.stdout)

    def test_inspect(self):
        result = run("inspect", MODEL)
        self.assertEqual(result.returncode, 0, result.stderr)
        for word in ("GGUF v3", "LlamaForCausalLM", "model.embed_tokens.weight", "Q4_1",
                     "smollm", "<|im_start|>"):
            self.assertIn(word, result.stdout)

    def test_bench(self):
        result = run("bench", "latency", "--model-path", MODEL, "--prompt-tokens", 32, "--output-tokens", 4,
                     "-r", 1, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater(json.loads(result.stdout)["decode_tokens_per_second"], 0)

    def test_bench_kernels(self):
        result = run("bench", "kernels", "--kernel", "q8_0", "--seconds", 0.001, "--n", 64, "--k", 256,
                     "--prefill-n", 64, "--prefill-k", 256, "--prefill-rows", 8, "--megabytes", 1, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(result.stdout)["rows"]
        self.assertEqual({row["phase"] for row in rows}, {"decode", "prefill"})
        self.assertTrue(all("q8_0" in row["kernel"] and row["per_second"] > 0 for row in rows))

    def test_plan(self):
        machine = self.folder / "machine.json"
        limits = {"read bandwidth": 100e9, "AVX2 fp32 FMA": 1e12, "AVX2 int8 maddubs": 4e12}
        machine.write_text(json.dumps({"memory bytes": 16 << 30, "memory nodes": 2, "1 threads": {},
                                       "8 threads": limits}))
        def plan(*flags):
            result = run("plan", MODEL, "--machine", machine, "--json", *flags)
            self.assertEqual(result.returncode, 0, result.stderr)
            return json.loads(result.stdout)
        one = plan()
        # 30 layers, 3 heads of 64 keys and values in bf16; 134.5 million weights, 5 bits each.
        self.assertEqual(one["kv_bytes_per_token"], 30 * 2 * 3 * 64 * 2)
        self.assertAlmostEqual(one["active_weights"], 134.5e6, delta=1e6)
        self.assertAlmostEqual(one["weight_bytes"], MODEL.stat().st_size, delta=10e6)
        self.assertAlmostEqual(one["tpot_seconds"], (one["bytes_per_token"] + 1088 * 23040) / 80e9, delta=1e-5)
        self.assertAlmostEqual(one["ttft_seconds"], 1024 * 2 * one["active_weights"] / 2e12, delta=1e-3)
        self.assertEqual((one["fits"], one["tensor_parallel_size"]), (True, 2))
        many = plan("--batch-size", 64, "--kv-cache-dtype", "fp8_e4m3")
        self.assertLess(many["kv_bytes_per_token"], one["kv_bytes_per_token"])
        self.assertGreater(many["output_tokens_per_second"], 5 * one["output_tokens_per_second"])
        self.assertFalse(plan("--batch-size", 1000, "--prompt-tokens", 4000)["fits"])
        text = run("plan", MODEL, "--machine", machine)
        self.assertIn("--tp 2", text.stdout)
        # 61 sums of 576 floats, one message to the other host each.
        hosts = plan("--nnodes", 2, "--link-gbps", 8, "--link-latency", 100)
        self.assertEqual((hosts["messages_per_step"], hosts["message_bytes_per_step"]), (61, 61 * 576 * 4))
        network = 61 * (100e-6 + 576 * 4 / 1e9)
        self.assertAlmostEqual(hosts["network_seconds_per_step"], network, delta=1e-9)
        self.assertAlmostEqual(hosts["tpot_seconds"], one["tpot_seconds"] / 2 + network, delta=1e-9)
        self.assertIn("--tp 4 --nnodes 2", run("plan", MODEL, "--machine", machine, "--nnodes", 2).stdout)

    def test_plan_refuses(self):
        machine = self.folder / "machine.json"
        machine.write_text('{"8 threads": {"read bandwidth": 1}}')
        self.expect_refused(run("plan", MODEL, "--machine", machine), "memory bytes")
        self.expect_refused(run("plan", MODEL, "--machine", self.folder / "none"), "cannot open")
        self.expect_refused(run("plan", self.folder / "none"), "none")

    def test_every_instruction_set_answers(self):
        for isa in ("scalar", "avx2", "avx512", "amx"):
            result = run("generate", "--model-path", MODEL, "--prompt", PROMPT, "--temperature", 0,
                         "--max-new-tokens", 6, environment={"TILEWRIGHT_ISA": isa})
            if result.returncode == 2:
                self.assertIn("this machine has no more than", result.stderr)
            else:
                self.assertIn("Paris", result.stdout, isa)


class BadInput(Command):
    def generate(self, path, *more, environment=None):
        return run("generate", "--model-path", path, "--prompt", "x", *more,
                   environment=environment)

    def test_flags(self):
        self.expect_refused(run())
        self.expect_refused(run("serve"), "--model-path")
        self.expect_refused(run("nonsense"))
        self.expect_refused(self.generate(MODEL, "--mem-fraction-static", "2"),
                            "--mem-fraction-static")
        self.expect_refused(self.generate(MODEL, "--threads", "-1"), "--threads")
        self.expect_refused(self.generate(MODEL, "--tp", "0"), "--tensor-parallel-size")
        self.expect_refused(self.generate(MODEL, "--tp", "2", "--numa", "1x1"), "--tp 2", "1 core")
        self.expect_refused(self.generate(MODEL, "--numa", "9999x1"), "--numa 9999x1", "may be used")
        self.expect_refused(self.generate(MODEL, "--cpu-bind", "0|1"), "--cpu-bind", "--tp 1")
        self.expect_refused(self.generate(MODEL, "--tp", "2", "--threads", "1"), "--threads 1")
        self.expect_refused(self.generate(MODEL, "--dtype", "int3"), "int3", "bfloat16")
        self.expect_refused(self.generate(MODEL, "--log-level", "loud"), "loud", "debug")
        self.expect_refused(self.generate(MODEL, "--log-format", "xml"), "xml", "json")
        self.expect_refused(self.generate(MODEL, "--temperature", "-1"), "temperature is -1")
        self.expect_refused(self.generate(MODEL, "--context-length", "100000"), "8192")
        self.expect_refused(self.generate(MODEL, "--page-size", "7"), "page")
        self.expect_refused(self.generate(MODEL, environment={"TILEWRIGHT_ISA": "neon"}), "neon",
                            "avx2")

    def test_places_of_experts(self):
        mixture = TEST_MODELS / "tiny-mixtral"
        ranks = ("--numa", "2x1", "--tp", "2", "--ep", "2")
        self.expect_refused(self.generate(TINY, *ranks), "--ep 2", "no experts")
        self.expect_refused(self.generate(mixture, "--ep", "2"), "--ep 2", "1 ranks")
        self.expect_refused(self.generate(mixture, *ranks, "--init-expert-location", "absent"),
                            "--init-expert-location absent", "cannot open")
        for content, word in ((b"{", "--init-expert-location"), (b"[]", "layers"),
                              (b'{"layers": 1}', "layers"),
                              (b'{"layers": {"model.layers.0.mlp": 1}}', "choices"),
                              (b'{"layers": {"model.layers.0.mlp": {"choices": [-1]}}}', "-1"),
                              (b'{"layers": {"model.layers.0.mlp": {"choices": ["a"]}}}', '"a"')):
            self.expect_refused(self.generate(mixture, *ranks, "--init-expert-location",
                                              self.write("experts.json", content)), word)

    def test_draft_models(self):
        draft = ("--speculative-draft-model-path", TEST_MODELS / "tiny-llama3")
        self.expect_refused(self.generate(MODEL, *draft), "STANDALONE and EAGLE3 alone")
        standalone = ("--speculative-algorithm", "STANDALONE")
        self.expect_refused(self.generate(MODEL, *standalone), "--speculative-draft-model-path")
        eagle = ("--speculative-algorithm", "EAGLE3")
        self.expect_refused(self.generate(MODEL, *eagle), "the head with --speculative-draft-model-path")
        self.expect_refused(self.generate(MODEL, *eagle, *draft), "tiny-llama3", "no EAGLE-3 head")
        self.expect_refused(self.generate(MODEL, "--speculative-algorithm", "NGRAM",
                                          "--speculative-eagle-topk", 4), "topk 4", "NGRAM")
        self.expect_refused(self.generate(MODEL, *standalone, *draft), "tiny-llama3", "token 0 is",
                            "same vocabulary")

    @unittest.skipUnless(TINY.exists(), "needs tools/proxy/make_proxy.py --tests")
    def test_mixtures_are_not_converted(self):
        target = self.folder / "hf"
        self.expect_refused(run("convert", TINY.with_name("tiny-mixtral.gguf"), target), "all experts")
        self.assertFalse(target.exists())

    @unittest.skipUnless(TINY.exists(), "needs tools/proxy/make_proxy.py --tests")
    def test_what_cannot_be_quantized(self):
        def quantize(path, *more, name="int4"):
            return run("quantize", "--model-path", path, "--quantization", name, "--output",
                       self.folder / "out", *more)
        self.expect_refused(run("quantize", "--model-path", TINY), "--quantization")
        self.expect_refused(quantize(TINY, name="int3"), "int3", "w8a8_int8")
        self.expect_refused(quantize(TINY, "--group-size", "48"), "--group-size", "multiple of 32")
        self.expect_refused(quantize(TINY, "--group-size", "64"), "q_proj", "96 columns",
                            "groups of 64")
        self.expect_refused(quantize(TINY, "--threads", "-1"), "--threads")
        self.expect_refused(quantize(MODEL), "GGUF", "tilewright convert")
        self.expect_refused(quantize(self.folder / "none"), "no such file")
        self.expect_refused(run("quantize", "--model-path", TINY, "--quantization", "fp8", "--output",
                                TINY), "same folder")
        self.assertFalse((self.folder / "out").exists())
        self.assertEqual(quantize(TINY).returncode, 0)
        self.expect_refused(run("quantize", "--model-path", self.folder / "out", "--quantization",
                                "fp8", "--output", self.folder / "twice"), "already quantized",
                            "compressed-tensors")

    def test_errors_follow_the_log_format(self):
        result = self.generate(self.folder / "no.gguf", "--log-format", "json")
        entry = json.loads(result.stderr.splitlines()[-1])
        self.assertEqual((result.returncode, entry["level"]), (2, "error"))
        self.assertIn("no such file", entry["message"])

    def test_too_little_memory(self):
        self.expect_refused(self.generate(MODEL, "--max-total-tokens", 10**9),
                            "--max-total-tokens", "GiB")

    def test_prompt_longer_than_the_context(self):
        self.expect_refused(
            run("generate", "--model-path", MODEL, "--prompt", "-", stdin="a b " * 6000),
            "context length is 8192")

    def test_prompt_that_is_no_utf8(self):
        result = subprocess.run([TILEWRIGHT, "generate", "--model-path", MODEL, "--prompt",
                                 b"\xff\xfe"], capture_output=True, timeout=300)
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"UTF-8", result.stderr)

    def test_missing_and_wrong_files(self):
        self.expect_refused(self.generate(self.folder / "no.gguf"), "no.gguf", "no such file")
        self.expect_refused(self.generate(self.folder), "config.json")
        self.expect_refused(self.generate(self.write("text.gguf", b"hello world")), "text.gguf",
                            "not a GGUF file")
        self.expect_refused(self.generate(self.write("empty.gguf", b"")), "empty.gguf")
        self.expect_refused(self.generate(self.write("v9.gguf", gguf(version=9))), "version 9")

    def test_truncated_real_file(self):
        head = MODEL.read_bytes()[:3_000_000]
        for size in (10, 1000, 100_000, 3_000_000):
            path = self.write("cut.gguf", head[:size])
            self.expect_refused(self.generate(path), "cut.gguf")

    def test_unknown_architecture_lists_the_known(self):
        path = self.write("other.gguf", gguf([("general.architecture", "mamba")]))
        self.expect_refused(self.generate(path), "mamba", "LlamaForCausalLM")

    def test_missing_tensor_and_wrong_shape(self):
        metadata = [("general.architecture", "llama"), ("llama.embedding_length", 64),
                    ("llama.feed_forward_length", 64), ("llama.block_count", 1),
                    ("llama.attention.head_count", 2), ("llama.context_length", 64)]
        path = self.write("bare.gguf", gguf(metadata))
        self.expect_refused(self.generate(path), "bare.gguf")
        path = self.write("shape.gguf", gguf(metadata, [("token_embd.weight", (32, 10))]))
        self.expect_refused(self.generate(path), "model.embed_tokens.weight", "[10, 32]",
                            "expected [10, 64]")

    def test_unsupported_quantization_names_itself(self):
        (self.folder / "config.json").write_text(json.dumps({
            "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 64,
            "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 10,
            "quantization_config": {"quant_method": "unheard-of"}}))
        header = b"{}"
        (self.folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
        self.expect_refused(self.generate(self.folder), "unheard-of")

    def test_pooling(self):
        serve = ("serve", "--model-path", MODEL, "--port", "0", "--pooling")
        self.expect_refused(run(*serve, "max"), "--pooling max", "last, mean, cls")

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.expect_refused(run("serve", "--model-path", MODEL, "--port", port), str(port))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
