"""Named parts of cards, and what a pool hands out."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.placement.request import HamiShare
from infra.shares import CARD, PARTS, floor_millionths, hami_share, overcommit_percent, percent_mib

MEMORY = st.integers(1_000, 1_000_000)


@given(st.sampled_from(sorted(PARTS)), MEMORY)
def test_as_many_fit_on_a_card_as_its_name_says(name: str, physical: int) -> None:
    part = PARTS[name]
    each = HamiShare(memory_percent=part.percent, cores=part.cores).mib(physical)
    assert part.of * each <= physical
    assert part.of * part.cores <= 100
    assert part.of * floor_millionths(hami_share(each, part.cores, physical)) <= CARD


@given(st.sampled_from(sorted(PARTS)), MEMORY)
def test_less_than_a_mib_for_each_is_lost(name: str, physical: int) -> None:
    part = PARTS[name]
    assert physical - part.of * percent_mib(physical, part.percent) < part.of


def test_four_quarters_of_an_odd_card() -> None:
    assert HamiShare(memory_percent=25).mib(81_559) == 20_389
    assert HamiShare(memory_percent=PARTS["eighth"].percent).mib(81_559) == 10_194
    assert (PARTS["eighth"].percent, PARTS["eighth"].cores) == (Fraction(25, 2), 12)
    assert PARTS["eighth"].words == "an eighth of a card (12.5 % of its memory, 12 % of its cores)"


@given(MEMORY, st.integers(1, 100))
def test_a_percentage_is_never_more_than_it_says_and_never_nothing(physical: int, percent: int) -> None:
    assert 1 <= percent_mib(physical, percent) <= max(1, physical * percent / 100)


@pytest.mark.parametrize(
    ("register", "physical", "percent"),
    [(81_559, 81_559, 100), (146_806, 81_559, 180), (81_600, 81_559, 100), (40_000, 81_559, 100), (1, 0, 100)],
)
def test_what_a_register_hands_out(register: int, physical: int, percent: int) -> None:
    assert overcommit_percent(register, physical) == percent
