"""Two readers of one cluster's metrics at the same time: each sample is told once. First without the lock."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import Sum

from infra.dcgm.names import GPU_UTIL
from infra.models import Cluster, ClusterEndpoint, TelemetryHour, TelemetrySource
from infra.services import telemetry
from infra.services.telemetry import telemetry_read
from portal.kernel.clock import time_source
from tests.support.fleet import make_node, make_pool
from tests.support.metrics_api import MetricsApi, metrics_api
from tests.support.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)

NOON = datetime(2026, 11, 3, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def api() -> Iterator[MetricsApi]:
    with metrics_api() as running:
        yield running


@pytest.fixture
def cluster(api: MetricsApi) -> Cluster:
    """A card that is half busy all the time; its first five minutes are read."""
    cluster = make_node(make_pool(), cards=1, name="node-a").cluster
    TelemetrySource.objects.create(cluster=cluster, read_until=NOON)
    ClusterEndpoint.objects.create(cluster=cluster, role="metrics", url=api.url)
    api.give(GPU_UTIL, NOON - 2 * MINUTE, [50] * 30, UUID="GPU-a", gpu="0", Hostname="node-a", modelName="H100")
    with time_source(lambda: NOON + 7 * MINUTE):
        assert telemetry_read(cluster.pk).windows == 1
    return cluster


def read(cluster: Cluster) -> int:
    with time_source(lambda: NOON + 12 * MINUTE):
        return telemetry_read(cluster.pk).windows


def meet_at(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Both wait for each other before this step, as long as that is possible."""
    barrier, real = threading.Barrier(2), getattr(telemetry, name)

    def meeting(*args: object, **kwargs: object) -> object:
        with suppress(threading.BrokenBarrierError):  # the other one is held back by the lock
            barrier.wait(3)
        return real(*args, **kwargs)

    monkeypatch.setattr(telemetry, name, meeting)


def observed() -> tuple[int, int]:
    found = TelemetryHour.objects.aggregate(busy=Sum("busy_ms"), observed=Sum("observed_ms"))
    return found["busy"], found["observed"]


def test_without_the_lock_a_window_is_told_twice(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    # Both have seen where the source stands, and neither has written, when they meet.
    monkeypatch.setattr(TelemetrySource.objects, "select_for_update", TelemetrySource.objects.all)
    meet_at(monkeypatch, "sightings_merge")
    assert at_once([lambda: read(cluster)] * 2) == [1, 1]
    assert observed() == (450_000, 900_000), "the race is there: ten minutes were seen, fifteen are told"


def test_with_the_lock_one_of_them_writes_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    meet_at(monkeypatch, "sightings_merge")
    assert sorted(at_once([lambda: read(cluster)] * 2)) == [0, 1]  # type: ignore[type-var]
    assert observed() == (300_000, 600_000)
