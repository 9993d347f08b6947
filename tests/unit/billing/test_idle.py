"""Idle time by reason: by hand for each reason, and for any fleet exactly what was idle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.metering.idle import Demand, Lacks, Piece, Promise, Reason, Stretch, cut_to, split_idle
from billing.metering.promises import Kept, promises_of

CARD = 1_000_000
HOUR = 3_600_000
FULL = 81_920


def whole(node: str, cards: int, start: int = 0, end: int = HOUR, zone: str = "") -> Stretch:
    return Stretch(node, start, end, (Piece(cards * CARD),), zone)


def shared(node: str, *cards: tuple[int, int, int], zone: str = "") -> Stretch:
    """A node of HAMi cards, each (percent that is idle, free percent of memory, free percent of cores)."""
    pieces = tuple(
        Piece(
            idle * CARD // 100, f"{node}-{index}", shared=True, free_mib=memory * FULL // 100, card_mib=FULL,
            free_cores=cores, free_slots=3, zone=zone,
        )
        for index, (idle, memory, cores) in enumerate(cards)
    )  # fmt: skip
    return Stretch(node, 0, HOUR, pieces)


def wants(
    count: int, pods: int = 1, lacks: Lacks = Lacks.DEVICES, start: int = 0, end: int = HOUR, **more: object
) -> Demand:
    return Demand(start, end, lacks, count, pods, **more)  # type: ignore[arg-type]


def hours(split: Mapping[tuple[object, Reason], int]) -> dict[tuple[object, str], float]:
    """Card-hours by node and reason."""
    return {(node, reason.value): units / (CARD * HOUR) for (node, reason), units in split.items() if units}


def test_nobody_waits() -> None:
    found = split_idle([whole("a", 3), whole("b", 2, zone="clinical")])
    assert hours(found.reasons) == {("a", "no_demand"): 3, ("b", "zone"): 2}


def test_a_quota_blocks_what_fits_for_as_long_as_somebody_waits() -> None:
    asks = wants(2, pods=2, lacks=Lacks.QUOTA, start=HOUR // 2, who="vision", owner="audio")
    found = split_idle([whole("a", 3), whole("b", 2)], demands=[asks])
    # From half past: two cards of b (the tighter node), two of a; a's third is nobody's wish.
    assert hours(found.reasons) == {
        ("a", "no_demand"): 2.0, ("a", "quota"): 1.0, ("b", "no_demand"): 1.0, ("b", "quota"): 1.0,
    }  # fmt: skip
    assert {key: units / (CARD * HOUR) for key, units in found.blocked.items()} == {
        ("a", "vision", "audio"): 1.0, ("b", "vision", "audio"): 1.0,
    }  # fmt: skip


def test_what_does_not_fit_is_not_blocked_by_the_quota() -> None:
    found = split_idle([whole("a", 3), whole("b", 2)], demands=[wants(4, lacks=Lacks.QUOTA)])
    assert hours(found.reasons) == {("a", "no_demand"): 3, ("b", "no_demand"): 2}


def test_fragmented() -> None:
    found = split_idle([whole("a", 3), whole("b", 2)], demands=[wants(4)])
    assert hours(found.reasons) == {("a", "fragmented"): 3, ("b", "fragmented"): 1, ("b", "no_demand"): 1}
    enough = split_idle([whole("a", 1), whole("b", 2)], demands=[wants(4)])
    assert hours(enough.reasons) == {("a", "no_demand"): 1, ("b", "no_demand"): 2}, "three are not four"
    fits = split_idle([whole("a", 4), whole("b", 2)], demands=[wants(4)])
    assert hours(fits.reasons) == {("a", "pending"): 4, ("b", "no_demand"): 2}
    host = split_idle([whole("a", 4)], demands=[wants(2, lacks=Lacks.HOST)])
    assert hours(host.reasons) == {("a", "stranded"): 2, ("a", "no_demand"): 2}


def test_another_zone_waits_in_vain() -> None:
    found = split_idle([whole("a", 2, zone="clinical")], demands=[wants(1, zone="research")])
    assert hours(found.reasons) == {("a", "zone"): 2}
    own = split_idle([whole("a", 2, zone="clinical")], demands=[wants(1, zone="clinical", lacks=Lacks.QUOTA)])
    assert hours(own.reasons) == {("a", "quota"): 1, ("a", "zone"): 1}


def test_a_shared_card_with_one_dimension_used_up() -> None:
    part = wants(1, memory_mib=40 * FULL // 100, cores=40)
    # 90 % of the memory is free and 30 % of the cores: the ask for 40/40 can't have it.
    assert hours(split_idle([shared("a", (30, 90, 30))], demands=[part]).reasons) == {("a", "stranded"): 0.3}
    assert hours(split_idle([shared("a", (30, 90, 30))]).reasons) == {("a", "no_demand"): 0.3}
    assert hours(split_idle([shared("a", (5, 50, 0), (5, 0, 50))]).reasons) == {("a", "stranded"): 0.1}
    none = replace(shared("a", (50, 50, 50)).pieces[0], free_slots=0)
    assert hours(split_idle([Stretch("a", 0, HOUR, (none,))]).reasons) == {("a", "stranded"): 0.5}, "no slot left"


def test_parts_that_are_enough_only_together() -> None:
    part = wants(1, memory_mib=50 * FULL // 100, cores=50)
    found = split_idle([shared("a", (30, 30, 30), (30, 30, 30))], demands=[part])
    assert hours(found.reasons) == {("a", "fragmented"): 0.5, ("a", "no_demand"): pytest.approx(0.1)}
    two = wants(2, memory_mib=30 * FULL // 100, cores=30)
    apart = split_idle([shared("a", (30, 30, 30)), shared("b", (40, 40, 40))], demands=[two])
    assert hours(apart.reasons) == {
        ("a", "fragmented"): 0.3, ("b", "fragmented"): 0.3, ("b", "no_demand"): pytest.approx(0.1),
    }  # fmt: skip
    held = shared("a", (60, 60, 60), zone="clinical")
    assert hours(split_idle([held], demands=[replace(part, zone="research")]).reasons) == {("a", "no_demand"): 0.6}


def test_mig_slices_of_another_profile() -> None:
    unit = CARD // 7
    free = Stretch("a", 0, HOUR, (Piece(5 * unit, profile="1g.10gb", unit=unit),))
    other = split_idle([free], demands=[wants(1, profile="3g.40gb", unit=3 * unit)])
    assert other.of("a")[Reason.STRANDED] == 3 * unit * HOUR
    assert other.of("a")[Reason.NO_DEMAND] == 2 * unit * HOUR
    same = split_idle([free], demands=[wants(2, lacks=Lacks.QUOTA, profile="1g.10gb", unit=unit)])
    assert same.of("a")[Reason.QUOTA] == 2 * unit * HOUR
    single = split_idle([free], demands=[wants(1, lacks=Lacks.QUOTA)])
    assert single.of("a")[Reason.QUOTA] == unit * HOUR, "a pool cut in one way hands its slices out as whole devices"


def test_promised_and_not_taken_up() -> None:
    promise = Promise("a", 0, HOUR // 4, 2 * CARD)
    found = split_idle([whole("a", 3)], [promise], [wants(1, lacks=Lacks.QUOTA)])
    assert hours(found.reasons) == {("a", "reserved"): 0.5, ("a", "quota"): 1.0, ("a", "no_demand"): 1.5}
    card = Promise("h", 0, HOUR, 400_000, "h-1", memory_mib=40 * FULL // 100, cores=40)
    left = split_idle([shared("h", (100, 100, 100), (60, 60, 60))], [card])
    assert hours(left.reasons) == {("h", "reserved"): 0.4, ("h", "no_demand"): 1.2}


def test_promises_end_where_a_pod_of_the_replica_holds() -> None:
    kept = Kept("a", "r1", 0, 100, 2 * CARD)
    pods = [Kept("a", "r1", 30, 60, CARD), Kept("a", "r2", 0, 100, CARD), Kept("b", "r1", 0, 100, CARD)]
    found = [(one.start, one.end, one.amount // CARD) for one in promises_of([kept], pods)]
    assert found == [(0, 30, 2), (30, 60, 1), (60, 100, 2)]


def test_withheld_cards_are_the_emptiest() -> None:
    pieces = [Piece(CARD, "x"), Piece(400_000, "y")]
    assert [(one.uuid, one.amount) for one in cut_to(pieces, 400_000)] == [("y", 400_000)]
    assert cut_to(pieces, 1_500_000)[-1] == Piece(100_000), "what is on no known card"


# --- any fleet -------------------------------------------------------------------------------------------------------

amounts = st.integers(0, CARD)
pieces = st.one_of(
    st.builds(Piece, st.integers(0, 8 * CARD)),
    st.builds(
        Piece, amounts, st.sampled_from(["x", "y"]), shared=st.just(True), free_mib=st.integers(0, FULL),
        card_mib=st.just(FULL), free_cores=st.integers(0, 100), free_slots=st.integers(0, 3),
        zone=st.sampled_from(["", "z1", "?"]),
    ),
    st.builds(
        lambda number, profile: Piece(number * (CARD // 7), profile=profile, unit=CARD // 7),
        st.integers(0, 7), st.sampled_from(["1g.10gb", "2g.20gb"]),
    ),
)  # fmt: skip
moments = st.lists(st.integers(0, 60), min_size=2, max_size=5, unique=True).map(sorted)


@st.composite
def stretches_of(draw: st.DrawFn) -> list[Stretch]:
    found = []
    for node in draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)):
        zone = draw(st.sampled_from(["", "z1"]))
        edges = draw(moments)
        for start, end in pairwise(edges):
            found.append(Stretch(node, start, end, tuple(draw(st.lists(pieces, max_size=4))), zone))
    return found


@st.composite
def demands_of(draw: st.DrawFn) -> list[Demand]:
    def one() -> Demand:
        start, end = sorted(draw(st.lists(st.integers(0, 60), min_size=2, max_size=2, unique=True)))
        kind = draw(st.sampled_from(["whole", "hami", "mig"]))
        return Demand(
            start, end, draw(st.sampled_from(list(Lacks))), draw(st.integers(1, 4)), draw(st.integers(0, 3)),
            zone=draw(st.sampled_from(["z1", "z2"])),
            memory_mib=draw(st.integers(1, FULL)) if kind == "hami" else 0,
            cores=draw(st.integers(0, 100)) if kind == "hami" else 0,
            profile="1g.10gb" if kind == "mig" else "", unit=CARD // 7 if kind == "mig" else 0,
            who=("tenant", "deployment"), owner=draw(st.sampled_from([None, "owner"])),
        )  # fmt: skip

    return [one() for _ in range(draw(st.integers(0, 3)))]


@st.composite
def promises(draw: st.DrawFn) -> list[Promise]:
    found = []
    for _ in range(draw(st.integers(0, 3))):
        start, end = sorted(draw(st.lists(st.integers(0, 60), min_size=2, max_size=2, unique=True)))
        where, card = draw(st.sampled_from("abcd")), draw(st.sampled_from(["", "x"]))
        amount, memory, cores = draw(st.integers(0, 2 * CARD)), draw(st.integers(0, FULL)), draw(st.integers(0, 100))
        found.append(Promise(where, start, end, amount, card, memory_mib=memory, cores=cores))
    return found


@given(stretches_of(), promises(), demands_of())
def test_the_reasons_are_the_idle_time(nodes: list[Stretch], kept: list[Promise], asks: list[Demand]) -> None:
    """Of every node, whatever it is; the blocked part is that of the quota; and nothing is negative."""
    found = split_idle(nodes, kept, asks)
    for node in {one.node for one in nodes}:
        idle = sum(
            sum(piece.amount for piece in one.pieces) * (one.end - one.start) for one in nodes if one.node == node
        )
        assert sum(found.of(node).values()) == idle
        blocked = sum(units for (where, _, _), units in found.blocked.items() if where == node)
        assert found.of(node)[Reason.QUOTA] == blocked
    assert all(units >= 0 for units in (*found.reasons.values(), *found.blocked.values()))
    assert all(node in {one.node for one in nodes} for node, _ in found.reasons)


@given(stretches_of(), promises(), demands_of(), st.integers(1, 59))
def test_an_hour_may_be_cut_anywhere(nodes: list[Stretch], kept: list[Promise], asks: list[Demand], cut: int) -> None:
    """The same intervals, cut at any instant, give the same reasons."""

    def halves(one: Stretch) -> list[Stretch]:
        if not one.start < cut < one.end:
            return [one]
        return [replace(one, end=cut), replace(one, start=cut)]

    once = split_idle(nodes, kept, asks)
    twice = split_idle([half for one in nodes for half in halves(one)], kept, asks)
    assert {k: v for k, v in once.reasons.items() if v} == {k: v for k, v in twice.reasons.items() if v}


@given(stretches_of(), demands_of())
def test_who_does_not_wait_changes_nothing(nodes: list[Stretch], asks: list[Demand]) -> None:
    """Time in which nobody waits is never blamed on a wait."""
    found = split_idle(nodes, (), asks)
    quiet = split_idle(nodes)
    asked = {one for one in asks if one.pods}
    for node in {one.node for one in nodes}:
        during = sum(
            sum(piece.amount for piece in one.pieces)
            for one in nodes
            if one.node == node
            for moment in range(one.start, one.end)
            if any(ask.start <= moment < ask.end for ask in asked)
        )
        more = sum(
            found.of(node)[reason] - quiet.of(node)[reason]
            for reason in (Reason.QUOTA, Reason.FRAGMENTED, Reason.STRANDED, Reason.PENDING)
        )
        assert 0 <= more <= during
