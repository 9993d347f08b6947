"""Where samples are missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

SHORTEST_MS, LONGEST_MS = 1_000, 300_000
_LOOKED_AT = 200


class Gap(NamedTuple):
    """``[start_ms, end_ms)`` without samples."""

    start_ms: int
    end_ms: int


def interval_of(series: Iterable[Sequence[int]], otherwise: int) -> int:
    """The usual time between two samples of a series, ms; ``otherwise`` where none has two. Bounded to 1 s … 5 min.

    Args:
        series: instants of the samples of each, in order.
    """
    steps: list[int] = []
    for number, moments in enumerate(one for one in series if len(one) > 1):
        if number >= _LOOKED_AT:
            break
        steps += [after - before for before, after in pairwise(moments) if after > before]
    return min(max(round(median(steps)), SHORTEST_MS), LONGEST_MS) if steps else otherwise


def gaps_of(moments: Iterable[int], start_ms: int, end_ms: int, interval_ms: int) -> list[Gap]:
    """The parts of ``[start_ms, end_ms)`` for which no sample stands.

    Args:
        moments: instants of samples, also of those shortly before the window. A silence of up to two intervals is
            none.
    """
    inside = sorted({moment for moment in moments if start_ms - 2 * interval_ms <= moment < end_ms})
    if not inside:
        return [Gap(start_ms, end_ms)]
    found = []
    if inside[0] - start_ms > 2 * interval_ms:
        found.append(Gap(start_ms, inside[0] - interval_ms))
    for before, after in pairwise(inside):
        if after - before > 2 * interval_ms:
            found.append(Gap(before, after - interval_ms))
    if end_ms - inside[-1] > 2 * interval_ms:
        found.append(Gap(inside[-1], end_ms))
    return [Gap(max(gap.start_ms, start_ms), gap.end_ms) for gap in found if gap.end_ms > max(gap.start_ms, start_ms)]
