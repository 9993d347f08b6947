"""Where a cluster has no Prometheus its exporters are asked themselves, through the API server's proxy."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.models import Cluster, Device, DeviceSighting, PodObservation, TelemetryHour, TelemetrySource
from infra.services.telemetry import telemetry_read
from infra.services.telemetry_conditions import MAPPED
from portal.demo.fleet import list_once
from portal.kernel.clock import time_source
from portal.kernel.conditions import get_condition
from portal.kernel.scoping import system_scope
from tests.cluster.backends import SimulatorBackend
from tests.cluster.conftest import PATIENCE
from tests.support.simulator import SimulatedCluster, SimulatorProcess, fresh_simulator

__all__ = ["fresh_simulator"]

pytestmark = pytest.mark.django_db(transaction=True)

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train-0", "namespace": "default", "annotations": {"sim.aifactory.dev/gpu-util": "40"}},
    "spec": {
        "containers": [
            {"name": "main", "image": "registry.example.org/train:1", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
        ]
    },
}


@pytest.fixture
def simulated(fresh_simulator: SimulatorProcess) -> SimulatedCluster:
    return fresh_simulator["gpu-fra-1"]


@pytest.fixture
def cluster(simulated: SimulatedCluster) -> Cluster:
    return SimulatorBackend(simulated).connect("observe")


def running(simulated: SimulatedCluster) -> dict[str, Any]:
    code, _ = simulated.call("POST", "/api/v1/namespaces/default/pods", POD)
    assert code == 201
    until = time.monotonic() + PATIENCE
    while True:
        _, pod = simulated.call("GET", "/api/v1/namespaces/default/pods/train-0")
        if pod["status"].get("phase") == "Running":
            return dict(pod)
        assert time.monotonic() < until
        time.sleep(0.1)


def read(cluster: Cluster, at: datetime) -> int:
    with time_source(lambda: at):
        return telemetry_read(cluster.pk).windows


def test_cards_holders_and_how_busy_they_are(simulated: SimulatedCluster, cluster: Cluster) -> None:
    pod = running(simulated)
    list_once({cluster.slug: cluster})
    start = datetime.now(UTC) + timedelta(minutes=2)
    for minute in range(3):
        assert read(cluster, start + timedelta(minutes=minute)) == 1
    assert read(cluster, start + timedelta(minutes=2, seconds=5)) == 0, "not more often than once a minute"
    with system_scope("test"):
        sightings = list(DeviceSighting.objects.filter(pod="train-0"))
        assert {row.pod_uid for row in sightings} == {pod["metadata"]["uid"]}
        assert len({row.uuid for row in sightings}) == 2
        assert Device.objects.filter(uuid__in=[row.uuid for row in sightings]).count() == 2
        # Three scrapes of two cards, each for the minute before it; perhaps across an hour.
        hours = list(TelemetryHour.objects.filter(pod="train-0"))
        assert sum(row.busy_ms or 0 for row in hours) == 2 * 72_000
        assert sum(row.observed_ms or 0 for row in hours) == 2 * 180_000
        assert any(row.energy_mj is not None for row in hours)
        free = TelemetryHour.objects.filter(pod="").first()
        assert free is not None
        assert free.busy_ms == 0
        source = TelemetrySource.objects.get()
        assert (source.kind, source.unmapped) == ("exporter", [])
        assert PodObservation.objects.filter(name="train-0").exists()


def test_exporters_that_name_no_pods_are_unmapped(simulated: SimulatedCluster, cluster: Cluster) -> None:
    pod = running(simulated)
    node = pod["spec"]["nodeName"]
    list_once({cluster.slug: cluster})
    simulated.sim("POST", f"nodes/{node}/unmapped")
    assert read(cluster, datetime.now(UTC) + timedelta(minutes=10)) == 1
    with system_scope("test"):
        source = TelemetrySource.objects.get()
        assert source.unmapped == [node]
        condition = get_condition(source.conditions, MAPPED)
        assert condition is not None
        assert condition.status == "False"


def test_a_cluster_without_exporters_says_so(simulated: SimulatedCluster, cluster: Cluster) -> None:
    simulated.call("DELETE", "/apis/apps/v1/namespaces/gpu-operator/daemonsets/nvidia-dcgm-exporter")
    until = time.monotonic() + PATIENCE
    while simulated.call("GET", "/api/v1/namespaces/gpu-operator/pods")[1]["items"]:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert read(cluster, datetime.now(UTC)) == 0
    with system_scope("test"):
        told = TelemetrySource.objects.get().conditions[0]
    assert (told["status"], told["reason"]) == ("Unknown", "NoSource")
