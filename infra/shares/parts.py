"""Named parts of a card: what most people ask for, and what pools are easiest to fill with.

A part is one n-th of a card's memory and of its cores, both rounded down, so that n of them fit on one card whatever
its size: four quarters of 81,559 MiB are 81,556.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Part:
    """One ``of``-th of a card, by its name."""

    name: str
    of: int

    @property
    def percent(self) -> Fraction:
        """Of the card's memory; an eighth is 12.5."""
        return Fraction(100, self.of)

    @property
    def percent_text(self) -> str:
        """The same for people: ``12.5``."""
        return f"{float(self.percent):g}"

    @property
    def cores(self) -> int:
        """Percent of the card's cores, a whole number."""
        return 100 // self.of

    @property
    def words(self) -> str:
        """``an eighth of a card (12.5 % of its memory, 12 % of its cores)``."""
        article = "an" if self.name[0] in "aeiou" else "a"
        return f"{article} {self.name} of a card ({self.percent_text} % of its memory, {self.cores} % of its cores)"


PARTS = {part.name: part for part in (Part("eighth", 8), Part("quarter", 4), Part("half", 2), Part("fifth", 5),
                                      Part("tenth", 10))}  # fmt: skip
"""By name; the first three are those that pages offer first."""

OVERCOMMIT = "overcommit"
"""Stands where a MIG profile stands in rates and usage of HAMi shares: the pool promised more memory than its cards
have when the pod was bound, so a rate of its own holds."""


def percent_mib(physical_mib: int, percent: Fraction | int) -> int:
    """MiB of that many percent of a card, rounded down as HAMi does, at least 1."""
    return max(1, int(physical_mib * Fraction(percent) // 100))


def overcommit_percent(register_mib: int, physical_mib: int) -> int:
    """What a card hands out of its memory, percent (rounded); 100 for one that hands out all, or less, of what it has.

    HAMi's register tells ``register_mib`` (``devmem``), which ``deviceMemoryScaling`` raises above the card's memory.
    """
    return max(100, (register_mib * 200 + physical_mib) // (2 * physical_mib)) if physical_mib > 0 else 100


def physical_mib(card_mib: int, register_mib: int | None, type_mib: int) -> int:
    """The physical memory of a card; 0: nobody knows.

    ``card_mib`` is what was read of it. Where only HAMi's register told of the card it is ``register_mib``, which
    scaling may have raised: then its type's memory counts, if that is known.
    """
    return type_mib if type_mib and card_mib == register_mib else card_mib or type_mib
