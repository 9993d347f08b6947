"""Reconciler ``rebuild``: its object is a run through a cluster's history. One bounded window a time, gently."""

from __future__ import annotations

import time

from django.conf import settings

from infra.models import ClusterEndpoint, Rebuild
from infra.outbound import EndpointError, open_endpoint
from infra.prometheus import PrometheusClient, PrometheusError
from infra.services.rebuilding import (
    Asking,
    PartialAnswerError,
    oldest_sample,
    read_window,
    store_reach,
    store_trouble,
    store_window,
)
from infra.services.rebuilds import WORK_KIND
from portal.kernel import workqueue
from portal.kernel.workqueue import Claimed, Done, Outcome, RetryAfter

NO_ENDPOINT_SECONDS = 60.0


@workqueue.register(WORK_KIND, lease_seconds=900)
def reconcile(item: Claimed) -> Outcome:
    """Find how far the history reaches, then read and store the next window. Between two windows as long is waited as
    the limit on queries a minute asks for."""
    rebuild = Rebuild.objects.filter(pk=item.object_id).select_related("cluster").first()
    if rebuild is None or rebuild.state not in (Rebuild.State.PENDING, Rebuild.State.RUNNING):
        return Done()
    if rebuild.cluster.abandoned_at is not None:
        return Done()
    endpoint = ClusterEndpoint.objects.filter(cluster=rebuild.cluster, role=ClusterEndpoint.Role.METRICS).first()
    if endpoint is None or endpoint.paused:
        return RetryAfter(NO_ENDPOINT_SECONDS, "The cluster's Prometheus is paused, or was taken away.")
    began = time.monotonic()
    asking: Asking | None = None
    try:
        with open_endpoint(endpoint) as client:
            asking = Asking(PrometheusClient(client, endpoint.matchers))
            if rebuild.state == Rebuild.State.PENDING:
                oldest = oldest_sample(asking, rebuild.from_at, rebuild.until_at)
                with item.fenced():
                    row: Rebuild | None = store_reach(rebuild.pk, oldest, asking.count)
            else:
                window = read_window(rebuild, asking)
                with item.fenced():
                    row = store_window(rebuild.pk, window)
    except (PrometheusError, EndpointError, PartialAnswerError) as error:
        with item.fenced():
            pause = store_trouble(rebuild.pk, error, asking.count if asking else 0)
        return Done() if pause is None else RetryAfter(pause, str(error))
    if row is None or row.state != Rebuild.State.RUNNING:
        return Done()
    return RetryAfter(_rest(asking.count, time.monotonic() - began))


def _rest(queries: int, seconds: float) -> float:
    """How long to wait after so many queries that took so long."""
    return max(0.0, 60.0 * queries / settings.AIF_HISTORY_QUERIES_PER_MINUTE - seconds)
