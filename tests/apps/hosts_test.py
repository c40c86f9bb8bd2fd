"""Several hosts as a user starts them: processes of mpirun on this machine.

usage: hosts_test.py TILEWRIGHT SOURCE_DIR
"""
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

TILEWRIGHT = sys.argv[1]
SOURCE = pathlib.Path(sys.argv[2])
MODEL = pathlib.Path(os.environ.get("TW_MODEL_DIR", SOURCE / ".cache/models")) / \
    "SmolLM2-135M-Instruct.Q4_1.gguf"
TINY = SOURCE / ".cache/test-models/tiny-llama3"
PROMPT = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
HAS_MPI = (pathlib.Path(TILEWRIGHT).parent / "libtilewright_mpi.so").exists() and \
    shutil.which("mpirun") is not None
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def mpirun(*commands, options=()):
    """A command line that starts a process for each of the commands."""
    line = ["mpirun", "--bind-to", "none", *options]
    for index, command in enumerate(commands):
        line += [":"] if index else []
        line += ["-n", "1", TILEWRIGHT, *map(str, command)]
    return line


def run(line, timeout=120):
    return subprocess.run(line, capture_output=True, text=True, timeout=timeout, env=ENVIRONMENT)


def generate(*flags, model=MODEL, dtype="float32"):
    return ["generate", "--model-path", model, "--prompt", PROMPT, "--temperature", 0,
            "--max-new-tokens", 16, "--dtype", dtype, "--max-total-tokens", 512, *flags]


class WithoutMpirun(unittest.TestCase):
    def refused(self, *flags):
        result = run([TILEWRIGHT, *map(str, generate(*flags))])
        self.assertEqual(result.returncode, 2, result.stderr)
        return result.stderr

    def test_flags_that_cannot_be(self):
        for flags, words in (
                (("--nnodes", 2, "--tp", 3), ("--tp 3 --nnodes 2", "multiple of 2")),
                (("--nnodes", 2, "--tp", 2, "--speculative-algorithm", "NEXTN"), ("NEXTN",)),
                (("--nnodes", 2, "--tp", 2, "--enable-eplb"), ("--enable-eplb",)),
                (("--nnodes", 0), ("--nnodes",))):
            message = self.refused(*flags)
            for word in words:
                self.assertIn(word, message)

    def test_too_few_processes_or_no_mpi(self):
        message = self.refused("--nnodes", 2, "--tp", 2)
        self.assertIn("mpirun -n 2" if HAS_MPI else "libopenmpi-dev", message)


@unittest.skipUnless(HAS_MPI, "no MPI: install openmpi-bin and libopenmpi-dev, and build again")
class Hosts(unittest.TestCase):
    def test_the_text_is_that_of_one_host(self):
        one = run([TILEWRIGHT, *map(str, generate())])
        self.assertEqual(one.returncode, 0, one.stderr)
        for ranks in (2, 4):
            command = generate("--nnodes", 2, "--tp", ranks)
            two = run(mpirun(command, command))
            self.assertEqual(two.returncode, 0, two.stderr)
            self.assertEqual(two.stdout, one.stdout, f"{ranks} ranks")

    def test_hosts_that_differ_are_refused_by_all(self):
        flags = ("--nnodes", 2, "--tp", 2)
        for other, words in (
                (generate(*flags, dtype="bfloat16"), ("host 1", "--dtype", "bfloat16", "float32")),
                (generate(*flags, model=TINY), ("host 1", "the model's configuration")),
                (generate(*flags, model="/nothing"), ("host 1", "/nothing"))):
            result = run(mpirun(generate(*flags), other))
            self.assertNotEqual(result.returncode, 0)
            for word in words:
                self.assertIn(word, result.stderr)


@unittest.skipUnless(HAS_MPI, "no MPI: install openmpi-bin and libopenmpi-dev, and build again")
class Failures(unittest.TestCase):
    """A server on two hosts, of which the second is stopped or killed."""

    def start(self, *options):
        command = ["serve", "--model-path", MODEL, "--port", 0, "--nnodes", 2, "--tp", 2,
                   "--dist-timeout", 2, "--max-total-tokens", 4096]
        self.group = subprocess.Popen(mpirun(command, command, options=options),
                                      stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self.addCleanup(self.end)
        self.log, self.port = [], None
        ready = threading.Event()

        def read():
            for line in self.group.stderr:
                self.log.append(line)
                if "serving" in line:
                    self.port = int(line.split("http://127.0.0.1:")[1].split()[0].split("/")[0])
                    ready.set()
            ready.set()
        self.reader = threading.Thread(target=read)
        self.reader.start()
        ready.wait(60)
        self.assertIsNotNone(self.port, "".join(self.log))
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.group.pid)],
                                  capture_output=True, text=True).stdout.split()
        self.other = int(sorted(children, key=int)[-1])

    def end(self):
        for pid in (self.other, self.group.pid):
            try:
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.group.wait()
        self.reader.join()
        self.group.stderr.close()

    def stream(self):
        """Begins a long generation; returns its connection after the first event."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": "Once", "max_tokens": 3000, "stream": True,
             "ignore_eos": True}), {"Content-Type": "application/json"})
        self.addCleanup(connection.close)
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        self.assertIn(b"data:", response.readline())
        return response

    def expect_end(self, response, begin):
        rest = response.read().decode()
        self.assertIn("host 1", rest)
        self.assertIn('"error"', rest)
        code = self.group.wait(timeout=30)
        self.assertLess(time.monotonic() - begin, 20)
        self.reader.join()
        self.assertIn("host 1 has not answered", "".join(self.log))
        return code

    def test_a_host_that_hangs(self):
        self.start()
        response = self.stream()
        begin = time.monotonic()
        os.kill(self.other, signal.SIGSTOP)
        self.assertNotEqual(self.expect_end(response, begin), 0)

    def test_a_host_that_dies(self):
        # Or mpirun would end the others at once.
        self.start("--enable-recovery")
        response = self.stream()
        begin = time.monotonic()
        os.kill(self.other, signal.SIGKILL)
        self.expect_end(response, begin)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
