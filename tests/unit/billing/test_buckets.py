"""Conservation: the six buckets are the cards' time in service, to the last unit."""

from datetime import timedelta
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing.metering.buckets import Account, Capacity, Load, account, mig_stranded
from billing.metering.intervals import Bucket
from portal.kernel.clock import Interval, epoch_ms
from tests.unit.infra.pods import at

CARD = 1_000_000
HOUR = Interval(at(0), at(60))
MINUTE = 60_000 * CARD


def load(key: str, start: float, end: float, share: int = CARD, card: str = "", **more: object) -> Load:
    bucket = more.get("bucket", Bucket.TENANTS)
    assert isinstance(bucket, Bucket)
    return Load((key,), Interval(at(start), at(end)), bucket, share, card, certain=more.get("certain", True) is True)


def in_minutes(result: Account) -> dict[str, Fraction]:
    """Card-minutes by bucket, empty ones left out."""
    return {bucket.value: Fraction(units, MINUTE) for bucket, units in result.buckets.items() if units}


def test_whole_cards() -> None:
    result = account(HOUR, [Capacity(HOUR, 4)], [load("a", 0, 30), load("b", 10, 20), load("c", 50, 90)])
    assert in_minutes(result) == {"tenants": 50, "idle": 190}
    assert result.physical == {("a",): 30 * MINUTE, ("b",): 10 * MINUTE, ("c",): 10 * MINUTE}
    assert result.difference == 0
    assert not result.per_card


def test_every_bucket_has_intervals_of_its_own() -> None:
    result = account(
        HOUR,
        [
            Capacity(Interval(at(0), at(40)), 8, unavailable_cards=1),
            Capacity(Interval(at(40), at(60)), 8, lost=True),
        ],
        [
            load("starting", 0, 10, bucket=Bucket.STARTING),
            load("tenant", 10, 40),
            load("lost", 40, 60, bucket=Bucket.UNAVAILABLE),
            load("system", 0, 40, bucket=Bucket.OVERHEAD),
            load("missing", 20, 40, bucket=Bucket.UNATTRIBUTED, certain=False),
        ],
    )
    assert in_minutes(result) == {
        "starting": 10,
        "tenants": 30,
        "overhead": 40,
        "unattributed": 20,
        "unavailable": 40 + 8 * 20,
        "idle": 40 * 8 - 10 - 30 - 40 - 20 - 40,
    }
    assert result.in_service == 480 * MINUTE
    assert result.difference == 0


def test_an_unavailable_card_that_is_held_stays_with_its_tenant() -> None:
    result = account(HOUR, [Capacity(HOUR, 2, unavailable_cards=2)], [load("a", 0, 60)])
    assert in_minutes(result) == {"tenants": 60, "unavailable": 60}


def test_shares_that_exceed_their_card_are_divided() -> None:
    """60 % memory and 80 % cores on one card: 1.4 is charged, one card is what there is."""
    result = account(HOUR, [Capacity(HOUR, 2)], [load("a", 0, 60, 600_000, "x"), load("b", 0, 60, 800_000, "x")])
    assert in_minutes(result) == {"tenants": 60, "idle": 60}
    assert result.physical[("a",)] + result.physical[("b",)] == 60 * MINUTE
    assert abs(result.physical[("a",)] - Fraction(3, 7) * 60 * MINUTE) < 1
    assert result.overbooked == 0
    assert result.per_card
    assert result.difference == 0


def test_only_while_they_overlap() -> None:
    result = account(HOUR, [Capacity(HOUR, 1)], [load("a", 0, 60, 600_000, "x"), load("b", 30, 60, 600_000, "x")])
    assert Fraction(result.physical[("a",)], MINUTE) == Fraction(3, 5) * 30 + Fraction(1, 2) * 30
    assert in_minutes(result) == {"tenants": 48, "idle": 12}


def test_seven_slices_leave_a_millionth_idle_and_geometry_strands() -> None:
    slices = [load(f"s{n}", 0, 60, 142_857) for n in range(7)]
    assert account(HOUR, [Capacity(HOUR, 1)], slices).buckets[Bucket.IDLE] == 3_600_000
    stranded = mig_stranded(2, 7, {3: 4})
    assert stranded == 285_714
    result = account(HOUR, [Capacity(HOUR, 2, stranded=stranded)], [])
    assert result.buckets[Bucket.OVERHEAD] == 3_600_000 * stranded
    assert result.difference == 0
    with pytest.raises(ValueError, match="15 MIG compute slices are more than 2 cards"):
        mig_stranded(2, 7, {3: 5})


def test_what_is_certain_comes_before_what_is_not() -> None:
    """A pod's last proof was at 0; by 20 its card had another one."""
    result = account(
        HOUR,
        [Capacity(HOUR, 1)],
        [load("old", 0, 60, bucket=Bucket.UNATTRIBUTED, certain=False), load("new", 20, 60)],
    )
    assert in_minutes(result) == {"unattributed": 20, "tenants": 40}
    assert result.overbooked == 0


def test_more_than_there_is_fits_and_is_reported() -> None:
    result = account(HOUR, [Capacity(HOUR, 1)], [load("a", 0, 60), load("b", 59, 60)])
    assert in_minutes(result) == {"tenants": 60}
    assert result.overbooked == MINUTE
    assert result.difference == 0


def test_load_without_capacity_is_reported() -> None:
    result = account(HOUR, [Capacity(Interval(at(30), at(60)), 1)], [load("a", 0, 60)])
    assert in_minutes(result) == {"tenants": 30}
    assert result.outside == 30 * MINUTE
    assert result.in_service == 30 * MINUTE


def test_capacity_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="given twice"):
        account(HOUR, [Capacity(HOUR, 1), Capacity(Interval(at(59), at(70)), 1)], [])


# --- always ---

ticks = st.integers(-5, 65)


@st.composite
def some_loads(draw: st.DrawFn) -> list[Load]:
    found = []
    for number in range(draw(st.integers(0, 7))):
        start, end = sorted((draw(ticks), draw(ticks)))
        certain = draw(st.booleans())
        buckets = [Bucket.TENANTS, Bucket.STARTING, Bucket.OVERHEAD, Bucket.UNAVAILABLE, Bucket.UNATTRIBUTED]
        found.append(
            load(
                f"load-{number}",
                start,
                end,
                draw(st.sampled_from([1, 142_857, 333_333, 700_000, CARD])),
                draw(st.sampled_from(["", "x", "y"])),
                bucket=draw(st.sampled_from(buckets)) if certain else Bucket.UNATTRIBUTED,
                certain=certain,
            )
        )
    return found


@st.composite
def some_capacity(draw: st.DrawFn) -> list[Capacity]:
    edges = sorted(draw(st.sets(ticks, min_size=2, max_size=5)))
    return [
        Capacity(
            Interval(at(start), at(end)),
            cards=draw(st.integers(0, 4)),
            unavailable_cards=draw(st.integers(0, 4)),
            lost=draw(st.booleans()),
            stranded=draw(st.sampled_from([0, 1, 428_571])),
        )
        for start, end in pairwise(edges)
        if draw(st.integers(0, 4))
    ]


@settings(max_examples=300)
@given(some_capacity(), some_loads())
def test_the_buckets_are_the_time_in_service(capacity: list[Capacity], loads: list[Load]) -> None:
    result = account(HOUR, capacity, loads)
    assert result.difference == 0
    assert all(units >= 0 for units in result.buckets.values())
    in_service = sum(
        CARD * span.cards * max(0, epoch_ms(min(span.interval.end, at(60))) - epoch_ms(max(span.interval.start, at(0))))
        for span in capacity
    )
    assert result.in_service == in_service
    for one in loads:
        assert 0 <= result.physical.get(one.key, 0) <= one.share * one.interval.ms
        assert one.interval.overlaps(HOUR) == (one.key in result.physical)


@settings(max_examples=100)
@given(some_capacity(), some_loads(), st.integers(1, 59))
def test_two_parts_of_the_hour_are_the_hour(capacity: list[Capacity], loads: list[Load], at_minute: int) -> None:
    """Up to the rounding of shares on overcommitted cards, which stays within one unit a load and part."""
    whole = account(HOUR, capacity, loads)
    parts = [
        account(Interval(at(0), at(at_minute)), capacity, loads),
        account(Interval(at(at_minute), at(60)), capacity, loads),
    ]
    assert sum(part.in_service for part in parts) == whole.in_service
    for bucket in Bucket:
        assert abs(sum(part.buckets[bucket] for part in parts) - whole.buckets[bucket]) <= 2 * (len(loads) + 1)


@settings(max_examples=100)
@given(some_capacity(), some_loads(), st.randoms(use_true_random=False))
def test_the_order_of_loads_does_not_matter(capacity: list[Capacity], loads: list[Load], order: object) -> None:
    shuffled, spans = list(loads), list(capacity)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    order.shuffle(spans)  # type: ignore[attr-defined]
    first, second = account(HOUR, capacity, loads), account(HOUR, spans, shuffled)
    assert (first.buckets, first.physical) == (second.buckets, second.physical)


@settings(max_examples=60)
@given(some_loads(), st.integers(1, 3), st.integers(0, 3), st.integers(0, 59))
def test_idle_is_what_a_look_at_each_minute_finds(loads: list[Load], cards: int, blocked: int, minute: int) -> None:
    """Against the slow way: at any moment, card by card."""
    loads = [one for one in loads if one.certain and not one.device_uuid]
    moment = Interval(at(minute), at(minute) + timedelta(milliseconds=1))
    held = sum(one.share for one in loads if one.interval.start <= moment.start < one.interval.end)
    empty = [max(0, min(CARD, (card + 1) * CARD - held)) for card in range(cards)]
    withheld = min(sum(empty), blocked * CARD)
    result = account(moment, [Capacity(HOUR, cards, unavailable_cards=blocked)], loads)
    assert result.buckets[Bucket.IDLE] == sum(empty) - withheld
