"""The exporters' pages over HTTP, and what tests and demonstrations may order from them.

| method, path | body | what |
| --- | --- | --- |
| GET /metrics/dcgm | | dcgm-exporter's text for all nodes; `?node=NAME`: that node's |
| GET /metrics/kube-state | | kube-state-metrics' text |
| GET /healthz | | 200 once the cluster has been read |
| GET /cards | | which card and MIG instance each pod holds |
| POST /nodes/NAME/silent, /heard | | the node's dcgm-exporter answers no more; it answers again |
| POST /nodes/NAME/unmapped, /mapped | | it tells of no pod, as where it can't reach the kubelet; it does again |
| POST /cards/UUID/xid | {"xid": 79} | the card's last XID error, 0: none |
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from controlplane.exporter import state
from controlplane.exporter.mirror import FOLLOWED, Mirror
from simulator import metrics
from simulator.objects import name_of, namespace_of

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def serve(mirror: Mirror, port: int) -> ThreadingHTTPServer:
    """A server on loopback (port 0: any free one); the caller runs it."""

    class Handler(_Handler):
        """One request."""

    Handler.mirror = mirror
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    return server


class _Handler(BaseHTTPRequestHandler):
    mirror: Mirror
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # the base class's name
        """Pages."""
        url = urlsplit(self.path)
        with self.mirror.lock:
            match url.path:
                case "/metrics/dcgm":
                    self._reply(200, self._dcgm(parse_qs(url.query).get("node", [])), PROMETHEUS_TEXT)
                case "/metrics/kube-state":
                    self._reply(200, state.text(self.mirror), PROMETHEUS_TEXT)
                case "/healthz":
                    missing = sorted(set(FOLLOWED) - self.mirror.listed)
                    self._reply(503 if missing else 200, json.dumps({"not read yet": missing}))
                case "/cards":
                    self._reply(200, json.dumps(cards_held(self.mirror)))
                case _:
                    self._reply(404, json.dumps({"error": f"there is no page {url.path}"}))

    def do_POST(self) -> None:  # the base class's name
        """Orders."""
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = self.path.strip("/").split("/")
        with self.mirror.lock:
            problem = self._order(parts, json.loads(raw or b"{}"))
        self._reply(400 if problem else 200, json.dumps({"error": problem} if problem else {}))

    def _order(self, parts: list[str], body: Any) -> str:
        """What is wrong with the order; empty where it was carried out."""
        mirror = self.mirror
        match parts:
            case ["nodes", node, _] if node not in mirror.devices:
                return f"there is no node {node}"
            case ["nodes", node, "silent"]:
                mirror.broken[node] = "lost"
            case ["nodes", node, "heard"]:
                mirror.broken.pop(node, None)
            case ["nodes", node, "unmapped"]:
                mirror.unmapped.add(node)
            case ["nodes", node, "mapped"]:
                mirror.unmapped.discard(node)
            case ["cards", uuid, "xid"]:
                if not isinstance(body.get("xid"), int):
                    return 'the body must be {"xid": NUMBER}'
                mirror.xids[uuid] = body["xid"]
            case _:
                return f"there is no order {self.path}; see the docstring of controlplane/exporter/server.py"
        return ""

    def _dcgm(self, nodes: list[str]) -> str:
        names = [name for name in metrics.exporting(self.mirror) if not nodes or name in nodes]
        return metrics.text(self.mirror, self.mirror.meter, names)

    def _reply(self, code: int, text: str, kind: str = "application/json") -> None:
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        """Requests are not logged."""


def cards_held(mirror: Mirror) -> list[dict[str, Any]]:
    """A row for each card and MIG instance that a pod holds."""
    return [
        {"node": node, "uuid": held.uuid, "instance": held.instance, "container": held.container,
         "namespace": namespace_of(pod), "pod": name_of(pod), "uid": uid}
        for node, devices in mirror.devices.items()
        for uid, rows in devices.held.items()
        for held in rows
        if (pod := mirror.pods.all.get(uid)) is not None
    ]  # fmt: skip
