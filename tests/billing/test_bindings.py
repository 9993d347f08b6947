"""Metering binds the card that metrics have shown: beside the allocation, never in its key, without usage changing."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from billing.models import CapacityHour, DeviceAllocation, UsageRecord
from billing.services.metering import meter_again, meter_cluster
from infra.dcgm import HeldCard, Workload
from infra.models import Cluster
from infra.services.telemetry_write import sightings_merge
from portal.kernel.clock import HOUR, Interval, epoch_ms
from portal.kernel.scoping import system_scope
from tests.billing.factories import (
    T0,
    claim_namespaces,
    make_cluster,
    make_node,
    make_tenant,
    observe,
    pod_evidence,
    set_watermark,
)

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
SLACK = timedelta(seconds=60)


@pytest.fixture
def cluster() -> Cluster:
    cluster = make_cluster()
    claim_namespaces(cluster, make_tenant("vision"), ["team-vision"])
    make_node(cluster)
    return cluster


def sight(
    cluster: Cluster, pod: str, uuid: str, start: datetime, end: datetime, *, shared: bool = False, mig: Any = None
) -> int:
    held = HeldCard(
        uuid, mig, Workload("team-vision", pod, "main"), "", "node-0", epoch_ms(start), epoch_ms(end), shared
    )
    with system_scope("test"):
        return sightings_merge(cluster, [held], slack=SLACK, now=end)


def cards(cluster: Cluster) -> dict[int, str]:
    with system_scope("test"):
        return dict(DeviceAllocation.objects.filter(cluster=cluster).values_list("ordinal", "device_uuid"))


def per_card(cluster: Cluster) -> list[bool]:
    with system_scope("test"):
        return list(CapacityHour.objects.filter(cluster=cluster).order_by("hour").values_list("per_card", flat=True))


def usage() -> list[tuple[Any, ...]]:
    with system_scope("test"):
        return list(UsageRecord.objects.order_by("seq").values_list("seq", "hour", "milliseconds", "revision"))


def test_the_card_is_bound_when_it_is_seen_and_usage_gets_no_revision(cluster: Cluster) -> None:
    observe(cluster, pod_evidence("a", namespace="team-vision", node="node-0", gpu=2, start=T0, end=T0 + 2 * HOUR))
    set_watermark(cluster, T0 + 3 * HOUR)
    meter_cluster(cluster.pk)
    assert cards(cluster) == {0: "", 1: ""}
    assert per_card(cluster)[:2] == [False, False]
    before = usage()
    assert before
    for uuid in ("GPU-b", "GPU-a"):
        assert sight(cluster, "a", uuid, T0 + MINUTE, T0 + 10 * MINUTE) == 1
    meter_cluster(cluster.pk)
    assert cards(cluster) == {0: "GPU-a", 1: "GPU-b"}
    assert per_card(cluster)[:2] == [True, True]
    assert usage() == before
    meter_again(cluster.pk, Interval(T0, T0 + 3 * HOUR))
    assert usage() == before


def test_a_pod_of_which_one_card_is_seen_has_that_one(cluster: Cluster) -> None:
    observe(cluster, pod_evidence("a", namespace="team-vision", node="node-0", gpu=2, start=T0, end=T0 + HOUR))
    sight(cluster, "a", "GPU-b", T0 + MINUTE, T0 + 10 * MINUTE)
    set_watermark(cluster, T0 + 2 * HOUR)
    meter_cluster(cluster.pk)
    assert cards(cluster) == {0: "GPU-b", 1: ""}
    assert per_card(cluster)[0] is False
    sight(cluster, "a", "GPU-a", T0 + MINUTE, T0 + 10 * MINUTE)
    meter_cluster(cluster.pk)
    assert cards(cluster) == {0: "GPU-b", 1: "GPU-a"}, "what is bound stays"


def test_a_short_sight_and_a_shared_card_bind_nothing(cluster: Cluster) -> None:
    observe(cluster, pod_evidence("a", namespace="team-vision", node="node-0", gpu=1, start=T0, end=T0 + HOUR))
    sight(cluster, "a", "GPU-a", T0 + MINUTE, T0 + MINUTE + timedelta(seconds=15))
    sight(cluster, "a", "GPU-b", T0 + MINUTE, T0 + 9 * MINUTE, shared=True)
    set_watermark(cluster, T0 + 2 * HOUR)
    meter_cluster(cluster.pk)
    assert cards(cluster) == {0: ""}
    assert sight(cluster, "a", "GPU-a", T0 + MINUTE, T0 + 3 * MINUTE) == 1, "now it is long enough: metering is told"
    meter_cluster(cluster.pk)
    assert cards(cluster) == {0: "GPU-a"}
    assert sight(cluster, "a", "GPU-a", T0 + MINUTE, T0 + 9 * MINUTE) == 0, "and not told again"


def test_a_sight_of_a_pod_that_is_over_binds_the_hours_that_are_written(cluster: Cluster) -> None:
    observe(cluster, pod_evidence("a", namespace="team-vision", node="node-0", gpu=1, start=T0, end=T0 + HOUR))
    set_watermark(cluster, T0 + 3 * HOUR)
    meter_cluster(cluster.pk)
    sight(cluster, "a", "GPU-a", T0 + MINUTE, T0 + 10 * MINUTE)
    meter_cluster(cluster.pk)
    assert per_card(cluster)[0] is True
