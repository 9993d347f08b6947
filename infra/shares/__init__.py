"""How much of a card something holds: one answer for quota, metering and money. Pure: no Django, no I/O.

A share is an exact `Fraction` of a card, for figures that must add up. What is stored and summed is that share in
millionths of a card, rounded down (`floor_millionths`), so that seven sevenths fit: the rest of a full card is idle.
"""

from infra.shares.charged import CARD, SLICES, capped_cores, floor_millionths, hami_share, mig_share
from infra.shares.mig import MigFormatError, MigProfile, mig_spelled, parse_mig
from infra.shares.parts import OVERCOMMIT, PARTS, Part, overcommit_percent, percent_mib, physical_mib

__all__ = [
    "CARD",
    "OVERCOMMIT",
    "PARTS",
    "SLICES",
    "MigFormatError",
    "MigProfile",
    "Part",
    "capped_cores",
    "floor_millionths",
    "hami_share",
    "mig_share",
    "mig_spelled",
    "overcommit_percent",
    "parse_mig",
    "percent_mib",
    "physical_mib",
]
