"""Allocations cut into usage: at the full hours, where a rate changes, and at the edges of periods. Pure.

Time is whole milliseconds; `charged` is share (millionths of a card, floored) times milliseconds. Whatever
the cuts are, the pieces of an allocation add up to it exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from billing.metering.intervals import Allocation, Bucket, Phase
from portal.kernel.clock import Interval, clip, hour_start, hours, split_at


@dataclass(frozen=True, slots=True)
class Usage:
    """A piece of one allocation inside one UTC hour. `hour` is that hour's start."""

    allocation: Allocation
    hour: datetime
    interval: Interval
    phase: Phase
    bucket: Bucket
    tenant: str
    cost_code: str

    @property
    def milliseconds(self) -> int:
        return self.interval.ms

    @property
    def charged(self) -> int:
        """Millionths of a card times milliseconds."""
        return self.allocation.holding.share_millionths * self.interval.ms

    @property
    def key(self) -> tuple[str, str, int, datetime]:
        """Unique and ordered: the allocation's key and the start of the piece."""
        return (*self.allocation.key, self.interval.start)


def cut(allocation: Allocation, window: Interval | None = None, at: Iterable[datetime] = ()) -> Iterator[Usage]:
    """The allocation's pieces within the window (None: all of it), cut at full hours and at each instant of
    `at`."""
    edges = list(at)
    for segment in allocation.life.segments:
        whole = segment.interval if window is None else clip(segment.interval, window)
        if whole is None:
            continue
        for piece in split_at(whole, [*edges, *(hour.start for hour in hours(whole))]):
            if piece.ms:
                yield Usage(
                    allocation,
                    hour_start(piece.start),
                    piece,
                    segment.phase,
                    segment.bucket,
                    segment.tenant,
                    segment.cost_code,
                )
