"""The share of a card as an exact fraction, before it is floored to a millionth. Pure: no Django.

The names that metering and quota use, over the one implementation in `infra.shares.charged` and `infra.shares.mig`.
"""

from __future__ import annotations

from fractions import Fraction

from infra.shares.charged import FULL, floor_millionths, hami_fraction
from infra.shares.mig import parse_mig

__all__ = ["CARD", "floor_millionths", "hami_share", "mig_compute_slices", "mig_share"]

CARD = FULL
"""A whole card in millionths."""


def hami_share(memory_mib: int, cores: int | None, card_memory_mib: int) -> Fraction:
    """max(memory ÷ physical memory of the card, cores ÷ 100), at most one card and at least a millionth of it.

    `cores` is percent of a card; None or 0 means that HAMi set no cap, and memory alone counts. Raises ValueError for
    a card without memory or a negative figure.
    """
    return hami_fraction(memory_mib, cores or 0, card_memory_mib)


def mig_compute_slices(profile: str) -> int:
    """Compute slices of a MIG profile: 1 of `1g.10gb`, 3 of `3g.40gb`. Raises ValueError for another form."""
    return parse_mig(profile).compute_slices


def mig_share(slices: int, card_slices: int) -> Fraction:
    """Compute slices ÷ those of the whole card (7; A30: 4). Raises ValueError where they do not fit."""
    if not 0 < slices <= card_slices:
        raise ValueError(f"{slices} compute slices do not fit a card with {card_slices}")
    return Fraction(slices, card_slices)
