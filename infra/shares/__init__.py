"""How much of a card something holds: one answer for quota, metering and money. Pure: no Django, no I/O.

Shares are ints in millionths of a card, rounded down (so that seven sevenths fit: the rest of a full card is idle),
with an exact `Fraction` beside each for figures that must add up. See `charged`, `mig` and `hami`.
"""

from infra.shares.charged import (
    FULL,
    Share,
    capped_cores,
    floor_millionths,
    hami_fraction,
    hami_share,
    mig_fraction,
    mig_share,
    physical_fractions,
    physical_shares,
    whole_share,
)
from infra.shares.hami import (
    AllocatedDevice,
    HamiFormatError,
    Handshake,
    JudgedAllocation,
    Register,
    RegisteredDevice,
    judge_allocation,
    parse_allocated,
    parse_cordon,
    parse_handshake,
    parse_register,
)
from infra.shares.mig import MigFormatError, MigProfile, parse_mig, slices_per_card

__all__ = [
    "FULL",
    "AllocatedDevice",
    "HamiFormatError",
    "Handshake",
    "JudgedAllocation",
    "MigFormatError",
    "MigProfile",
    "Register",
    "RegisteredDevice",
    "Share",
    "capped_cores",
    "floor_millionths",
    "hami_fraction",
    "hami_share",
    "judge_allocation",
    "mig_fraction",
    "mig_share",
    "parse_allocated",
    "parse_cordon",
    "parse_handshake",
    "parse_mig",
    "parse_register",
    "physical_fractions",
    "physical_shares",
    "slices_per_card",
    "whole_share",
]
