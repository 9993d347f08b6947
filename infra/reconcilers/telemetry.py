"""Reconciler ``telemetry``: its object is a cluster. Marked each minute, and when its endpoint is changed."""

from __future__ import annotations

from infra.models import ClusterEndpoint
from infra.selectors.clusters import cluster_list
from infra.services.endpoints import TELEMETRY
from infra.services.telemetry import telemetry_read
from portal.kernel import ticks, workqueue
from portal.kernel.workqueue import Claimed, Done, Mark, Outcome, RetryAfter

READ_SECONDS = 60


@workqueue.register(TELEMETRY, lease_seconds=180)
def reconcile(item: Claimed) -> Outcome:
    """Read what is new; come again at once where there was more than fits into one task."""
    read = telemetry_read(item.object_id, scope=item.fenced)
    return Done() if read.done else RetryAfter(read.retry or 0, read.message)


@ticks.every(READ_SECONDS, "infra.telemetry.read")
def mark_all() -> None:
    """Have the metrics of every connected cluster read, unless its endpoint is paused."""
    paused = ClusterEndpoint.objects.filter(role=ClusterEndpoint.Role.METRICS, paused=True).values("cluster_id")
    ids = cluster_list().exclude(pk__in=paused).values_list("pk", flat=True)
    workqueue.mark_many(Mark(TELEMETRY, pk, cluster_id=pk, cause="resync") for pk in ids)
