"""Reading pods, merging what was seen of them, and when they end."""

import json
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.evidence import ContainerEvidence, PodEnd, PodEvidence, merge, merge_all, missing
from infra.pod_devices import ContainerKind, is_gpu, mig_profile, reserved
from infra.pod_reading import dump_evidence, load_evidence, read_pod
from tests.unit.infra.pods import at, container, pod, running, seen, status, terminated, waiting

INIT, SIDECAR, MAIN = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.MAIN

# --- requests ---


def test_the_larger_of_running_and_initialising_is_reserved() -> None:
    def amounts(*parts: tuple[ContainerKind, int]) -> Fraction:
        return reserved((kind, {"gpu": Fraction(count)}) for kind, count in parts)["gpu"]

    assert amounts((MAIN, 1), (MAIN, 2)) == 3
    assert amounts((INIT, 4), (MAIN, 1), (MAIN, 2)) == 4
    assert amounts((INIT, 2), (INIT, 2), (MAIN, 1)) == 2
    assert amounts((SIDECAR, 1), (INIT, 4), (MAIN, 2)) == 5
    assert amounts((INIT, 4), (SIDECAR, 1), (MAIN, 2)) == 4
    assert amounts((SIDECAR, 1), (SIDECAR, 2), (MAIN, 2)) == 5


@given(st.lists(st.tuples(st.sampled_from(ContainerKind), st.integers(0, 9)), max_size=8))
def test_reserved_is_what_the_rule_says(parts: list[tuple[ContainerKind, int]]) -> None:
    parts = sorted(parts, key=lambda part: part[0] is MAIN)
    running_sum = sum(count for kind, count in parts if kind is not INIT)
    initialising = [
        count + sum(c for k, c in parts[:index] if k is SIDECAR)
        for index, (kind, count) in enumerate(parts)
        if kind is INIT
    ]
    got = reserved((kind, {"x": Fraction(count)}) for kind, count in parts).get("x", 0)
    assert got == max([running_sum, *initialising])


def test_requests_of_a_pod() -> None:
    evidence = seen(
        pod(
            containers=[
                container("a", {"nvidia.com/gpu": "1", "cpu": "500m", "nvidia.com/gpumem": "20k"}),
                container("b", {"cpu": "250m"}),
            ],
            init=[container("load", {"cpu": "4"}), container("proxy", {"cpu": "1"}, restart_policy="Always")],
        )
    )
    assert evidence.request("cpu") == 4
    assert evidence.request("nvidia.com/gpumem") == 20000
    assert evidence.request("nvidia.com/mig-1g.10gb") == 0
    assert [one.kind for one in evidence.containers] == [INIT, SIDECAR, MAIN, MAIN]
    assert evidence.asks_for_gpus


def test_limits_stand_in_for_missing_requests_and_overhead_counts() -> None:
    obj = pod()
    obj["spec"]["containers"] = [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "2"}}}]
    obj["spec"]["overhead"] = {"cpu": "250m"}
    evidence = seen(obj)
    assert evidence.request("nvidia.com/gpu") == 2
    assert evidence.request("cpu") == Fraction(9, 4)


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/mig-1g.10gb", True),
        ("nvidia.com/gpumem", True),
        ("amd.com/gpu", True),
        ("huawei.com/Ascend910B", True),
        ("huawei.com/Ascend910B-memory", False),
        ("cpu", False),
        ("nvidia.com/hostdev", False),
    ],
)
def test_what_is_a_gpu(resource: str, expected: bool) -> None:
    assert is_gpu(resource) is expected
    assert bool(mig_profile(resource)) is resource.startswith("nvidia.com/mig-")


# --- what is kept ---


def test_foreign_annotations_are_kept_by_allow_list() -> None:
    evidence = seen(
        pod(
            annotations={
                "vcluster.loft.sh/token-abc": "secret",
                "vcluster.loft.sh/object-name": "inner",
                "hami.io/bind-phase": "success",
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
            },
            labels={"app": "x", "secret": "y", "aifactory.dev/deployment": "d", "modelplane.ai/replica": "r"},
        )
    )
    assert dict(evidence.annotations) == {
        "vcluster.loft.sh/object-name": "inner",
        "hami.io/bind-phase": "success",
    }
    assert dict(evidence.labels) == {
        "app": "x",
        "aifactory.dev/deployment": "d",
        "modelplane.ai/replica": "r",
    }
    assert "secret" not in json.dumps(dump_evidence(evidence))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"metadata": {"namespace": "n", "name": "p"}}, "metadata.uid is missing"),
        (
            {"status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "soon"}]}},
            "soon",
        ),
        ({"spec": {"containers": [{"name": "m", "resources": {"requests": {"cpu": "much"}}}]}}, "much"),
    ],
)
def test_a_pod_that_can_not_be_read_says_which_and_why(change: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        read_pod({**pod(), **change}, seen_at=at(0))


def test_gos_zero_time_is_no_time() -> None:
    obj = pod(
        scheduled=0,
        statuses=[status(state={"terminated": {"startedAt": "0001-01-01T00:00:00Z", "exitCode": 1}})],
    )
    evidence = seen(obj)
    assert evidence.started_at is None
    assert evidence.containers[0].end_unknown


# --- when a pod ends ---


def end(*objects: dict[str, Any], deleted: bool = False) -> float | None:
    """Minutes after the beginning at which the pod ended; every end is a seen one."""
    got = seen(*objects, deleted=deleted).end
    if got is None:
        return None
    assert not got.inferred
    return (got.at - at(0)).total_seconds() / 60


def test_a_running_pod_has_no_end() -> None:
    assert end(pod(scheduled=0)) is None
    assert end(pod(scheduled=0, phase="Running", statuses=[status(state=running(1))])) is None


def test_a_finished_pod_ends_with_its_last_container() -> None:
    two = [container("a"), container("b")]
    statuses = [status("a", terminated(1, 9)), status("b", terminated(1, 12))]
    assert end(pod(scheduled=0, phase="Succeeded", containers=two, statuses=statuses, policy="Never")) == 12


def test_the_deletion_timestamp_is_no_end() -> None:
    leaving = pod(2, scheduled=0, phase="Running", deleting=30, statuses=[status(state=running(1))])
    assert end(leaving) is None
    stopped = pod(3, scheduled=0, phase="Failed", deleting=30, statuses=[status(state=terminated(1, 8, 143))])
    assert end(leaving, stopped) == 8
    assert end(leaving, stopped, {**stopped}, deleted=True) == 8


def test_a_deleted_pod_whose_containers_ended_ends_with_them_even_while_the_phase_says_running() -> None:
    gone = pod(3, scheduled=0, phase="Running", deleting=30, statuses=[status(state=terminated(1, 8))])
    assert end(gone, deleted=True) == 8


def test_a_pod_deleted_while_running_ends_when_it_is_gone() -> None:
    assert end(pod(2, scheduled=0, phase="Running", statuses=[status(state=running(1))]), deleted=True) == 60


def test_a_crash_loop_keeps_the_card() -> None:
    again = status(state=waiting("CrashLoopBackOff"), last=terminated(5, 6, 1), restarts=4)
    assert end(pod(scheduled=0, phase="Running", statuses=[again])) is None
    assert end(pod(scheduled=0, phase="Running", statuses=[status(state=terminated(5, 6, 1))])) is None
    assert (
        end(pod(scheduled=0, phase="Running", policy="OnFailure", statuses=[status(state=terminated(5, 6, 1))])) is None
    )
    assert end(pod(scheduled=0, phase="Running", policy="OnFailure", statuses=[status(state=terminated(5, 6, 0))])) == 6
    assert seen(pod(scheduled=0, phase="Running", statuses=[again])).in_back_off


def test_a_pod_deleted_in_its_back_off_ends_when_it_is_gone() -> None:
    again = status(state=waiting("CrashLoopBackOff"), last=terminated(5, 6, 1), restarts=4)
    loop = pod(1, scheduled=0, phase="Running", statuses=[again])
    assert end(loop, pod(2, scheduled=0, phase="Running", deleting=59, statuses=[again]), deleted=True) == 60
    # The kubelet may turn the wait into its last result while it takes the pod down; it was held nevertheless.
    turned = pod(2, scheduled=0, phase="Failed", deleting=59, statuses=[status(state=terminated(5, 6, 1))])
    assert end(loop, turned, deleted=True) == 60
    assert end(turned, deleted=True) == 6


def test_a_back_off_that_was_overcome_does_not_count() -> None:
    loop = pod(1, scheduled=0, statuses=[status(state=waiting("CrashLoopBackOff"), last=terminated(1, 2, 1))])
    done = pod(
        9,
        scheduled=0,
        phase="Succeeded",
        statuses=[status(state=terminated(3, 20), last=terminated(1, 2, 1))],
    )
    assert end(loop, done) == 20


def test_a_sidecar_keeps_the_card() -> None:
    side = [container("proxy", restart_policy="Always")]
    done = [status(state=terminated(1, 9))]
    busy = pod(
        scheduled=0,
        phase="Running",
        init=side,
        init_statuses=[status("proxy", running(0))],
        statuses=done,
        policy="Never",
    )
    assert end(busy) is None
    over = pod(
        2,
        scheduled=0,
        phase="Succeeded",
        init=side,
        init_statuses=[status("proxy", terminated(0, 11))],
        statuses=done,
    )
    assert end(busy, over) == 11


def test_a_finished_init_container_is_no_end() -> None:
    first = pod(
        scheduled=0,
        init=[container("load")],
        init_statuses=[status("load", terminated(1, 3))],
        statuses=[status(state=waiting("PodInitializing"))],
    )
    assert end(first) is None
    assert seen(first).started_at == at(1)


def test_a_pod_that_never_started_ends_when_it_is_over_or_gone() -> None:
    refused = pod(2, scheduled=0, phase="Failed")
    assert end(refused) == 60
    later = read_pod(pod(3, scheduled=0, phase="Failed", deleting=500), seen_at=at(500), deleted=True)
    assert merge(seen(refused), later).end == PodEnd(at(60), at(60))
    assert (
        end(
            pod(2, scheduled=0, deleting=10, statuses=[status(state=waiting("ImagePullBackOff"))]),
            deleted=True,
        )
        == 60
    )


def test_an_end_without_a_time_is_when_it_was_seen() -> None:
    unknown = status(state={"terminated": {"reason": "ContainerStatusUnknown", "exitCode": 137, "finishedAt": None}})
    assert end(pod(scheduled=0, phase="Failed", statuses=[unknown])) == 60


def test_a_missing_pod_ended_somewhere_after_its_last_proof() -> None:
    there = seen(pod(scheduled=0, phase="Running", statuses=[status(state=running(1))]), at_minutes=10)
    gone = missing(there, relisted_at=at(50), last_proof=at(30))
    assert gone.end == PodEnd(at(30), at(50))
    assert gone.end is not None
    assert gone.end.inferred
    # What is seen later is better than what was inferred.
    final = pod(7, scheduled=0, phase="Failed", deleting=20, statuses=[status(state=terminated(1, 33))])
    known = read_pod(final, seen_at=at(55), deleted=True)
    assert merge(gone, known).end == merge(known, gone).end == PodEnd(at(33), at(33))


def test_a_deletion_replayed_after_a_break_is_inferred() -> None:
    there = pod(1, scheduled=0, phase="Running", statuses=[status(state=running(1))])
    gone = read_pod(there, seen_at=at(50), deleted=True, unwatched_since=at(20))
    assert merge(seen(there, at_minutes=5), gone).end == PodEnd(at(20), at(50))


# --- merging ---

minutes = st.one_of(st.none(), st.integers(0, 500).map(at))


def container_evidence(name: str) -> st.SearchStrategy[ContainerEvidence]:
    return st.builds(
        ContainerEvidence,
        name=st.just(name),
        kind=st.just(MAIN),
        restart_policy=st.just("Always"),
        requests=st.just((("nvidia.com/gpu", Fraction(1)),)),
        state=st.sampled_from(["", "waiting", "running", "terminated"]),
        exit_code=st.one_of(st.none(), st.integers(0, 2)),
        restarts=st.integers(0, 3),
        first_started_at=minutes,
        last_finished_at=minutes,
        back_off_after=minutes,
    )


@st.composite
def sights(draw: st.DrawFn) -> PodEvidence:
    gone: datetime | None = draw(minutes)
    inferred: datetime | None = draw(minutes) if gone else None
    return PodEvidence(
        uid="uid-1",
        namespace="team",
        name="pod",
        resource_version=draw(st.integers(0, 3)),
        first_seen_at=draw(st.integers(0, 500).map(at)),
        last_seen_at=draw(st.integers(0, 500).map(at)),
        node=draw(st.sampled_from(["", "node-a"])),
        phase=draw(st.sampled_from(["Pending", "Running", "Failed"])),
        ready=draw(st.booleans()),
        containers=tuple(draw(container_evidence(name)) for name in ("a", "b")),
        annotations=draw(st.sampled_from([(), (("hami.io/bind-phase", "success"),)])),
        created_at=draw(minutes),
        scheduled_at=draw(minutes),
        terminal_seen_at=draw(minutes),
        deletion_seen_at=draw(minutes),
        gone_at=gone,
        gone_inferred_after=min(inferred, gone) if inferred and gone else None,
    )


@settings(deadline=None)
@given(sights(), sights(), sights())
def test_merging_is_independent_of_order_and_repetition(a: PodEvidence, b: PodEvidence, c: PodEvidence) -> None:
    assert merge(a, b) == merge(b, a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert merge(a, a) == a
    assert merge(merge(a, b), a) == merge(a, b)


@given(sights(), sights())
def test_nothing_known_is_lost(a: PodEvidence, b: PodEvidence) -> None:
    both = merge(a, b)
    for one in (a, b):
        for field in ("scheduled_at", "started_at", "gone_at", "terminal_seen_at", "last_finished_at"):
            assert getattr(one, field) is None or getattr(both, field) is not None
    assert both.resource_version == max(a.resource_version, b.resource_version)


@given(sights())
def test_stored_evidence_comes_back_unchanged(evidence: PodEvidence) -> None:
    assert load_evidence(json.loads(json.dumps(dump_evidence(evidence)))) == evidence


def test_two_pods_are_not_merged() -> None:
    one = seen(pod(scheduled=0))
    with pytest.raises(ValueError, match="two pods"):
        merge(one, replace(one, uid="uid-2"))
    assert set(merge_all([one, replace(one, uid="uid-2")])) == {"uid-1", "uid-2"}


def test_stored_evidence_that_is_broken_says_so() -> None:
    with pytest.raises(ValueError, match="stored evidence of pod uid-1"):
        load_evidence({**dump_evidence(seen(pod())), "first_seen_at": "yesterday"})
