"""Differences taken apart: every part from evidence, and their sum is the difference."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.opencost.compare import WORDS, Class, Run, compare, together
from billing.opencost.estimates import Claim, share_out
from billing.opencost.unitcosts import quotient
from portal.kernel.clock import Interval

T = datetime(2026, 11, 3, 14, tzinfo=UTC)
HOUR = Interval(T, T + timedelta(hours=1))
ONE = Fraction(1)


def at(minutes: float, seconds: float = 0) -> datetime:
    return T + timedelta(minutes=minutes, seconds=seconds)


def run(start: float, end: float, *, cards: int = 1, share: Fraction = ONE, sharing: str = "whole", uid: str = "a",
        running: tuple[float, float] | None = None, weak: bool = False) -> Run:  # fmt: skip
    ran = Interval(at(running[0]), at(running[1])) if running else None
    return Run(uid, sharing, cards, share, Interval(at(start), at(end)), ran, weak)


def parts(runs: list[Run], theirs: float | None, **more: datetime) -> dict[Class, Fraction]:
    found = compare(HOUR, runs, None if theirs is None else Fraction(theirs), **more)
    assert found.difference == sum((seconds for _, seconds in found.parts), Fraction(0))
    return dict(found.parts)


def test_a_constant_pod_is_the_same() -> None:
    assert parts([run(0, 60, cards=2)], 7200) == {}
    assert set(parts([run(0, 60)], 3600.04)) == {Class.ROUNDING}


def test_a_quarter_of_a_card_is_a_whole_one() -> None:
    assert parts([run(0, 60, share=Fraction(1, 4), sharing="hami")], 3600) == {Class.HAMI: 2700}


def test_mig_is_nothing() -> None:
    assert parts([run(0, 60, share=Fraction(1, 7), sharing="mig")], 0) == {Class.MIG: Fraction(-3600, 7)}


def test_edges_move_by_five_minutes_at_most() -> None:
    assert parts([run(12, 60)], 50 * 60) == {Class.GRID: 120}
    assert set(parts([run(12, 60)], 3600 - 500)) == {Class.GRID}  # one edge: up to 300 s
    assert set(parts([run(12, 60)], 1800)) == {Class.UNEXPLAINED}  # 1,080 s are more than an edge can be off


def test_a_constant_pod_with_another_figure_is_unexplained() -> None:
    assert parts([run(0, 60)], 3000) == {Class.UNEXPLAINED: -600}
    assert parts([], 600) == {Class.UNEXPLAINED: 600}


def test_a_short_run_has_no_row() -> None:
    assert parts([run(1, 2)], None) == {Class.SHORT: -60}
    assert parts([run(1, 1.5, share=Fraction(1, 2), sharing="hami")], None) == {Class.SHORT: -15}


def test_a_long_run_without_a_row_is_missing() -> None:
    assert parts([run(0, 60, cards=2)], None) == {Class.MISSING: -7200}


def test_a_pod_made_again_is_one_row_with_the_gap() -> None:
    runs = [run(0, 20, uid="a"), run(30, 60, uid="b")]
    assert parts(runs, 3600) == {Class.RECREATED: 600}
    # The last one's cards count for all of it.
    assert parts([run(0, 30, uid="a"), run(30, 60, uid="b", cards=2)], 7200) == {Class.RECREATED: 1800}


def test_held_but_not_yet_running() -> None:
    assert parts([run(0, 60, running=(10, 60))], 3000) == {Class.STARTING: -600}


def test_what_they_know_from_before_us() -> None:
    assert parts([], 600, watched_from=at(70)) == {Class.FIRST_DAY: 600}
    assert parts([run(30, 60, weak=True)], 3600) == {Class.FIRST_DAY: 1800}


def test_each_class_has_words() -> None:
    assert set(WORDS) == set(Class)


minutes = st.integers(0, 60)
runs = st.lists(
    st.builds(
        lambda edges, cards, sharing, share, uid: run(
            min(edges), max(edges), cards=cards, sharing=sharing, uid=uid,
            share=ONE if sharing == "whole" else Fraction(1, share),
        ),
        st.tuples(minutes, minutes), st.integers(1, 8), st.sampled_from(["whole", "hami", "mig"]), st.integers(1, 7),
        st.sampled_from("ab"),
    ),
    max_size=4,
)  # fmt: skip


@given(runs, st.none() | st.decimals(0, 30_000, places=5, allow_nan=False))
def test_the_parts_are_the_difference_to_the_last_digit(found: list[Run], theirs: Decimal | None) -> None:
    one = compare(HOUR, found, None if theirs is None else Fraction(theirs))
    assert one.difference == sum((seconds for _, seconds in one.parts), Fraction(0))
    assert all(seconds for _, seconds in one.parts)
    both = together([one, one])
    assert both.difference == 2 * one.difference == sum((seconds for _, seconds in both.parts), Fraction(0))


# --- prices ----------------------------------------------------------------------------------------------------------


@given(st.decimals("0.0001", "100", places=4, allow_nan=False), st.decimals("1", "100000", places=3, allow_nan=False))
def test_a_price_comes_back_from_figures_that_were_rounded(price: Decimal, quantity: Decimal) -> None:
    """What comes back rounds to the same figures, and has no more decimals than what was entered."""
    cost = round(price * quantity, 5)
    found = quotient(cost, quantity, 5)
    if found is None:
        return  # too thin to tell
    assert abs(Fraction(found) * Fraction(quantity) - Fraction(cost)) <= Fraction(1 + Fraction(found), 10**5)
    assert int(found.normalize().as_tuple().exponent) >= int(price.normalize().as_tuple().exponent)


def test_prices_by_hand() -> None:
    assert quotient(Decimal("33.333333"), Decimal("13.333333"), 6) == Decimal("2.5")
    assert quotient(Decimal(0), Decimal(1), 5) is None
    assert quotient(Decimal(1), Decimal(0), 5) is None
    assert quotient(Decimal("0.00002"), Decimal("0.00001"), 5) is None


# --- whose it is -----------------------------------------------------------------------------------------------------

TEAM, OTHER = UUID(int=1), UUID(int=2)


def test_nobodys_part_is_nobodys() -> None:
    found = share_out(Decimal("1.2"), HOUR, [Claim(TEAM, "CC1", at(45), None)])
    assert [(part.tenant_id, part.cost_code, part.amount) for part in found] == [
        (TEAM, "CC1", Decimal("0.3")), (None, "", Decimal("0.9")),
    ]  # fmt: skip


@given(
    st.decimals(0, 10_000, places=5, allow_nan=False),
    st.lists(st.integers(-30, 90), min_size=2, max_size=6, unique=True),
)
def test_the_parts_of_a_cost_are_the_cost(cost: Decimal, edges: list[int]) -> None:
    points = sorted(edges)
    claims = [Claim(uuid4(), "", at(a), at(b)) for a, b in pairwise(points)]
    assert sum((part.amount for part in share_out(cost, HOUR, claims)), Decimal(0)) == cost


@pytest.mark.parametrize("end", [None, at(60)])
def test_one_claim_has_all_of_it(end: datetime | None) -> None:
    (part,) = share_out(Decimal("0.123456789012"), HOUR, [Claim(TEAM, "", at(-600), end)])
    assert (part.tenant_id, part.amount) == (TEAM, Decimal("0.123456789012"))
