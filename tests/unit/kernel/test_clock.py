"""Instants, half-open intervals and billing periods."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.kernel import clock
from portal.kernel.clock import Interval

BASE = datetime(2026, 11, 29, 16, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return BASE + timedelta(minutes=minutes)


def span(start: float, end: float) -> Interval:
    return Interval(at(start), at(end))


instants = st.integers(min_value=-(10**10), max_value=10**10).map(lambda us: BASE + timedelta(microseconds=us))
intervals = st.tuples(instants, instants).map(lambda pair: Interval(min(pair), max(pair)))
minutes = st.integers(min_value=0, max_value=200)
short = st.tuples(minutes, minutes).map(lambda pair: span(min(pair), max(pair)))


def seconds_in(spans: list[Interval]) -> set[int]:
    """Whole minutes covered, the slow way."""
    return {
        minute for minute in range(-1, 202) for one in spans if one.start <= at(minute) and at(minute + 1) <= one.end
    }


def test_now_is_utc_and_can_be_set() -> None:
    local = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    with clock.time_source(lambda: local):
        assert clock.utcnow() == datetime(2026, 3, 1, 10, tzinfo=UTC)
        assert clock.utcnow().tzinfo is UTC
    assert clock.utcnow() > datetime(2025, 1, 1, tzinfo=UTC)


def test_a_naive_now_is_refused() -> None:
    with (
        clock.time_source(lambda: at(0).replace(tzinfo=None)),
        pytest.raises(ValueError, match="no time zone"),
    ):
        clock.utcnow()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-29T16:31:14Z", datetime(2026, 11, 29, 16, 31, 14, tzinfo=UTC)),
        ("2026-11-29t16:31:14.25z", datetime(2026, 11, 29, 16, 31, 14, 250000, tzinfo=UTC)),
        ("2026-11-29T16:31:14.123456789Z", datetime(2026, 11, 29, 16, 31, 14, 123456, tzinfo=UTC)),
        ("2026-11-29T16:31:14+01:30", datetime(2026, 11, 29, 15, 1, 14, tzinfo=UTC)),
        ("2026-11-29T23:31:14-01:00", datetime(2026, 11, 30, 0, 31, 14, tzinfo=UTC)),
    ],
)
def test_rfc3339_is_read(text: str, expected: datetime) -> None:
    assert clock.parse_rfc3339(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-29T16:31:14",
        "2026-11-29 16:31:14Z",
        "2026-11-29",
        "2026-02-30T00:00:00Z",
        "2026-11-29T25:00:00Z",
        "2026-11-29T16:31:14+24:00",
        "2026-11-29T16:31:14.Z",
        " 2026-11-29T16:31:14Z",
        "2026-11-29T16:31:14Z\n",
        "0001-01-01T00:00:00+01:00",
        "",
    ],
)
def test_what_is_no_rfc3339_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="instant"):
        clock.parse_rfc3339(text)


@given(instants)
def test_rfc3339_round_trip(instant: datetime) -> None:
    assert clock.parse_rfc3339(clock.format_rfc3339(instant)) == instant
    assert clock.from_epoch_ms(clock.epoch_ms(instant)) <= instant < clock.from_epoch_ms(clock.epoch_ms(instant) + 1)


def test_an_interval_is_half_open() -> None:
    hour = span(0, 60)
    assert hour.start in hour
    assert hour.end not in hour
    assert hour.ms == 3_600_000
    assert not hour.overlaps(span(60, 61))
    assert span(5, 5).is_empty
    with pytest.raises(ValueError, match="before its start"):
        span(2, 1)
    with pytest.raises(ValueError, match="no time zone"):
        Interval(at(0).replace(tzinfo=None), at(0))


@given(intervals, st.lists(instants, max_size=8))
def test_the_parts_of_a_cut_add_up_to_the_whole(whole: Interval, cuts: list[datetime]) -> None:
    parts = clock.split_at(whole, cuts)
    assert clock.total_ms(parts) == whole.ms
    assert clock.union(parts) == ([] if whole.is_empty else [whole])
    assert not any(part.start < cut < part.end for part in parts for cut in cuts)


@given(short, st.lists(short, max_size=6))
def test_subtract_and_intersect_split_the_whole(whole: Interval, holes: list[Interval]) -> None:
    rest, common = clock.subtract(whole, holes), clock.intersect([whole], holes)
    assert seconds_in(rest) == seconds_in([whole]) - seconds_in(clock.union(holes))
    assert seconds_in(common) == seconds_in([whole]) & seconds_in(clock.union(holes))
    assert clock.total_ms(rest) + clock.total_ms(common) == whole.ms


@given(st.lists(short, max_size=8))
def test_union_is_sorted_apart_and_covers_the_same(spans: list[Interval]) -> None:
    merged = clock.union(spans)
    assert all(left.end < right.start for left, right in pairwise(merged))
    assert seconds_in(merged) == {minute for one in spans for minute in seconds_in([one])}
    assert clock.union(reversed(spans)) == merged


@given(short, short)
def test_clip_is_the_common_part(one: Interval, window: Interval) -> None:
    part = clock.clip(one, window)
    assert ([part] if part else []) == clock.intersect([one], [window])


@pytest.mark.parametrize(
    ("year", "month", "zone", "hours"),
    [
        (2026, 11, "UTC", 720),
        (2026, 3, "Europe/Berlin", 743),
        (2026, 10, "Europe/Berlin", 745),
        (2026, 3, "America/New_York", 743),
        (2026, 11, "America/New_York", 721),
        (2028, 2, "Asia/Kolkata", 696),
        (2026, 12, "Pacific/Auckland", 744),
    ],
)
def test_a_billing_month_is_as_long_as_the_zone_makes_it(year: int, month: int, zone: str, hours: int) -> None:
    period = clock.billing_month(year, month, zone)
    assert period.ms == hours * 3_600_000
    assert period.label == f"{year}-{month:02d}"


def test_a_month_begins_at_local_midnight() -> None:
    period = clock.billing_month(2026, 7, "Europe/Berlin")
    assert period.start == datetime(2026, 6, 30, 22, tzinfo=UTC)
    assert period.end == datetime(2026, 7, 31, 22, tzinfo=UTC)


@given(instants, st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia"]))
def test_every_instant_lies_in_exactly_one_period(instant: datetime, zone: str) -> None:
    period = clock.period_of(instant, zone)
    after, before = clock.next_period(period), clock.previous_period(period)
    assert instant in period
    assert (before.end, period.end) == (period.start, after.start)
    assert clock.previous_period(after) == period == clock.next_period(before)


def test_errors_of_periods_say_what_to_write() -> None:
    with pytest.raises(ValueError, match="no IANA time zone"):
        clock.billing_month(2026, 1, "Mars/Olympus")
    with pytest.raises(ValueError, match="month"):
        clock.billing_month(2026, 13, "UTC")
