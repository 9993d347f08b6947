"""The truth table: the recorded run through our watcher and meter gives the true GPU-seconds, exactly."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest

from billing.models import Bucket, CapacityHour, DeviceAllocation, UsageRecord
from billing.selectors.allocations import device_time
from billing.services.metering import meter_cluster
from infra.models import Cluster, WatchTarget
from portal.kernel.clock import Interval, parse_rfc3339
from portal.kernel.scoping import system_scope
from tests.billing.factories import claim_namespaces, make_tenant
from tests.support.replay import Mode, recorded_cluster, replay, truth

pytestmark = pytest.mark.django_db

HOUR = Interval(datetime(2026, 11, 29, 16, tzinfo=UTC), datetime(2026, 11, 29, 17, tzinfo=UTC))
MODES: list[Mode] = ["whole", "resume", "twice", "shuffled"]


@pytest.fixture
def cluster() -> Cluster:
    return recorded_cluster()


def play(cluster: Cluster, mode: Mode, **options: Any) -> None:
    """The run into evidence, its namespaces claimed, and evidence into allocations."""
    replay(cluster, mode, **options)
    with system_scope("test"):
        tenant = make_tenant("ml-team")
        claim_namespaces(cluster, tenant, sorted({pod["namespace"] for pod in truth()["pods"]}))
    meter_cluster(cluster.pk)


def true_seconds(namespace: str, pod: dict[str, Any]) -> Fraction:
    """The file's figure as a fraction: MIG is counted in 1g slices there, seven to a card."""
    figure = Fraction(str(pod["gpu_seconds"]))
    return figure / 7 if namespace == "team-mig" else figure


@pytest.mark.parametrize("mode", MODES)
def test_each_pod_and_window(cluster: Cluster, mode: Mode) -> None:
    play(cluster, mode, **({"seed": 7} if mode == "shuffled" else {}))
    compared = 0
    for name, window in truth()["windows"].items():
        interval = Interval(parse_rfc3339(window["start"]), parse_rfc3339(window["end"]))
        with system_scope("test"):
            ours = {row.pod_uid: row.card_seconds for row in device_time(interval, cluster_id=cluster.pk)}
        for namespace, expected in window["namespaces"].items():
            for pod in expected["pods"]:
                assert ours.get(pod["uid"], 0) == true_seconds(namespace, pod), (name, namespace, pod["pod"])
                compared += 1
            total = sum((ours.get(pod["uid"], Fraction(0)) for pod in expected["pods"]), Fraction(0))
            assert total == sum(true_seconds(namespace, pod) for pod in expected["pods"])
        assert set(ours) <= {pod["uid"] for found in window["namespaces"].values() for pod in found["pods"]}
    assert compared == 4 * len(truth()["pods"])


def finish_hour(cluster: Cluster) -> None:
    """As if both targets had been watched until five past: the hour is final."""
    WatchTarget.objects.filter(cluster=cluster).update(watermark=datetime(2026, 11, 29, 17, 5, tzinfo=UTC))


def pod_seconds_in_hour(pod: dict[str, Any]) -> int:
    if pod["startedAt"] is None:
        return 0
    end = parse_rfc3339(pod["finishedAt"]) if pod["finishedAt"] else HOUR.end
    return int((end - parse_rfc3339(pod["startedAt"])).total_seconds())


def test_usage_of_the_final_hour(cluster: Cluster) -> None:
    """Records hold whole milliseconds and floored shares; their requested figures give the exact ones."""
    play(cluster, "whole")
    with system_scope("test"):
        assert not UsageRecord.objects.exists(), "no hour is final behind a watermark of 16:44"
        assert DeviceAllocation.objects.filter(bucket=Bucket.TENANTS).exists()
    finish_hour(cluster)
    assert meter_cluster(cluster.pk).rows > 0
    assert meter_cluster(cluster.pk).rows == 0, "a second run adds nothing"
    expected: dict[str, int] = {pod["uid"]: pod_seconds_in_hour(pod) for pod in truth()["pods"]}
    with system_scope("test"):
        uids = dict(DeviceAllocation.objects.values_list("id", "pod_uid"))
        held: dict[str, set[int]] = defaultdict(set)
        for row in UsageRecord.objects.filter(bucket=Bucket.TENANTS):
            held[uids[row.allocation_id]].add(row.milliseconds)
            assert row.charged == row.share * row.milliseconds
            assert row.physical == row.charged
        assert {uid: {seconds * 1000} for uid, seconds in expected.items() if seconds} == held
        slow = next(pod["uid"] for pod in truth()["pods"] if pod["pod"] == "slow")
        starting = UsageRecord.objects.filter(
            bucket=Bucket.STARTING, allocation_id__in=[k for k, v in uids.items() if v == slow]
        )
        assert [row.milliseconds for row in starting] == [90_000, 90_000], "two cards, 90 s before the start"
        hours = list(CapacityHour.objects.filter(cluster=cluster))
        assert len(hours) == 6
        for capacity in hours:
            assert capacity.difference == 0
            assert (capacity.overbooked, capacity.outside) == (0, 0)


def test_relist_after_a_gap(cluster: Cluster) -> None:
    """With ten events lost between two watches every figure is right, but what nobody could see ends where proved."""
    play(cluster, "relist", cut=62, missed=10)
    window = truth()["windows"]["10 minutes"]
    interval = Interval(parse_rfc3339(window["start"]), parse_rfc3339(window["end"]))
    with system_scope("test"):
        ours = {row.pod_uid: row for row in device_time(interval, cluster_id=cluster.pk)}
        inferred = set(DeviceAllocation.objects.filter(inferred=True).values_list("pod_uid", flat=True))
        for namespace, expected in window["namespaces"].items():
            for pod in expected["pods"]:
                row = ours.get(pod["uid"])
                figure = row.card_seconds if row else Fraction(0)
                if pod["uid"] in inferred:
                    assert row is not None
                    assert figure <= true_seconds(namespace, pod) <= figure + row.unattributed_card_seconds
                elif pod["uid"] in ours:
                    assert figure == true_seconds(namespace, pod)


def test_replayed_again_changes_nothing(cluster: Cluster) -> None:
    play(cluster, "whole")
    finish_hour(cluster)
    meter_cluster(cluster.pk)
    with system_scope("test"):
        before = list(UsageRecord.objects.order_by("seq").values_list("seq", "charged"))
    replay(cluster, "whole")
    finish_hour(cluster)
    meter_cluster(cluster.pk)
    with system_scope("test"):
        assert list(UsageRecord.objects.order_by("seq").values_list("seq", "charged")) == before
