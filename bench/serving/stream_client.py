"""One streamed completion from any server with OpenAI's /v1/completions, with its times. Python's
standard library alone: it has to work where the server does."""
import dataclasses
import http.client
import json
import time
import urllib.parse


@dataclasses.dataclass
class Timing:
    """Of one request; times in seconds of time.monotonic()."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    sent: float = 0
    events: list = dataclasses.field(default_factory=list)  # when each piece of text arrived
    end: float = 0
    problem: str = ""

    @property
    def ttft(self):
        return self.events[0] - self.sent

    @property
    def latency(self):
        return self.end - self.sent

    @property
    def tpot(self):
        """Per output token after the first; None for an answer of one token."""
        rest = self.output_tokens - 1
        return (self.events[-1] - self.events[0]) / rest if rest > 0 else None

    @property
    def gaps(self):
        return [later - earlier for earlier, later in zip(self.events, self.events[1:])]


class StreamClient:
    def __init__(self, base_url, model, api_key=None, timeout=3600):
        self.address = urllib.parse.urlsplit(base_url)
        self.model = model
        self.timeout = timeout
        self.headers = {"Content-Type": "application/json"}
        if api_key:
            self.headers["Authorization"] = f"Bearer {api_key}"

    def connect(self):
        kind = http.client.HTTPSConnection if self.address.scheme == "https" else http.client.HTTPConnection
        return kind(self.address.hostname, self.address.port, timeout=self.timeout)

    def path(self, endpoint):
        return self.address.path.rstrip("/") + endpoint

    def served_model(self):
        connection = self.connect()
        connection.request("GET", self.path("/v1/models"), headers=self.headers)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"GET /v1/models: HTTP {answer.status}: {body[:300]!r}")
        return json.loads(body)["data"][0]["id"]

    def complete(self, prompt, max_tokens, extra):
        """`prompt` is text or token ids. Problems become the timing's `problem`."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
                "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True, **extra}
        timing = Timing()
        connection = self.connect()
        try:
            timing.sent = time.monotonic()
            connection.request("POST", self.path("/v1/completions"), json.dumps(body), self.headers)
            answer = connection.getresponse()
            if answer.status != 200:
                timing.problem = f"HTTP {answer.status}: {answer.read(300)!r}"
            else:
                self._read(answer, timing)
        except (OSError, http.client.HTTPException, ValueError) as problem:
            timing.problem = f"{type(problem).__name__}: {problem}"
        finally:
            connection.close()
        return timing

    @staticmethod
    def _read(answer, timing):
        while line := answer.readline():
            if not line.startswith(b"data: {"):
                continue
            now = time.monotonic()
            event = json.loads(line[6:])
            if "error" in event:
                timing.problem = str(event["error"])
                return
            if event.get("choices") and event["choices"][0].get("text"):
                timing.events.append(now)
            if usage := event.get("usage"):
                timing.prompt_tokens = usage["prompt_tokens"]
                timing.output_tokens = usage["completion_tokens"]
        timing.end = time.monotonic()
        if not timing.events or not timing.output_tokens:
            timing.problem = "the stream ended without text or without usage"
