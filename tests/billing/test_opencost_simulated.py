"""The demonstration's OpenCosts: connected through the API server's proxy of a running simulator, told, and read on."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from billing.models import OpenCostAnswer, OpenCostRow, OpenCostSource, UnitCost
from billing.opencost.client import OpenCostClient
from billing.services.opencost import read_cluster
from infra.models import ClusterEndpoint
from infra.outbound import open_endpoint
from portal.demo.fleet import clusters_ensure, list_once
from portal.demo.opencost import opencost_ensure
from portal.demo.people import teams_ensure
from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.clock import HOUR, hour_start, time_source, utcnow
from portal.kernel.scoping import system_scope
from tests.support.simulator import SimulatorProcess, simulated_fleet

__all__ = ["simulated_fleet"]
pytestmark = pytest.mark.django_db(transaction=True)
ADMIN = Actor(kind="user", name="platform-admin", platform_role=PLATFORM_ADMIN)


def test_the_demonstration_has_figures_beside_its_own(simulated_fleet: SimulatorProcess) -> None:
    teams_ensure(ADMIN, members=False)
    one = simulated_fleet["gpu-fra-1"]
    facts = {
        "gpu-fra-1": {
            "kubeconfig": str(one.kubeconfig), "observe_kubeconfig": str(one.observe_kubeconfig), "server": one.server,
        }
    }  # fmt: skip
    clusters = clusters_ensure(facts, ADMIN)
    list_once(clusters)
    cluster = clusters["gpu-fra-1"]
    now = utcnow().replace(microsecond=0)
    opencost_ensure(clusters, now - timedelta(days=20), now, ADMIN)
    endpoint = ClusterEndpoint.objects.select_related("cluster").get(cluster=cluster, role="opencost")
    assert (endpoint.via, endpoint.product, endpoint.read_until) == ("proxy", "opencost", hour_start(now))
    with system_scope("test"):
        told = OpenCostAnswer.objects.filter(cluster=cluster)
        assert set(told.values_list("source", "accepted", "currency")) == {("demo", True, "EUR")}
        assert OpenCostRow.objects.filter(namespace="t-ml-team", gpu_hours__gt=0).exists()
        gpu = UnitCost.objects.filter(cluster=cluster, resource="gpu").values_list("price", flat=True)
        assert set(gpu) == {Decimal("2.5")}
    # From here on the simulated OpenCost itself is asked, through the proxy, by the product's own client.
    later = hour_start(now) + HOUR + timedelta(minutes=20)
    with time_source(lambda: later), open_endpoint(endpoint) as http:
        client = OpenCostClient(http)
        assert client.healthy()
        hour = client.hour(hour_start(now))
        assert hour.assets is not None
        assert hour.assets.nodes
    with time_source(lambda: later):
        assert read_cluster(cluster.pk).hours == 1
    with system_scope("test"):
        assert OpenCostAnswer.objects.get(cluster=cluster, hour=hour_start(now)).source == "opencost"
        assert OpenCostSource.objects.get(cluster=cluster).currency == "EUR"
    # Doing it again tells nothing twice.
    count = OpenCostAnswer.objects.count()
    opencost_ensure(clusters, now - timedelta(days=20), now, ADMIN)
    assert OpenCostAnswer.objects.count() == count
