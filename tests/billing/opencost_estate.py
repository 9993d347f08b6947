"""The estate with an OpenCost on its cluster: two hours of the 1st of November and three of the 2nd were read.

On the 1st a quarter of a card (HAMi) counts as a whole one, and a card of ``nobodys`` is the same; one pod that nobody
knows has a card. On the 2nd two whole cards are the same, at 3.00 instead of our 2.50.
"""

from __future__ import annotations

from datetime import timedelta

from billing.models import OpenCostAnswer, OpenCostSource
from billing.services.opencost import read_cluster, source_ensure
from infra.models import ClusterEndpoint
from portal.kernel.clock import HOUR, time_source
from portal.kernel.scoping import system_scope
from tests.billing.estate import DAY, Estate
from tests.billing.factories import T0
from tests.billing.opencost_fake import FakeOpenCost, Price, endpoint


def read_opencost(estate: Estate) -> None:
    """Connect it, and read those hours."""
    cluster = estate.cluster
    endpoint(cluster)
    with system_scope("test"):
        source_ensure(cluster.pk)
        OpenCostSource.objects.filter(cluster=cluster).update(currency="EUR", first_hour=T0)
    first = FakeOpenCost(
        pods={("v", "share"): 1, ("nobodys", "lost"): 1, ("v", "unknown"): 1}, nodes={"node-0": 8, "hami-0": 80},
        storage={"v": "0.5"},
    )  # fmt: skip
    with time_source(lambda: T0 + 2 * HOUR + timedelta(minutes=20)):
        read_cluster(cluster.pk, opener=first.open)
    with system_scope("test"):
        OpenCostAnswer.objects.update(asked=9)  # nobody looks again
    ClusterEndpoint.objects.filter(cluster=cluster).update(read_until=T0 + DAY)
    second = FakeOpenCost(pods={("v", "train"): 2}, price=Price(gpu="3"), broken={T0 + DAY + 3 * HOUR: (500, b"boom")})
    with time_source(lambda: T0 + DAY + 4 * HOUR + timedelta(minutes=20)):
        read_cluster(cluster.pk, opener=second.open)
