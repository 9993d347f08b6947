"""What pods hold, when, for whom, and how it is cut: the rules of the bill one by one, and what must always
hold."""

from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing.metering.holdings import CardFacts, Holding, Mode, NodeCards, UnknownHardwareError, holdings
from billing.metering.intervals import (
    Allocation,
    Bucket,
    Claim,
    Phase,
    Rules,
    Surroundings,
    allocations,
    held_ms,
    lifetime,
    lost_intervals,
)
from billing.metering.usage import cut
from infra.evidence import PodEvidence, missing
from portal.kernel.clock import Interval, from_epoch_ms, hour_start, total_ms
from tests.unit.infra.pods import at, container, pod, running, seen, status, terminated, waiting

HAMI = "hami-scheduler"
CARDS = tuple(CardFacts(f"GPU-{n}", 80000) for n in range(4))
WHOLE_NODE = NodeCards("node-a", "h100", memory_mib=80000)
HAMI_NODE = NodeCards("node-a", "a100", Mode.HAMI, 80000, CARDS)
MIG_NODE = NodeCards("node-a", "h100", Mode.MIG, 80000)
CLAIM = Claim("acme", at(-10_000), cost_code="cc-1")
RULES = Rules()
AROUND = Surroundings(until=at(600), claims=(CLAIM,))


# --- what a pod holds ---


def asking(requests: dict[str, str], **more: Any) -> PodEvidence:
    return seen(pod(scheduled=0, containers=[container(requests=requests)], **more))


def shares(evidence: PodEvidence, node: NodeCards | None) -> list[Fraction]:
    return [one.share for one in holdings(evidence, node)]


def test_whole_cards_are_held_one_by_one() -> None:
    held = holdings(asking({"nvidia.com/gpu": "2", "cpu": "9", "memory": "3Mi"}), WHOLE_NODE)
    assert [(one.resource, one.ordinal, one.mode, one.share) for one in held] == [
        ("nvidia.com/gpu", 0, Mode.WHOLE, Fraction(1)),
        ("nvidia.com/gpu", 1, Mode.WHOLE, Fraction(1)),
    ]
    assert [one.cpu_millicores for one in held] == [4500, 4500]
    assert [one.host_memory_mib for one in held] == [2, 1]


def test_slices_are_held_by_profile() -> None:
    held = holdings(asking({"nvidia.com/mig-3g.40gb": "2", "nvidia.com/mig-1g.10gb": "1"}), MIG_NODE)
    assert [(one.profile, one.slices, one.share) for one in held] == [
        ("1g.10gb", 1, Fraction(1, 7)),
        ("3g.40gb", 3, Fraction(3, 7)),
        ("3g.40gb", 3, Fraction(3, 7)),
    ]
    single = replace(MIG_NODE, single_profile="1g.10gb")
    assert shares(asking({"nvidia.com/gpu": "1"}), single) == [Fraction(1, 7)]
    assert shares(asking({"nvidia.com/mig-1g.6gb": "1"}), replace(MIG_NODE, compute_slices=4)) == [Fraction(1, 4)]


def test_a_time_sliced_card_is_its_own_mode() -> None:
    node = NodeCards("node-a", "l4", Mode.TIMESLICE, replicas=4)
    held = holdings(asking({"nvidia.com/gpu": "1"}), node)
    assert [(one.mode, one.share) for one in held] == [(Mode.TIMESLICE, Fraction(1, 4))]


@pytest.mark.parametrize(
    ("requests", "expected", "uncapped"),
    [
        (
            {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "20k", "nvidia.com/gpucores": "10"},
            [Fraction(1, 4)],
            False,
        ),
        (
            {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "20k", "nvidia.com/gpucores": "60"},
            [Fraction(3, 5)],
            False,
        ),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "20k"}, [Fraction(1, 4)], True),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}, [Fraction(1, 2)], True),
        ({"nvidia.com/gpu": "1"}, [Fraction(1)], False),
        ({"nvidia.com/gpucores": "30"}, [Fraction(1)], False),
        ({"nvidia.com/gpu": "2", "nvidia.com/gpumem": "8k"}, [Fraction(1, 10)] * 2, True),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "144k"}, [Fraction(1)], True),
    ],
)
def test_hami_by_requests(requests: dict[str, str], expected: list[Fraction], uncapped: bool) -> None:
    held = holdings(asking(requests, scheduler=HAMI), HAMI_NODE)
    assert [one.share for one in held] == expected
    assert all(one.mode is Mode.HAMI and one.device_uuid == "" for one in held)
    assert all(one.compute_uncapped is uncapped for one in held)


def granted(record: str, phase: str = "success", scheduler: str = HAMI, **more: Any) -> PodEvidence:
    annotations = {"hami.io/vgpu-devices-allocated": record, "hami.io/bind-phase": phase}
    return asking(
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "40k"},
        annotations=annotations,
        scheduler=scheduler,
        **more,
    )


def test_hamis_record_names_the_card() -> None:
    held = holdings(granted("GPU-2,NVIDIA,20000,25:GPU-0,NVIDIA,8000,0:;"), HAMI_NODE)
    assert [(one.device_uuid, one.ordinal, one.share, one.compute_uncapped) for one in held] == [
        ("GPU-2", 0, Fraction(1, 4), False),
        ("GPU-0", 1, Fraction(1, 10), True),
    ]


def test_two_containers_on_one_card_are_one_device() -> None:
    both = granted("GPU-1,NVIDIA,3000,10:;GPU-1,NVIDIA,5000,15:;")
    held = holdings(both, HAMI_NODE)
    assert [(one.memory_mib, one.cores, one.share) for one in held] == [(8000, 25, Fraction(1, 4))]


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (granted("GPU-1,NVIDIA,8000,0:;", scheduler="default-scheduler"), "scheduler is 'default-scheduler'"),
        (granted("GPU-1,NVIDIA,8000,0:;", phase="failed"), "bind-phase is 'failed'"),
        (granted("GPU-9,NVIDIA,8000,0:;"), "the register of node node-a does not know GPU-9"),
        (granted("GPU-1,NVIDIA,8000,0:GPU-9,NVIDIA,1,0:;"), "does not know GPU-9"),
        (granted("GPU-1,NVIDIA,lots,0:;"), "can't be read"),
    ],
)
def test_a_record_that_can_not_be_trusted_is_charged_by_its_requests_and_flagged(
    evidence: PodEvidence, why: str
) -> None:
    (held,) = holdings(evidence, HAMI_NODE)
    assert (held.device_uuid, held.share, held.memory_mib) == ("", Fraction(1, 2), 40_000)
    assert why in held.doubt


@pytest.mark.parametrize(
    "evidence",
    [
        pytest.param(granted("GPU-1,NVIDIA,8000,0:;", phase="allocating"), id="still being bound"),
        pytest.param(granted(""), id="no record"),
    ],
)
def test_until_there_is_a_record_the_requests_count_and_there_is_nothing_to_doubt(evidence: PodEvidence) -> None:
    (held,) = holdings(evidence, HAMI_NODE)
    assert (held.device_uuid, held.share, held.doubt) == ("", Fraction(1, 2), "")


def test_init_containers_hold_what_kubernetes_reserves() -> None:
    evidence = seen(
        pod(
            scheduled=0,
            scheduler=HAMI,
            containers=[container(requests={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8k"})],
            init=[container("load", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "40k"})],
        )
    )
    assert shares(evidence, HAMI_NODE) == [Fraction(1, 2)]


def test_unknown_hardware_is_said_not_guessed() -> None:
    with pytest.raises(UnknownHardwareError, match="of which no card is known"):
        holdings(asking({"nvidia.com/gpu": "1"}), None)
    with pytest.raises(UnknownHardwareError, match="physical memory"):
        holdings(asking({"nvidia.com/gpumem": "1k"}), NodeCards("node-a", "a100", Mode.HAMI))
    assert holdings(asking({"cpu": "1"}), None) == ()
    assert holdings(asking({"amd.com/gpu": "1"}), None) == ()


# --- when, and for whom ---


def story(evidence: PodEvidence, around: Surroundings = AROUND, rules: Rules = RULES) -> list[tuple[Any, ...]]:
    """Segments as (from, to, bucket) in minutes."""
    return [
        (minutes(segment.interval.start), minutes(segment.interval.end), segment.bucket.value)
        for segment in lifetime(evidence, around, rules).segments
    ]


def minutes(instant: datetime) -> float:
    return (instant - at(0)) / timedelta(minutes=1)


def busy(start: float = 5, scheduled: float = 0, **more: Any) -> PodEvidence:
    return seen(pod(scheduled=scheduled, phase="Running", statuses=[status(state=running(start))], **more))


def done(end: float, start: float = 5, scheduled: float = 0) -> PodEvidence:
    statuses = [status(state=terminated(start, end))]
    return seen(pod(scheduled=scheduled, phase="Succeeded", policy="Never", statuses=statuses))


def test_a_pod_that_was_never_bound_costs_nothing() -> None:
    assert lifetime(seen(pod()), AROUND).segments == ()
    assert allocations(seen(pod()), holdings(busy(), WHOLE_NODE), AROUND) == ()


def test_starting_is_carried_then_held() -> None:
    assert story(busy(5)) == [(0, 5, "starting"), (5, 600, "tenants")]
    assert story(done(30)) == [(0, 5, "starting"), (5, 30, "tenants")]


def test_after_ten_minutes_of_starting_the_tenant_pays() -> None:
    assert story(busy(25)) == [(0, 10, "starting"), (10, 25, "tenants"), (25, 600, "tenants")]
    pulling = seen(pod(scheduled=0, statuses=[status(state=waiting("ImagePullBackOff"))]))
    assert story(pulling) == [(0, 10, "starting"), (10, 600, "tenants")]
    assert story(busy(25), rules=Rules(starting_limit=timedelta(0)))[0] == (0, 25, "tenants")


def test_the_first_start_of_an_init_container_counts() -> None:
    evidence = seen(
        pod(scheduled=0, init=[container("load")], init_statuses=[status("load", terminated(2, 9))],
            statuses=[status(state=waiting("PodInitializing"))])
    )  # fmt: skip
    assert story(evidence) == [(0, 2, "starting"), (2, 600, "tenants")]


def test_waits_that_the_platform_caused_stay_with_it() -> None:
    around = replace(AROUND, waits=(Interval(at(4), at(34)),))
    assert story(busy(50), around) == [(0, 40, "starting"), (40, 50, "tenants"), (50, 600, "tenants")]


def test_restarts_keep_the_card() -> None:
    again = status(state=waiting("CrashLoopBackOff"), last=terminated(50, 51, 1), restarts=9)
    first = pod(1, scheduled=0, phase="Running", statuses=[status(state=running(5))])
    assert story(seen(first, pod(2, scheduled=0, phase="Running", statuses=[again])))[-1] == (
        5,
        600,
        "tenants",
    )


def test_a_lost_node_stops_the_clock_until_it_is_ready_again() -> None:
    around = replace(AROUND, lost=(Interval(at(60), at(90)),))
    assert story(busy(5), around) == [
        (0, 5, "starting"),
        (5, 60, "tenants"),
        (60, 90, "unavailable"),
        (90, 600, "tenants"),
    ]
    assert story(busy(80), around)[1:] == [
        (10, 60, "tenants"),
        (60, 90, "unavailable"),
        (90, 600, "tenants"),
    ]


def test_lost_time_does_not_count_as_starting() -> None:
    around = replace(AROUND, lost=(Interval(at(4), at(24)),))
    assert story(busy(40), around) == [
        (0, 4, "starting"),
        (4, 24, "unavailable"),
        (24, 30, "starting"),
        (30, 40, "tenants"),
        (40, 600, "tenants"),
    ]


def test_lost_intervals_run_from_the_lease_to_ready() -> None:
    assert lost_intervals([(at(1), at(5)), (at(4), at(9)), (at(30), None), (at(900), None)], at(60)) == (
        Interval(at(1), at(9)),
        Interval(at(30), at(60)),
    )


def test_after_the_last_proof_nobody_pays() -> None:
    gone = missing(replace(busy(5), last_seen_at=at(6)), relisted_at=at(100), last_proof=at(40))
    assert story(gone) == [(0, 5, "starting"), (5, 40, "tenants"), (40, 100, "unattributed")]
    assert lifetime(gone, AROUND).inferred
    assert not lifetime(gone, AROUND).open
    early = replace(AROUND, until=at(30))
    assert story(gone, early) == [(0, 5, "starting"), (5, 30, "tenants")]
    assert not lifetime(gone, early).inferred


def test_a_pod_that_survived_a_gap_is_billed_through_it() -> None:
    """Seen before and after a break of the watch, with one start: the pod was there all the time."""
    obj = pod(scheduled=0, phase="Running", statuses=[status(state=running(5))])
    assert story(seen(obj, obj))[-1] == (5, 600, "tenants")


def test_nothing_is_metered_beyond_the_watermark_or_before_watching_began() -> None:
    around = replace(AROUND, since=at(30), until=at(50))
    life = lifetime(busy(5), around)
    assert [(minutes(s.interval.start), minutes(s.interval.end)) for s in life.segments] == [(30, 50)]
    assert life.first_day
    assert life.open
    assert life.bound_at == at(0)
    assert lifetime(done(20), around).segments == ()
    assert lifetime(busy(70, scheduled=60), around).segments == ()


def test_a_namespace_changes_hands() -> None:
    around = replace(AROUND, claims=(Claim("acme", at(20), at(50)), Claim("blue", at(60))))
    life = lifetime(busy(5), around)
    assert [(minutes(s.interval.start), s.bucket.value, s.tenant) for s in life.segments] == [
        (0, "starting", ""),
        (5, "unattributed", ""),
        (20, "tenants", "acme"),
        (50, "unattributed", ""),
        (60, "tenants", "blue"),
    ]


def test_system_pods_are_overhead() -> None:
    rules = Rules(system_namespaces=frozenset({"kube-system"}))
    evidence = busy(5, namespace="kube-system")
    assert {bucket for _, _, bucket in story(evidence, replace(AROUND, claims=()), rules)} == {"overhead"}
    assert {bucket for _, _, bucket in story(evidence, rules=rules)} == {"starting", "tenants"}, "it was claimed then"
    assert {bucket for _, _, bucket in story(busy(5), rules=rules)} == {"starting", "tenants"}


def test_clocks_that_disagree_never_give_negative_time() -> None:
    backwards = done(end=3, start=5, scheduled=10)
    life = lifetime(backwards, AROUND)
    assert life.clock_skew
    assert life.segments == ()
    assert story(done(end=9, start=5, scheduled=7)) == [(7, 9, "tenants")]


def test_a_node_whose_clock_is_years_behind_does_not_move_the_start() -> None:
    """It is held from when it was bound, by the control plane's clock, not from when watching began."""
    around = replace(AROUND, since=at(-60 * 24 * 90))
    assert story(busy(-60 * 24 * 365 * 20, scheduled=30), around) == [(30, 600, "tenants")]


def test_an_end_in_the_future_is_when_it_was_seen() -> None:
    """A node's clock that is a year ahead would have its pods charged for a year; one 30 s ahead is believed."""
    seen_at_20 = replace(done(end=60 * 24 * 365), terminal_seen_at=at(20))
    assert story(seen_at_20) == [(0, 5, "starting"), (5, 20, "tenants")]
    assert story(replace(done(end=20.5), terminal_seen_at=at(20))) == [(0, 5, "starting"), (5, 20.5, "tenants")]


# --- what must always hold ---

instants = st.integers(0, 700 * 60_000).map(lambda ms: at(0) + timedelta(milliseconds=ms))


def one_span() -> st.SearchStrategy[Interval]:
    return st.tuples(instants, instants).map(lambda pair: Interval(min(pair), max(pair)))


def spans(size: int = 3) -> st.SearchStrategy[tuple[Interval, ...]]:
    return st.lists(one_span(), max_size=size).map(tuple)


@st.composite
def pods(draw: st.DrawFn) -> PodEvidence:
    """A pod bound at 0, perhaps started, perhaps ended, perhaps missing."""
    base = busy(0)
    started = draw(st.one_of(st.none(), instants))
    finished = draw(st.one_of(st.none(), instants)) if started else None
    state = "terminated" if finished else "running" if started else "waiting"
    main = replace(base.containers[0], state=state, first_started_at=started, last_finished_at=finished)
    gone = draw(st.one_of(st.none(), instants))
    proof = draw(st.one_of(st.none(), instants)) if gone else None
    return replace(
        base,
        phase="Succeeded" if finished else "Running",
        containers=(main,),
        gone_at=gone,
        gone_inferred_after=min(proof, gone) if proof and gone else None,
    )


surroundings = st.builds(
    Surroundings,
    until=instants,
    since=st.one_of(st.none(), instants),
    lost=spans(),
    waits=spans(2),
    claims=st.lists(
        st.builds(lambda span, name: Claim(name, span.start, span.end), one_span(),
                  st.sampled_from("ab")), max_size=3,
    ).map(tuple),
)  # fmt: skip


def whole_allocation(evidence: PodEvidence, around: Surroundings) -> list[Allocation]:
    return list(allocations(evidence, [Holding("nvidia.com/gpu", 0, Mode.WHOLE, "h100", Fraction(1))], around))


@settings(max_examples=200)
@given(pods(), surroundings)
def test_segments_are_in_order_without_gap_or_overlap(evidence: PodEvidence, around: Surroundings) -> None:
    life = lifetime(evidence, around)
    for left, right in pairwise(life.segments):
        assert left.interval.end == right.interval.start
    if life.segments:
        assert life.segments[0].interval.start >= (around.since or life.segments[0].interval.start)
        assert life.segments[-1].interval.end <= around.until
        end = evidence.end
        assert end is None or life.segments[-1].interval.end <= max(end.at, evidence.scheduled_at or end.at)
    starting = [s.interval for s in life.segments if s.phase is Phase.STARTING and s.bucket is Bucket.STARTING]
    if not around.waits:
        assert total_ms(starting) <= 600_000
    for segment in life.segments:
        is_lost = any(segment.interval.overlaps(lost) for lost in around.lost)
        assert is_lost == (segment.bucket is Bucket.UNAVAILABLE)
        assert segment.bucket is not Bucket.TENANTS or segment.tenant


@settings(max_examples=200)
@given(pods(), surroundings, st.lists(instants, max_size=6), instants, instants)
def test_usage_adds_up_however_it_is_cut(
    evidence: PodEvidence, around: Surroundings, cuts: list[datetime], one: datetime, other: datetime
) -> None:
    window = Interval(min(one, other), max(one, other))
    for allocation in whole_allocation(evidence, around):
        pieces, fine = list(cut(allocation, window)), list(cut(allocation, window, cuts))
        for bucket in Bucket:
            whole = held_ms(allocation, window, bucket)
            assert sum(p.milliseconds for p in pieces if p.bucket is bucket) == whole
            assert sum(p.milliseconds for p in fine if p.bucket is bucket) == whole
            assert sum(p.charged for p in fine if p.bucket is bucket) == whole * 1_000_000
        assert all(hour_start(p.interval.end - timedelta(microseconds=1)) == p.hour for p in fine)
        assert not any(p.interval.start < edge < p.interval.end for p in fine for edge in cuts)
        assert len({p.key for p in fine}) == len(fine)


@settings(max_examples=100)
@given(pods(), surroundings, instants)
def test_a_later_watermark_only_adds(evidence: PodEvidence, around: Surroundings, later: datetime) -> None:
    """What was metered up to one watermark stays as it is when the same evidence is metered up to a later
    one."""
    first, second = sorted((around.until, later))
    before = whole_allocation(evidence, replace(around, until=first))
    after = whole_allocation(evidence, replace(around, until=second))
    window = Interval(from_epoch_ms(0), first)
    for bucket in Bucket:
        assert [held_ms(a, window, bucket) for a in before] == [held_ms(a, window, bucket) for a in after][
            : len(before)
        ]
