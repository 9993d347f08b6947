"""The share of a card as an exact fraction, before it is floored to a millionth. Pure: no Django."""

from __future__ import annotations

import re
from fractions import Fraction

CARD = 1_000_000
"""A whole card in millionths."""

_PROFILE = re.compile(r"(\d+)g\.\d+gb(?:\+[a-z0-9.+]+)?")


def hami_share(memory_mib: int, cores: int | None, card_memory_mib: int) -> Fraction:
    """max(memory ÷ physical memory of the card, cores ÷ 100), at most one card and at least a millionth of
    it.

    `cores` is percent of a card; None or 0 means that HAMi set no cap, and memory alone counts. Raises
    ValueError for a card without memory or a negative figure.
    """
    if card_memory_mib <= 0 or memory_mib < 0 or (cores or 0) < 0:
        raise ValueError(f"no share of a card of {card_memory_mib} MiB: {memory_mib} MiB and {cores} % of its cores")
    asked = max(Fraction(memory_mib, card_memory_mib), Fraction(cores or 0, 100))
    return min(Fraction(1), max(Fraction(1, CARD), asked))


def mig_compute_slices(profile: str) -> int:
    """Compute slices of a MIG profile: 1 of `1g.10gb`, 3 of `3g.40gb`. Raises ValueError for another form."""
    match = _PROFILE.fullmatch(profile.replace(".me", "+me"))
    if match is None or match.group(1) == "0":
        raise ValueError(f"{profile!r} is no MIG profile; expected a form like 1g.10gb or 3g.40gb")
    return int(match.group(1))


def mig_share(slices: int, card_slices: int) -> Fraction:
    """Compute slices ÷ those of the whole card (7; A30: 4). Raises ValueError where they do not fit."""
    if not 0 < slices <= card_slices:
        raise ValueError(f"{slices} compute slices do not fit a card with {card_slices}")
    return Fraction(slices, card_slices)


def floor_millionths(share: Fraction) -> int:
    """The share in millionths of a card, floored, at least one."""
    return max(1, share.numerator * CARD // share.denominator)
