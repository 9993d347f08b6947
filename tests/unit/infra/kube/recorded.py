"""The recorded bodies of an API server, and a server that gives them back byte for byte."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).resolve().parents[3] / "data" / "recorded"
INDEX: dict[str, dict[str, Any]] = {
    entry["file"]: entry for entry in json.loads((RECORDED / "api-index.json").read_text())
}


@dataclass(frozen=True)
class Canned:
    """An answer of the fake server."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def canned(file: str) -> Canned:
    """What was recorded in ``file``, with its status and headers."""
    entry = INDEX[file]
    return Canned(entry["status"], tuple(map(tuple, entry["headers"])), (RECORDED / file).read_bytes())


class Replay:
    """Answers each request with the next of ``answers`` and remembers what was asked."""

    def __init__(self, *answers: Canned) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.url = ""


@contextmanager
def serve(replay: Replay) -> Generator[Replay]:
    """Run the server on a free port of the loopback address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            replay.seen.append((self.command, self.path, dict(self.headers), body))
            answer = replay.answers.pop(0)
            self.send_response(answer.status)
            chunked = False
            for key, value in answer.headers:
                chunked = chunked or key.lower() == "transfer-encoding"
                self.send_header(key, value)
            if not chunked:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if not chunked:
                self.wfile.write(answer.body)
                return
            # In pieces that cut lines apart, as a network does.
            for start in range(0, len(answer.body), 1000):
                piece = answer.body[start : start + 1000]
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler._answer)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    replay.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield replay
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
