"""Which values may be believed.

DCGM has a "blank" value for each type, and blanks reach the exporter's text (NVIDIA/DCGM, dcgmlib/dcgm_structs.h:
``DCGM_INT32_BLANK``, ``DCGM_INT64_BLANK``, ``DCGM_FP64_BLANK``; +1 not found, +2 not supported, +3 no permission). A
blank is not known; it is never 0.
"""

from __future__ import annotations

from decimal import Decimal

FP64_BLANK = Decimal(140737488355328)
"""The smallest of the 64-bit blanks: nothing that DCGM measures is as large."""
INT32_BLANKS = frozenset(map(Decimal, range(2147483632, 2147483636)))

_COUNTERS = ("_CONSUMPTION", "_TOTAL", "_COUNTER", "_ROWS", "_COUNT", "_BYTES", "_VIOLATION")


def believed(metric: str, value: Decimal | None) -> Decimal | None:
    """The value, or ``None`` where it can't be: a blank, below zero, more than 100 % or a ratio above 1."""
    if value is None or value < 0 or value >= FP64_BLANK:
        return None
    if metric.endswith("_UTIL"):
        return value if value <= 100 else None
    if metric.startswith("DCGM_FI_PROF_") and metric.endswith(("_ACTIVE", "_OCCUPANCY")):
        return value if value <= 1 else None
    if value in INT32_BLANKS and not metric.endswith(_COUNTERS):
        return None
    return value
