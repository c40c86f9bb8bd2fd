"""A server that speaks as much of the Hugging Face hub's protocol as downloads need: the list of a
revision's files, redirects from /resolve/ to another origin, ranges, refusals, and failures on demand.
"""
import hashlib
import json
import re
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeHub:
    """Two origins, as the hub and its content network are. Tests change the attributes."""

    def __init__(self, certificate=None):
        """`certificate`: file with a certificate and its key, for HTTPS."""
        self.files = {}  # {(repository, revision): {name: bytes}}
        self.commits = {}  # {(repository, revision): commit}
        self.gated = set()  # repositories that need the token
        self.token = "hf_secret"
        self.lfs = (".safetensors", ".gguf")
        self.requests = []  # (method, path, range header)
        self.tokens_elsewhere = []  # Authorization headers that the content network saw
        self.cut_after = {}  # {name: bytes after which the connection breaks, once}
        self.damage = set()  # names whose bytes come wrong
        self.ignore_ranges = False
        self.busy = 0  # answers of 503 before the next good one, to all but lists of files
        self.servers = [ThreadingHTTPServer(("127.0.0.1", 0), self.handler(is_content))
                        for is_content in (False, True)]
        for server in self.servers:
            server.daemon_threads = True
            if certificate:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate)
                server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        scheme = "https" if certificate else "http"
        self.url, self.content_url = (f"{scheme}://127.0.0.1:{s.server_address[1]}" for s in self.servers)

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def add(self, repository, files, revision="main", commit="c0ffee"):
        for key in ((repository, revision), (repository, commit)):
            self.files[key] = files
            self.commits[key] = commit

    def downloads(self):
        """What the content network was asked for: (path, range header)."""
        return [(path, ranges) for method, path, ranges in self.requests
                if method == "GET" and path.startswith("/content/")]

    def handler(hub, is_content):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments):
                pass

            def do_HEAD(self):
                self.answer()

            def do_GET(self):
                self.answer()

            def reply(self, status, headers=(), body=b"", length=None):
                self.send_response(status)
                for name, value in dict(headers).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def refuse(self, status, code):
                self.reply(status, {"X-Error-Code": code}, b'{"error": "refused"}')

            def answer(self):
                hub.requests.append((self.command, self.path, self.headers.get("Range")))
                if hub.busy > 0 and not self.path.startswith("/api/"):
                    hub.busy -= 1
                    return self.reply(503)
                if is_content:
                    if self.headers.get("Authorization"):
                        hub.tokens_elsewhere.append(self.headers["Authorization"])
                    name = re.fullmatch(r"/content/([^/]+/[^/]+)/([^/]+)/(.+)", self.path)
                    return self.content(*name.groups())
                listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", self.path)
                resolve = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path)
                repository, revision = (listing or resolve).groups()[:2]
                if repository in hub.gated and self.headers.get("Authorization") != f"Bearer {hub.token}":
                    return self.refuse(401, "GatedRepo")
                if not any(key[0] == repository for key in hub.files):
                    return self.refuse(401, "RepoNotFound")
                files = hub.files.get((repository, revision))
                if files is None:
                    return self.refuse(404, "RevisionNotFound")
                if listing:
                    body = {"sha": hub.commits[repository, revision],
                            "siblings": [{"rfilename": name} for name in files]}
                    return self.reply(200, body=json.dumps(body).encode())
                self.resolve(repository, revision, files, resolve[3])

            def resolve(self, repository, revision, files, name):
                if name not in files:
                    return self.refuse(404, "EntryNotFound")
                data = files[name]
                if not name.endswith(hub.lfs):
                    etag = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
                    return self.reply(200, {"ETag": f'"{etag}"'}, data)
                self.reply(302, {"X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"',
                                 "X-Linked-Size": str(len(data)), "ETag": '"of-the-redirect"',
                                 "Location": f"{hub.content_url}/content/{repository}/{revision}/{name}"})

            def content(self, repository, revision, name):
                data = hub.files[repository, revision][name]
                if name in hub.damage:
                    data = bytes(len(data))
                begin = 0
                if self.headers.get("Range") and not hub.ignore_ranges:
                    begin = int(re.fullmatch(r"bytes=(\d+)-", self.headers["Range"])[1])
                    if begin >= len(data):
                        return self.reply(416)
                cut = hub.cut_after.pop(name, None)
                rest = data[begin:]
                self.reply(206 if begin else 200, body=rest if cut is None else rest[:cut], length=len(rest))
                if cut is not None:
                    self.close_connection = True

        return Handler
