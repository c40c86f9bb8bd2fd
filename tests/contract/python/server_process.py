"""Servers that a test starts itself, for limits and shutdown."""
import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time

import pytest

from http_api import Api


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ServerProcess:
    def __init__(self, command, port):
        self.log = tempfile.TemporaryFile()
        command = [*command, "--host", "127.0.0.1", "--port", str(port)]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.api = Api(f"http://127.0.0.1:{port}")

    def output(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def wait_until_healthy(self, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.output()
            with contextlib.suppress(OSError):
                if self.api.get("/health").status == 200:
                    return
            time.sleep(0.05)
        raise AssertionError("not healthy:\n" + self.output())

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds=60):
        return self.process.wait(seconds)


@contextlib.contextmanager
def started(command, port):
    server = ServerProcess(command, port)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()
        server.log.close()


def setting(name):
    if name not in os.environ:
        pytest.skip(f"{name} is not set")
    return os.environ[name]


def started_server(*flags, port=None, model=None):
    """A server that may not be up yet, or may fail to start."""
    model = model or setting("TILEWRIGHT_MODEL")
    return started([setting("TILEWRIGHT_BINARY"), "serve", "--model-path", model, *flags],
                   port or free_port())


def started_router(*flags):
    """A router that may not be up yet, or may fail to start."""
    return started([setting("TILEWRIGHT_BINARY"), "router", *flags], free_port())


@contextlib.contextmanager
def running_server(*flags, model=None):
    with started_server(*flags, model=model) as server:
        server.wait_until_healthy()
        yield server
