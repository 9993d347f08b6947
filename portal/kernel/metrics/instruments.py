"""What a process counts by itself: requests that it answered, reconciles that it ran.

Where several processes share one address (``uvicorn --workers 4``) ``PROMETHEUS_MULTIPROC_DIR`` names an empty folder;
they then count into files there, and whichever is asked tells the sum (prometheus_client, multiprocess mode).
"""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.multiprocess import MultiProcessCollector

_OWN = CollectorRegistry()
_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

HTTP_SECONDS = Histogram(
    "aif_http_request_seconds",
    "Requests that were answered, by the address's pattern (never the address itself) and class of status.",
    ["method", "route", "status"],
    buckets=_BUCKETS,
    registry=_OWN,
)
RECONCILE_SECONDS = Histogram(
    "aif_reconcile_seconds",
    "Runs of a reconciler; outcome: done, retry, failed, lost (its lease was taken over).",
    ["kind", "outcome"],
    buckets=(*_BUCKETS, 60.0),
    registry=_OWN,
)


def counted() -> CollectorRegistry:
    """The registry to be told from: of this process, or of all that share the folder."""
    if not os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        return _OWN
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry
