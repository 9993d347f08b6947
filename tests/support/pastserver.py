"""The small Prometheus of :mod:`tests.support.promql` behind HTTP, which may be told to misbehave."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.support.promql import Store


@dataclass
class PastServer:
    """``troubles``: (status, body, headers) that are answered first, in order. ``longest``: seconds of a window above
    which "too many samples" is answered to a question over time. ``asked``: all queries so far."""

    store: Store
    url: str = ""
    troubles: list[tuple[int, dict[str, object], dict[str, str]]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    longest: int = 0
    asked: list[str] = field(default_factory=list)
    known: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """Answers so far: the past does not change."""


@contextmanager
def serve(store: Store, port: int = 0) -> Generator[PastServer]:
    """It answers until the block ends."""
    server = PastServer(store)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(urlsplit(self.path).path, urlsplit(self.path).query)

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
            self._answer(urlsplit(self.path).path, text)

        def _answer(self, path: str, query: str) -> None:
            server.asked.append(query)
            if server.troubles:
                self._send(*server.troubles.pop(0))
                return
            long = [int(part.split("s")[0]) for part in query.split("%5B")[1:] if part.split("s")[0].isdigit()]
            if server.longest and any(length > server.longest for length in long):
                told = "query processing would load too many samples into memory in query execution"
                self._send(422, {"status": "error", "errorType": "execution", "error": told}, {})
                return
            if (path, query) not in server.known:
                server.known[path, query] = server.store.body(path, query)
            answer = json.loads(server.known[path, query])
            if server.warnings:
                answer["warnings"] = server.warnings
            self._send(200 if answer["status"] == "success" else 400, answer, {})

        def _send(self, status: int, body: dict[str, object], headers: dict[str, str]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
