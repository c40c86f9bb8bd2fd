"""HTTP without a client library: what the tests send is what the server gets."""
import http.client
import json
import urllib.parse


class Reply:
    """A complete answer: status, headers (lower-case names), body."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def json(self):
        return json.loads(self.body)

    def events(self):
        """The payloads of a stream of server-sent events; JSON ones are parsed."""
        assert self.headers["content-type"].startswith("text/event-stream"), self.headers
        text = self.body.decode("utf-8")
        assert text.endswith("\n\n"), text[-200:]
        events = []
        for block in text[:-2].split("\n\n"):
            assert block.startswith("data: ") and "\n" not in block, block
            payload = block[len("data: "):]
            events.append(payload if payload == "[DONE]" else json.loads(payload))
        return events


class Api:
    def __init__(self, url, key=None):
        self.url = url
        self.key = key
        self.address = urllib.parse.urlsplit(url)

    def connect(self, timeout=120):
        return http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=timeout)

    def headers(self, extra=None):
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        headers.update(extra or {})
        return headers

    def request(self, method, path, body=None, headers=None):
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode("utf-8")
        connection = self.connect()
        try:
            connection.request(method, path, body=body, headers=self.headers(headers))
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, names, answer.read())
        finally:
            connection.close()

    def get(self, path, **kwargs):
        return self.request("GET", path, **kwargs)

    def post(self, path, body, **kwargs):
        return self.request("POST", path, body, **kwargs)

    def metrics(self):
        """Samples of /metrics by name with labels, as floats."""
        samples = {}
        for line in self.get("/metrics").body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                samples[name] = float(value)
        return samples

    def load(self):
        """How many generations run, and how many wait."""
        samples = self.metrics()
        return tuple(sum(value for name, value in samples.items() if name.startswith(gauge))
                     for gauge in ("tilewright_num_requests_running",
                                   "tilewright_num_requests_queued"))
