"""Shares of cards, and MIG profiles."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.shares import CARD, MigFormatError, capped_cores, floor_millionths, hami_share, mig_share, parse_mig

# ------------------------------------------------------------------------------------------------- charged


@pytest.mark.parametrize(
    ("memory", "cores", "physical", "fraction", "millionths"),
    [
        (20_000, 25, 81_920, Fraction(1, 4), 250_000),
        (60_000, 10, 81_920, Fraction(375, 512), 732_421),
        (40_960, 0, 81_920, Fraction(1, 2), 500_000),
        (10_000, 30, 81_920, Fraction(3, 10), 300_000),
        (0, 0, 81_920, Fraction(1, CARD), 1),
        (1, 0, 10**9, Fraction(1, CARD), 1),
        (147_456, 10, 81_920, Fraction(1), CARD),
        (1, 250, 81_920, Fraction(1), CARD),
    ],
)
def test_hami_share(memory: int, cores: int, physical: int, fraction: Fraction, millionths: int) -> None:
    share = hami_share(memory, cores, physical)
    assert (share, floor_millionths(share)) == (fraction, millionths)


def test_the_recorded_card_is_exact() -> None:
    assert hami_share(60_000, 10, 81_920) == Fraction("0.732421875")


@pytest.mark.parametrize(("memory", "cores", "physical"), [(1, 1, 0), (1, 1, -5), (-1, 1, 10), (1, -1, 10)])
def test_a_share_needs_a_card_and_amounts(memory: int, cores: int, physical: int) -> None:
    with pytest.raises(ValueError, match=r"physical memory|negative"):
        hami_share(memory, cores, physical)


def test_no_cap_of_cores_leaves_the_memory() -> None:
    assert hami_share(40_960, None, 81_920) == hami_share(40_960, 0, 81_920) == Fraction(1, 2)


def test_cores_of_our_own_manifests() -> None:
    assert capped_cores(20_000, 81_920) == 25
    assert capped_cores(1, 81_920) == 1
    assert capped_cores(200_000, 81_920) == 100


@given(st.integers(0, 200_000), st.integers(0, 200), st.integers(1, 200_000))
def test_the_charged_share_is_a_floor_between_a_millionth_and_a_card(memory: int, cores: int, physical: int) -> None:
    share = hami_share(memory, cores, physical)
    millionths = floor_millionths(share)
    assert 1 <= millionths <= CARD
    assert Fraction(millionths, CARD) <= share < Fraction(millionths + 1, CARD)
    assert share >= min(Fraction(1), max(Fraction(memory, physical), Fraction(cores, 100)))


# --------------------------------------------------------------------------------------------------- MIG


@pytest.mark.parametrize(
    ("text", "compute", "instance", "memory", "attributes", "canonical"),
    [
        ("1g.10gb", 1, 1, 10, (), "1g.10gb"),
        ("nvidia.com/mig-1g.10gb", 1, 1, 10, (), "1g.10gb"),
        ("nvidia.com/mig-1g.10gb.me", 1, 1, 10, ("me",), "1g.10gb+me"),
        ("1g.10gb+me", 1, 1, 10, ("me",), "1g.10gb+me"),
        ("1g.12gb+me.all", 1, 1, 12, ("me.all",), "1g.12gb+me.all"),
        ("1g.24gb+gfx", 1, 1, 24, ("gfx",), "1g.24gb+gfx"),
        ("nvidia.com/mig-1g.24gb-me", 1, 1, 24, ("-me",), "1g.24gb-me"),
        ("1c.2g.20gb", 1, 2, 20, (), "1c.2g.20gb"),
        ("7g.80gb", 7, 7, 80, (), "7g.80gb"),
    ],
)
def test_mig_profiles(
    text: str, compute: int, instance: int, memory: int, attributes: tuple[str, ...], canonical: str
) -> None:
    profile = parse_mig(text)
    assert (profile.compute_slices, profile.instance_slices) == (compute, instance)
    assert (profile.memory_gb, profile.attributes, str(profile)) == (memory, attributes, canonical)
    assert parse_mig(str(profile)) == profile


@pytest.mark.parametrize("text", ["", "1g", "10gb", "0g.10gb", "8x.10gb", "2c.1g.10gb", "1g.10gb+", "nvidia.com/gpu"])
def test_what_is_no_profile_is_told(text: str) -> None:
    with pytest.raises(MigFormatError, match=r"expected e\.g\.|do not fit"):
        parse_mig(text)


def test_mig_shares_are_slices_of_seven_or_of_four() -> None:
    assert mig_share("1g.10gb", 7) == mig_share(parse_mig("1c.2g.20gb"), 7) == Fraction(1, 7)
    assert mig_share("3g.40gb", 7) == Fraction(3, 7)
    assert 7 * floor_millionths(mig_share("1g.10gb", 7)) == 999_999
    assert mig_share("2g.12gb", 4) == Fraction(1, 2)
    with pytest.raises(ValueError, match="7 compute slices do not fit a card with 4"):
        mig_share("7g.24gb", 4)
    with pytest.raises(ValueError, match="no MIG profile"):
        mig_share("all", 7)
