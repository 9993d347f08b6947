"""The charged share of a card: what was held, by the larger of its two dimensions.

Charged shares on one card may exceed it (60 % of the memory beside 80 % of the compute).
"""

from __future__ import annotations

from fractions import Fraction

from infra.shares.mig import MigProfile, parse_mig

CARD = 1_000_000
"""A whole card in millionths."""
SLICES = 7
"""Compute slices of a card of which nobody said how many it has: of all that can be cut, but for the A30."""
_LEAST = Fraction(1, CARD)


def floor_millionths(share: Fraction) -> int:
    """A share in millionths of a card, rounded down; at least 1, at most a card."""
    return max(1, min(CARD, share.numerator * CARD // share.denominator))


def hami_share(memory_mib: int, cores: int | None, physical_mib: int) -> Fraction:
    """max(memory ÷ physical memory of the card, cores ÷ 100); at least 1 millionth, at most one card.

    memory_mib and physical_mib in MiB, cores in percent of one card; None or 0: HAMi set no cap, and memory alone
    counts. HAMi's scaled memory is not the denominator: pass the card's physical memory. Raises ValueError for a card
    without memory or a negative amount.
    """
    cores = cores or 0
    if physical_mib <= 0:
        raise ValueError(f"no share of a card of {physical_mib} MiB: the physical memory of the card is needed")
    if memory_mib < 0 or cores < 0:
        raise ValueError(f"no share of {memory_mib} MiB and {cores} % of the cores: amounts cannot be negative")
    share = max(Fraction(memory_mib, physical_mib), Fraction(cores, 100))
    return min(Fraction(1), max(_LEAST, share))


def capped_cores(memory_mib: int, physical_mib: int) -> int:
    """The cores our own manifests set when none are asked for: the memory's percentage, rounded up; 1 to 100."""
    return max(1, min(100, -(-memory_mib * 100 // physical_mib)))


def mig_share(profile: str | MigProfile, card_slices: int) -> Fraction:
    """Compute slices of one MIG slice ÷ those of the whole card (7; A30: 4).

    Raises MigFormatError (a ValueError) for what is no profile, ValueError for one larger than the card.
    """
    parsed = parse_mig(profile) if isinstance(profile, str) else profile
    if parsed.compute_slices > card_slices:
        raise ValueError(f"MIG profile {parsed}: {parsed.compute_slices} compute slices do not fit a card "
                         f"with {card_slices}")  # fmt: skip
    return Fraction(parsed.compute_slices, card_slices)
