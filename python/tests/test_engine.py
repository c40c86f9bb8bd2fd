"""The package as its user has it: installed, with a small real model.

usage: python -m unittest discover -s python/tests      (TW_MODEL: the model's path)
"""
import asyncio
import concurrent.futures
import math
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import tilewright

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = os.environ.get("TW_MODEL", ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf")
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = {"temperature": 0, "max_new_tokens": 12}


class Adapters(unittest.TestCase):
    def test_requests_name_adapters(self):
        models = ROOT / ".cache/test-models"
        if not (models / "lora-mistral-all").exists():
            self.skipTest("tools/proxy/make_proxy.py --tests makes the adapters")
        with tilewright.Engine(models / "tiny-mistral", lora_paths={"all": models / "lora-mistral-all"},
                               max_lora_rank=16, max_total_tokens=1024) as engine:
            def ask(adapter):
                fields = {"lora_path": adapter} if adapter else {}
                return engine.generate(input_ids=[5, 6, 7], sampling_params=GREEDY, **fields)["output_ids"]
            plain, adapted = ask(None), ask("all")
            self.assertNotEqual(plain, adapted)
            engine.load_lora_adapter("some", models / "lora-mistral-some")
            self.assertNotEqual(ask("some"), adapted)
            engine.unload_lora_adapter("all")
            with self.assertRaises(tilewright.RequestError):
                ask("all")
            with self.assertRaises(tilewright.RequestError):
                engine.load_lora_adapter("other", models / "lora-glm4")


class WithEngine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = tilewright.Engine(MODEL, context_length=1024, max_total_tokens=4096)
        cls.addClassCleanup(cls.engine.shutdown)

    def test_generate(self):
        answer = self.engine.generate("The capital of France is", GREEDY)
        self.assertIn("Paris", answer["text"])
        self.assertEqual(answer["meta_info"]["completion_tokens"], 12)
        ids = self.engine.tokenize("The capital of France is")
        self.assertEqual(self.engine.generate(input_ids=ids, sampling_params=GREEDY)["text"], answer["text"])
        several = self.engine.generate(["The capital of France is", "One, two,"], GREEDY)
        self.assertEqual(several[0]["text"], answer["text"])
        self.assertEqual(len(several), 2)

    def test_logprobs(self):
        text = "The capital of France is Paris"
        found = self.engine.logprobs(text, top_logprobs_num=2)
        self.assertEqual(found["token_ids"], self.engine.tokenize(text))
        self.assertIsNone(found["logprobs"][0])
        self.assertGreater(found["logprobs"][-1], math.log(0.2), "Paris is likely")
        self.assertEqual(len(found["top"][-1]), 2)
        self.assertGreaterEqual(found["top"][-1][0][0], found["logprobs"][-1])
        self.assertEqual(self.engine.logprobs([text, "One"])[0]["logprobs"], found["logprobs"])

    def test_stream(self):
        whole = self.engine.generate("One, two, three,", GREEDY)["text"]
        texts = [item["text"] for item in self.engine.generate("One, two, three,", GREEDY, stream=True)]
        self.assertGreater(len(texts), 3)
        self.assertEqual(texts[-1], whole)
        for before, after in zip(texts, texts[1:]):
            self.assertTrue(after.startswith(before))

    def test_a_stream_that_is_left_ends_its_request(self):
        for _ in self.engine.generate("Once", {"max_new_tokens": 900, "ignore_eos": True}, stream=True):
            break
        for _ in range(1000):
            if self.engine.get_server_info()["internal_states"][0]["num_running_reqs"] == 0:
                return
        self.fail("it still runs")

    def test_chat(self):
        answer = self.engine.chat(QUESTION, temperature=0, max_completion_tokens=16)
        content = answer["choices"][0]["message"]["content"]
        self.assertGreater(len(content), 10)
        pieces = [chunk["choices"][0]["delta"].get("content") or ""
                  for chunk in self.engine.chat(QUESTION, stream=True, temperature=0, max_completion_tokens=16)]
        self.assertEqual("".join(pieces), content)

    def test_structured_output(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        text = self.engine.generate("A number as JSON: ", {**GREEDY, "json_schema": schema})["text"]
        self.assertRegex(text, r'^\{\s*"n"')

    def test_tasks_and_threads_equal_one_after_the_other(self):
        prompts = [f"{n} and {n} is" for n in range(8)]
        expected = [self.engine.generate(prompt, GREEDY)["text"] for prompt in prompts]

        async def together():
            async def streamed(prompt):
                text = ""
                async for item in await self.engine.async_generate(prompt, GREEDY, stream=True):
                    text = item["text"]
                return text
            whole = await asyncio.gather(*(self.engine.async_generate(prompt, GREEDY) for prompt in prompts))
            pieces = await asyncio.gather(*(streamed(prompt) for prompt in prompts))
            chat = await self.engine.async_chat(QUESTION, temperature=0, max_completion_tokens=16)
            return [answer["text"] for answer in whole], pieces, chat["choices"][0]["message"]["content"]

        whole, pieces, chat = asyncio.run(together())
        self.assertEqual(whole, expected)
        self.assertEqual(pieces, expected)
        self.assertGreater(len(chat), 10)
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            texts = list(threads.map(lambda prompt: self.engine.generate(prompt, GREEDY)["text"], prompts))
        self.assertEqual(texts, expected)

    def test_a_cancelled_task_ends_its_request(self):
        async def cancel():
            endless = {"max_new_tokens": 900, "ignore_eos": True}
            task = asyncio.create_task(self.engine.async_generate("Once", endless))
            await asyncio.sleep(0.1)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
        asyncio.run(cancel())

    def test_embeddings_and_scores(self):
        one, two = self.engine.embed(["a text", "another"])
        self.assertAlmostEqual(math.hypot(*one), 1, places=4)
        self.assertEqual(self.engine.embed("a text")[0], one)
        self.assertEqual(self.engine.encode("another"), {"embedding": two})
        self.assertEqual(len(self.engine.embed("a text", dimensions=8)[0]), 8)
        labels = [self.engine.tokenize(text)[0] for text in (" Paris", " Rome")]
        scores = self.engine.score("The capital of", [" France is", " Italy is"], labels, apply_softmax=True)
        self.assertGreater(scores[0][0], scores[0][1])
        self.assertGreater(scores[1][1], scores[1][0])

    def test_tokens(self):
        ids = self.engine.tokenize("Hello, world")
        self.assertEqual(self.engine.detokenize(ids), "Hello, world")
        self.engine.flush_cache()

    def test_bad_requests(self):
        with self.assertRaises(tilewright.RequestError) as raised:
            self.engine.generate("x", {"temperature": -1})
        self.assertEqual(raised.exception.status, 400)
        self.assertIn("temperature", raised.exception.param)
        with self.assertRaisesRegex(tilewright.RequestError, "context length"):
            self.engine.generate("a b " * 2000)
        with self.assertRaisesRegex(tilewright.RequestError, "messages"):
            list(self.engine.chat([], stream=True))


class Options(unittest.TestCase):
    def test_unknown_and_bad_options(self):
        with self.assertRaisesRegex(ValueError, "no-such-option"):
            tilewright.Engine(MODEL, no_such_option=1)
        with self.assertRaisesRegex(ValueError, "dtype int3"):
            tilewright.Engine(MODEL, dtype="int3")
        with self.assertRaisesRegex(ValueError, "tool-call-parser none"):
            tilewright.Engine(MODEL, tool_call_parser="none")
        with self.assertRaisesRegex(FileNotFoundError, "missing.gguf"):
            tilewright.Engine("/missing.gguf")
        with self.assertRaisesRegex(MemoryError, "max-total-tokens"):
            tilewright.Engine(MODEL, max_total_tokens=10**9)

    def test_after_the_end(self):
        engine = tilewright.Engine(MODEL, max_total_tokens=1024, threads=1, pin_threads=False)
        engine.shutdown()
        engine.shutdown()
        with self.assertRaisesRegex(ValueError, "shut down"):
            engine.generate("x")


class Package(unittest.TestCase):
    def test_the_command_is_there(self):
        command = shutil.which("tilewright", path=pathlib.Path(sys.executable).parent)
        self.assertIsNotNone(command)
        version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
        self.assertIn(tilewright.__version__, version)

    def test_the_batch_example(self):
        result = subprocess.run([sys.executable, ROOT / "python/examples/batch.py", MODEL],
                                capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count(" is -> "), 16)

    def test_a_program_may_end_with_an_engine(self):
        code = f"import tilewright; e = tilewright.Engine({str(MODEL)!r}, max_total_tokens=1024); " \
               "s = e.generate('a', {'max_new_tokens': 500}, stream=True); print(next(s)['text'] is not None)"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "True\n", ""))


if __name__ == "__main__":
    unittest.main()
