"""The work queue, the periodic tasks and the processes, as gauges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db import connection
from prometheus_client.core import Metric

from portal.kernel.heartbeat import SILENT_SECONDS
from portal.kernel.metrics.collect import gauge
from portal.kernel.workqueue.registry import registered

# Only rows that are waiting or worked on: parked ones, the most, are left out by the partial indexes.
_ITEMS = """
SELECT kind,
    count(*) FILTER (WHERE next_attempt_at <= now() AND (lease_until IS NULL OR lease_until < now())),
    count(*) FILTER (WHERE next_attempt_at > now() AND (lease_until IS NULL OR lease_until < now())),
    count(*) FILTER (WHERE lease_until >= now()),
    count(*) FILTER (WHERE stalled_at IS NOT NULL),
    extract(epoch FROM now() - min(next_attempt_at) FILTER (
        WHERE next_attempt_at <= now() AND (lease_until IS NULL OR lease_until < now()))),
    extract(epoch FROM now() - min(lease_until) FILTER (WHERE lease_until IS NOT NULL)),
    count(*) FILTER (WHERE attempts > 0)
FROM kernel_workitem WHERE next_attempt_at IS NOT NULL OR lease_until IS NOT NULL
GROUP BY kind ORDER BY kind
"""
NEEDED = ("beat", "watcher", "worker")
"""Kinds of processes without which something of the portal stands still."""
_HEARTBEATS = """
SELECT kind, count(*) FILTER (WHERE seen_at > now() - make_interval(secs => %s)),
    extract(epoch FROM now() - max(seen_at))
FROM kernel_heartbeat GROUP BY kind ORDER BY kind
"""
_TICKS = """
SELECT task, extract(epoch FROM now() - finished_at), CASE WHEN last_error = '' THEN 0 ELSE 1 END
FROM kernel_tickslot ORDER BY task
"""


def collect() -> Iterator[Metric]:
    """Depth, age and trouble by kind; nothing names a tenant."""
    items = _rows(_ITEMS)
    states = {"due": 1, "delayed": 2, "leased": 3, "stalled": 4, "failing": 7}
    yield gauge(
        "aif_work_items",
        "Items of the work queue. due: could be claimed now; delayed: back-off or a wait; failing: failed at least "
        "once in a row; stalled: eight times or more (also counted as due, delayed or leased).",
        ("kind", "state"),
        [((row[0], state), row[column]) for row in items for state, column in states.items()],
    )
    yield gauge(
        "aif_work_oldest_due_seconds",
        "For how long the longest due item has waited for a worker.",
        ("kind",),
        [((row[0],), 0 if row[5] is None else row[5]) for row in items],
    )
    yield gauge(
        "aif_work_oldest_lease_seconds",
        "Since when the oldest lease is held; above the kind's lease its worker died.",
        ("kind",),
        [((row[0],), _lease_age(row[0], row[6])) for row in items],
    )
    beats = _rows(_HEARTBEATS, [SILENT_SECONDS])
    # Who ends in order leaves no row: none of a kind that there has to be is a figure too.
    alive = dict.fromkeys(NEEDED, 0) | {row[0]: row[1] for row in beats}
    yield gauge(
        "aif_processes",
        "Processes that gave a sign of life lately.",
        ("kind",),
        [((kind,), count) for kind, count in sorted(alive.items())],
    )
    yield gauge(
        "aif_process_silent_seconds",
        "Since when nobody of the kind gave a sign of life; kind tasks: clock, broker and worker together.",
        ("kind",),
        [((row[0],), row[2]) for row in beats],
    )
    ticks = _rows(_TICKS)
    yield gauge(
        "aif_tick_finished_seconds",
        "Since when the periodic task has not finished a run.",
        ("task",),
        [((row[0],), row[1]) for row in ticks],
    )
    yield gauge("aif_tick_failed", "Whether its last run failed.", ("task",), [((row[0],), row[2]) for row in ticks])


def _lease_age(kind: str, since_its_end: Any) -> float | None:
    """A lease that ends in 30 s and was given for 90 s is held for 60 s."""
    reconciler = registered(kind)
    if since_its_end is None or reconciler is None:
        return None
    return max(0.0, float(since_its_end) + reconciler.lease_seconds)


def _rows(question: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(question, values)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found
