"""The charged share, in millionths of a card, and the physical share that makes a card's time add up.

Charged is what was held, by the larger of its two dimensions; charged shares on one card may exceed it (60 % of the
memory beside 80 % of the compute). Physical is charged ÷ max(1, Σ charged on the card): never more than the card.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

from infra.shares.mig import MigProfile, parse_mig

FULL = 1_000_000
_LEAST = Fraction(1, FULL)

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Share:
    """A charged share. `compute_uncapped`: HAMi was given no limit of cores, so the holder may compute with the
    whole card; it is priced by memory, and shown with this flag."""

    millionths: int
    fraction: Fraction
    compute_uncapped: bool = False


def floor_millionths(fraction: Fraction) -> int:
    """A share as an int, rounded down; at least 1 millionth, at most a card."""
    return max(1, min(FULL, fraction.numerator * FULL // fraction.denominator))


def hami_fraction(memory_mib: int, cores: int, physical_mib: int) -> Fraction:
    """max(memory ÷ physical memory of the card, cores ÷ 100), exactly; at least 1 millionth, at most one card.

    memory_mib and physical_mib in MiB, cores in percent of one card. HAMi's scaled memory is not the denominator:
    pass the card's physical memory. Raises ValueError for a card without memory or a negative amount.
    """
    if physical_mib <= 0:
        raise ValueError(f"no share of a card of {physical_mib} MiB: the physical memory of the card is needed")
    if memory_mib < 0 or cores < 0:
        raise ValueError(f"no share of {memory_mib} MiB and {cores} % of the cores: amounts cannot be negative")
    share = max(Fraction(memory_mib, physical_mib), Fraction(cores, 100))
    return min(Fraction(1), max(_LEAST, share))


def hami_share(memory_mib: int, cores: int, physical_mib: int) -> Share:
    """The charged share of one HAMi device; see `hami_fraction`."""
    fraction = hami_fraction(memory_mib, cores, physical_mib)
    return Share(floor_millionths(fraction), fraction, compute_uncapped=cores == 0)


def capped_cores(memory_mib: int, physical_mib: int) -> int:
    """The cores our own manifests set when none are asked for: the memory's percentage, rounded up; 1 to 100."""
    return max(1, min(100, -(-memory_mib * 100 // physical_mib)))


def mig_fraction(profile: str | MigProfile, slices: int = 7) -> Fraction:
    """Compute slices ÷ slices of the card (7; 4 for an A30: `slices_per_card`), exactly.

    Raises MigFormatError (a ValueError) for an unknown profile, ValueError for one larger than the card.
    """
    parsed = parse_mig(profile) if isinstance(profile, str) else profile
    if parsed.compute_slices > slices:
        raise ValueError(f"MIG profile {parsed} has more compute slices than the card has ({slices})")
    return Fraction(parsed.compute_slices, slices)


def mig_share(profile: str | MigProfile, slices: int = 7) -> Share:
    """The charged share of one MIG slice; see `mig_fraction`."""
    fraction = mig_fraction(profile, slices)
    return Share(floor_millionths(fraction), fraction)


def whole_share(cards: int = 1) -> int:
    """Millionths of `cards` whole cards."""
    if cards < 0:
        raise ValueError(f"{cards} cards: a count cannot be negative")
    return cards * FULL


def physical_fractions(charged: Mapping[K, Fraction]) -> dict[K, Fraction]:
    """Physical shares of the holders of one card, exactly; they add up to min(1, Σ charged)."""
    total = max(Fraction(1), sum(charged.values(), Fraction(0)))
    return {key: share / total for key, share in charged.items()}


def physical_shares(charged: Mapping[K, int]) -> dict[K, int]:
    """Physical shares in millionths of the holders of one card.

    They add up to exactly min(FULL, Σ charged): what rounding leaves goes to the largest remainders, equal ones in
    order of the key's text, so the answer does not depend on the order of the mapping.
    """
    total = sum(charged.values())
    if total <= FULL:
        return dict(charged)
    parts: dict[K, int] = {}
    remainders: list[tuple[int, str, Any]] = []
    for key, share in charged.items():
        parts[key], remainder = divmod(share * FULL, total)
        remainders.append((-remainder, str(key), key))
    missing = FULL - sum(parts.values())
    for _, _, key in sorted(remainders, key=lambda item: item[:2])[:missing]:
        parts[key] += 1
    return parts
