"""Dated prices: overlaps, gaps, and the rate in force."""

from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rates import CPU, MEMORY, Problem, Rate, RateBook, RateKey, Resource, changes, gaps, overlaps
from portal.kernel.clock import Interval, total_ms
from tests.unit.infra.pods import at

H100 = RateKey(Resource.GPU, "h100", "whole")
SLICE = RateKey(Resource.GPU, "h100", "mig", "1g.10gb")
DAY = Interval(at(0), at(1440))


def dated(start: float, end: float | None = None, price: str | None = "2.50", key: RateKey = H100, **more: Any) -> Rate:
    return Rate(
        id=f"r{start:g}",
        key=key,
        price=None if price is None else Decimal(price),
        valid_from=at(start),
        valid_to=None if end is None else at(end),
        **more,
    )


def test_units_follow_from_the_key() -> None:
    assert [key.unit.value for key in (H100, SLICE, CPU, MEMORY)] == [
        "gpu-hour",
        "instance-hour",
        "core-hour",
        "gib-hour",
    ]
    assert [str(key) for key in (H100, SLICE, CPU)] == ["h100 whole", "h100 mig 1g.10gb", "cpu"]


def test_a_margin_is_added() -> None:
    assert dated(0, price="2.00", margin=Decimal("0.15")).unit_price == Fraction("2.3")
    assert dated(0, price=None).unit_price is None
    assert dated(0, price="0").unit_price == 0


def test_a_rate_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        dated(0, price="-1")
    with pytest.raises(ValueError, match="not after its start"):
        dated(5, 5)
    with pytest.raises(ValueError, match="time zone"):
        Rate("r", H100, Decimal(1), datetime.fromisoformat("2026-01-01"))
    with pytest.raises(TypeError):
        Rate("r", H100, 2.5, at(0))  # type: ignore[arg-type]


def test_overlaps_are_told_with_both_rates_and_what_to_do() -> None:
    (problem,) = overlaps([dated(60), dated(0, 90), dated(0, key=SLICE)])
    assert problem.problem is Problem.OVERLAP
    assert (problem.start, problem.end) == (at(60), at(90))
    assert problem.message == (
        "h100 whole: rates r0 and r60 are both in force from 2026-05-04T11:00:00Z until 2026-05-04T11:30:00Z; "
        "end the first one where the second begins"
    )
    (endless,) = overlaps([dated(0), dated(60)])
    assert "until further notice" in endless.message
    assert endless.end is None
    assert overlaps([dated(0, 60), dated(60, 90), dated(100)]) == []
    with pytest.raises(ValueError, match="both in force"):
        RateBook([dated(0), dated(60)])


def test_an_overlap_with_a_rate_further_on_is_found() -> None:
    assert len(overlaps([dated(0, 1000), dated(10, 20), dated(30, 40)])) == 2


def test_gaps_are_told_for_each_key_that_is_needed() -> None:
    found = gaps([dated(0, 60), dated(120)], DAY, [H100, SLICE])
    assert [(one.key, one.start, one.end) for one in found] == [(SLICE, at(0), at(1440)), (H100, at(60), at(120))]
    assert "enter one" in found[1].message
    assert gaps([dated(-60)], DAY, [H100]) == []


def test_the_rate_in_force() -> None:
    book = RateBook([dated(0, 60, "1"), dated(60, None, "2")])
    assert book.for_segment(H100, Interval(at(0), at(60))) == dated(0, 60, "1")
    assert book.for_segment(H100, Interval(at(60), at(61))) == dated(60, None, "2")
    assert book.for_segment(H100, Interval(at(-60), at(0))) is None
    assert book.for_segment(SLICE, DAY) is None
    with pytest.raises(ValueError, match=r"changes at 2026-05-04T11:00:00Z, inside"):
        book.for_segment(H100, Interval(at(0), at(61)))
    with pytest.raises(ValueError, match=r"changes at 2026-05-04T10:00:00Z, inside"):
        book.for_segment(H100, Interval(at(-5), at(5)))


def test_usage_is_cut_where_rates_change() -> None:
    assert changes([dated(0, 60), dated(60, 90), dated(1440)], DAY) == [at(60), at(90)]


rates = st.lists(
    st.tuples(st.integers(-100, 1500), st.one_of(st.none(), st.integers(1, 500))).map(
        lambda pair: dated(pair[0], None if pair[1] is None else pair[0] + pair[1])
    ),
    max_size=6,
)


@given(rates)
def test_gaps_and_rates_cover_the_window_and_overlaps_are_all_found(some: list[Rate]) -> None:
    minutes = [at(0) + timedelta(minutes=n) for n in range(0, 1440, 7)]
    in_force = [
        sum(1 for rate in some if rate.valid_from <= m and (rate.valid_to is None or m < rate.valid_to))
        for m in minutes
    ]
    holes = [Interval(one.start, one.end) for one in gaps(some, DAY, [H100]) if one.end]
    for moment, count in zip(minutes, in_force, strict=True):
        assert any(moment in hole for hole in holes) == (count == 0)
    assert total_ms(holes) <= DAY.ms
    if max(in_force) > 1:
        assert overlaps(some)
