"""Reconciler ``opencost``: its object is a cluster, whose OpenCost is read hour by hour."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings

from billing.models import OpenCostAnswer
from billing.services.opencost import read_cluster
from infra.models import ClusterEndpoint
from portal.kernel import ticks, workqueue
from portal.kernel.clock import utcnow
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import Claimed, Done, Mark, Outcome, RetryAfter

KIND = "opencost"


@workqueue.register(KIND, lease_seconds=300)
def reconcile(item: Claimed) -> Outcome:
    """Ask for the hours that are due; come again soon where more are, later where it did not answer."""
    done = read_cluster(item.object_id, scope=item.fenced)
    return Done() if done.again is None else RetryAfter(done.again, done.message)


@ticks.every(300, "billing.opencost_hours")
def opencost_hours() -> None:
    """An hour is over by the passing of time alone, so each OpenCost is looked at every five minutes."""
    clusters = ClusterEndpoint.objects.filter(
        role=ClusterEndpoint.Role.OPENCOST, paused=False, cluster__abandoned_at__isnull=True
    ).values_list("cluster_id", flat=True)
    workqueue.mark_many(Mark(KIND, pk, cluster_id=pk, cause="resync") for pk in clusters)


@ticks.every(86_400, "billing.opencost_forget")
def opencost_forget() -> None:
    """The bodies of answers are kept for some days, to look into what went wrong; what was read of them stays."""
    before = utcnow() - timedelta(days=settings.AIF_OPENCOST_RAW_DAYS)
    with system_scope("opencost_forget"):
        OpenCostAnswer.objects.filter(raw__isnull=False, asked_at__lt=before).update(raw=None)
