"""Metrics of processes that serve no pages (workers, watchers): a small server, only where a setting asks for it."""

from __future__ import annotations

import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from django.conf import settings
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from portal.kernel.metrics.access import may_read
from portal.kernel.metrics.collect import scrape_process

logger = logging.getLogger(__name__)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """``/metrics`` for whoever may read them; 404 for all else."""
        allowed = may_read(self.headers.get("Authorization", ""), str(self.client_address[0]))
        body = scrape_process() if allowed and self.path == "/metrics" else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", CONTENT_TYPE_LATEST if body else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library's name
        """Scrapes are not news."""


def serve() -> ThreadingHTTPServer | None:
    """Serve this process's metrics at ``AIF_METRICS_LISTEN`` (``host:port``), in a thread; ``None``: it is not set.

    An address that is taken is told and costs the metrics, not the process.
    """
    host, _, port = settings.AIF_METRICS_LISTEN.rpartition(":")
    if not port:
        return None
    try:
        server = ThreadingHTTPServer((host.strip("[]"), int(port)), _Handler)
    except OSError as error:
        logger.warning("metrics are not served", extra={"address": settings.AIF_METRICS_LISTEN, "why": str(error)})
        return None
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
