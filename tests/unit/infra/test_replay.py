"""The recorded run through the watcher: whatever breaks in between, the rows say what truth says."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from infra.models import CapacitySpan, Device, GPUType, Node, NodePool, PodObservation, WatchSpan, WatchTarget
from portal.kernel.clock import parse_rfc3339
from portal.kernel.models import WorkItem
from tests.support import replay as recorded

pytestmark = pytest.mark.django_db

Told = dict[str, tuple[object, ...]]


def told() -> Told:
    """What matters of each pod: where it was, its times, and what it held."""
    return {
        row.uid: (
            row.name, row.node_name, row.scheduled_at, row.started_at, row.ended_at, json.dumps(row.holds),
            row.gone_at is not None, row.gone_inferred_after is not None,
        )
        for row in PodObservation.objects.all()
    }  # fmt: skip


@pytest.fixture
def whole() -> Told:
    recorded.replay_pods(recorded.recorded_cluster("whole"), "whole")
    rows = told()
    PodObservation.objects.all().delete()
    return rows


def test_times_are_the_recorded_truth() -> None:
    cluster = recorded.recorded_cluster()
    recorded.replay(cluster)
    rows = {row.uid: row for row in PodObservation.objects.filter(cluster=cluster)}
    pods = {pod["uid"]: pod for pod in recorded.truth()["pods"]}
    assert set(rows) == set(pods)
    for uid, pod in pods.items():
        row = rows[uid]
        assert row.node_name == (pod["node"] or "")
        for mine, theirs in ((row.started_at, pod["startedAt"]), (row.ended_at, pod["finishedAt"])):
            assert mine == (parse_rfc3339(theirs) if theirs else None), pod["pod"]
        assert (row.gone_at is not None) == pod["deleted"]


def test_the_fleet_is_the_recorded_one() -> None:
    recorded.replay(recorded.recorded_cluster())
    assert sorted(GPUType.objects.values_list("slug", "memory_mib")) == [
        ("nvidia-a100-sxm4-80gb", 81920), ("nvidia-h100-80gb-hbm3", 81559),
    ]  # fmt: skip
    assert sorted(NodePool.objects.values_list("name", "sharing")) == [
        ("nvidia-a100-sxm4-80gb-hami", "hami"),
        ("nvidia-h100-80gb-hbm3-mig", "mig"),
        ("nvidia-h100-80gb-hbm3-whole", "whole"),
    ]
    assert Node.objects.count() == 6
    assert Device.objects.count() == 16
    spans = CapacitySpan.objects.all()
    assert sum(span.cards for span in spans) == 48, "physical cards, not 176 as nvidia.com/gpu sums up to"
    assert {(span.started_at, span.ended_at, span.unavailable_cards) for span in spans} == {(recorded.BEGIN, None, 0)}


def test_the_watch_proves_itself_and_calls_metering() -> None:
    cluster = recorded.recorded_cluster()
    recorded.replay(cluster)
    for target in WatchTarget.objects.filter(cluster=cluster, resource__in=["pods", "nodes"]):
        span = target.spans.get()
        assert (span.started_at, span.proved_until) == (recorded.BEGIN, recorded.END)
        assert target.watermark == recorded.END - timedelta(seconds=60)
    item = WorkItem.objects.get(kind="metering")
    assert (item.object_id, item.cluster_id, item.cause) == (cluster.pk, None, "watch")
    numbers = list(PodObservation.objects.values_list("changed_seq", flat=True))
    assert len(set(numbers)) == len(numbers), "each change has a number of its own"
    numbers += list(CapacitySpan.objects.values_list("changed_seq", flat=True))
    assert max(numbers) == cluster.change_counter.value


@pytest.mark.parametrize("outage", [timedelta(seconds=2), timedelta(minutes=4)])
@pytest.mark.parametrize("cut", [1, 40, 62, 64, 100, 109])
def test_a_resume_loses_nothing(whole: Told, cut: int, outage: timedelta) -> None:
    recorded.replay_pods(recorded.recorded_cluster(), "resume", cut=cut, outage=outage)
    # Deleted while nobody listened: known to be gone, not when. What it ran is known all the same.
    assert {uid: row[:-1] for uid, row in told().items()} == {uid: row[:-1] for uid, row in whole.items()}
    if outage < timedelta(seconds=10):
        assert told() == whole
    assert WatchSpan.objects.filter(target__cluster__slug="recorded").count() == 1


@pytest.mark.parametrize("mode", ["twice", "shuffled"])
@pytest.mark.parametrize("seed", range(3))
def test_events_may_come_twice_and_in_any_order(whole: Told, mode: recorded.Mode, seed: int) -> None:
    recorded.replay_pods(recorded.recorded_cluster(), mode, seed=seed, batch=5 + seed)
    assert {uid: row[:-1] for uid, row in told().items()} == {uid: row[:-1] for uid, row in whole.items()}


def test_a_pod_that_left_in_a_gap_ended_between_the_last_proof_and_the_list(whole: Told) -> None:
    """Cut after event 62, list after event 72: the first trainer (event 63 to 66) is never seen to end."""
    cluster = recorded.recorded_cluster()
    recorded.replay_pods(cluster, "relist", cut=62, missed=10)
    rows = told()
    lost = [uid for uid, row in rows.items() if row != whole.get(uid)]
    assert [rows[uid][0] for uid in lost] == ["trainer"]
    row = PodObservation.objects.get(uid=lost[0])
    first, second = WatchSpan.objects.filter(target__cluster=cluster).order_by("started_at")
    assert first.closed_reason == "410 Gone: the history had been compacted"
    assert row.gone_inferred_after == first.proved_until == row.ended_at
    assert row.gone_at == second.started_at
    assert first.proved_until < second.started_at
    assert second.proved_until == recorded.END


def test_a_pod_made_and_gone_within_the_gap_is_not_known(whole: Told) -> None:
    """Nothing can tell of it; the spans say that there was a gap."""
    recorded.replay_pods(recorded.recorded_cluster(), "relist", cut=50, missed=18)
    assert set(told()) <= set(whole)
    assert WatchSpan.objects.filter(target__cluster__slug="recorded").count() == 2
