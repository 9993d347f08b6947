"""Reconciler ``metering``: its object is a cluster. The watcher marks it when evidence changes."""

from __future__ import annotations

from billing.services.metering import meter_cluster
from infra.models import Cluster
from portal.kernel import ticks, workqueue
from portal.kernel.workqueue import Claimed, Done, Mark, Outcome, RetryAfter

KIND = "metering"


@workqueue.register(KIND, lease_seconds=150)
def reconcile(item: Claimed) -> Outcome:
    """Meter the cluster; come again at once where there was more than fits into one task."""
    metered = meter_cluster(item.object_id, scope=item.fenced)
    if metered.done:
        return Done()
    return RetryAfter(0, f"Hours up to {metered.final_until:%Y-%m-%d %H:%M} UTC are being written.")


@ticks.every(60, "billing.meter_hours")
def meter_hours() -> None:
    """An hour becomes final by the passing of time alone, so the clusters are looked at each minute."""
    clusters = Cluster.objects.filter(abandoned_at__isnull=True).values_list("pk", flat=True)
    workqueue.mark_many(Mark(KIND, pk, cause="resync") for pk in clusters)
