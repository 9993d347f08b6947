"""A small HTTP server that answers as a test says, for clients of Prometheus and OpenCost.

with answering() as server:
    server.say("/api/v1/query", body={"status": "success", …})
    server.say("/api/v1/query", status=503, body=b"starting")     # from now on
    server.asked[0].query["query"]
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Asked:
    """A request as it came. ``query`` holds the last value of each key, also of a posted form."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """What to answer. ``pause``: seconds before each ``piece`` bytes of the body; ``cut``: end after so many bytes."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0
    pause: float = 0.0
    piece: int = 1
    cut: int | None = None


Rule = Answer | Callable[[Asked], Answer]


class AnsweringServer(ThreadingHTTPServer):
    """Answers by path; 404 for what nobody said."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[Asked] = []
        self.rules: dict[str, Rule] = {}
        self.scheme = "http"
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self.scheme = "https"

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def say(self, path: str, rule: Rule | None = None, **answer: Any) -> None:
        """From now on answer a path so; a ``body`` that is no bytes is sent as JSON."""
        if rule is None:
            body = answer.get("body", b"")
            if not isinstance(body, bytes):
                answer["body"] = json.dumps(body).encode()
                answer.setdefault("headers", {"Content-Type": "application/json"})
            rule = Answer(**answer)
        self.rules[path] = rule

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: AnsweringServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self._answer(parts.path, parts.query)

    def do_POST(self) -> None:
        self._answer(urlsplit(self.path).path, self.rfile.read(int(self.headers["Content-Length"])).decode())

    def _answer(self, path: str, query: str) -> None:
        values = {key: found[-1] for key, found in parse_qs(query).items()}
        asked = Asked(self.command, path, values, {key.lower(): value for key, value in self.headers.items()})
        self.server.asked.append(asked)
        rule = self.server.rules.get(path, Answer(404, b"not found\n"))
        answer = rule(asked) if callable(rule) else rule
        time.sleep(answer.wait)
        self.send_response(answer.status)
        for key, value in answer.headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        body = answer.body if answer.cut is None else answer.body[: answer.cut]
        if not answer.pause:
            self.wfile.write(body)
            return
        for at in range(0, len(body), answer.piece):
            time.sleep(answer.pause)
            self.wfile.write(body[at : at + answer.piece])
            self.wfile.flush()

    def log_message(self, *args: Any) -> None:
        """Silent."""


@contextlib.contextmanager
def answering(context: ssl.SSLContext | None = None) -> Iterator[AnsweringServer]:
    """A running server; with a context it speaks TLS."""
    server = AnsweringServer(context)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
