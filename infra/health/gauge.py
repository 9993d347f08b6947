"""DCGM's XID gauge, read by its edges: it shows the last XID until the exporter or the driver starts anew
(dcgm-exporter#500, DCGM#277), so a value is no event and a change is one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

Sample = tuple[int, Decimal | None]
"""Milliseconds since 1970, and the value (None: not a number)."""


@dataclass(frozen=True, slots=True)
class GaugeState:
    """What a card's gauge last showed. ``count``: of the series that counts XIDs, where there is one."""

    xid: int
    at_ms: int
    count: int | None = None


@dataclass(frozen=True, slots=True)
class XidEvent:
    """A card reported ``xid`` after ``after_ms`` and not later than ``at_ms``."""

    xid: int
    at_ms: int
    after_ms: int


def xid_events(
    samples: Iterable[Sample], known: GaugeState | None = None, *, counts: Iterable[Sample] = ()
) -> tuple[list[XidEvent], GaugeState | None]:
    """The events of one card's samples, and what the gauge shows after them; the same samples again give none.

    - Without ``known``, the first sample tells a state and no event: when it happened is not known.
    - 0 is no XID: the exporter or the driver started anew. It is remembered, so that the same XID after it counts.
    - The same XID twice in a row can't be told from once, unless ``counts`` (a series that only rises: how many XIDs
      there were) rises beside it.

    Args:
        samples: in the order of time.
    """
    state = known
    events: list[XidEvent] = []
    rises = _rises(counts, known.count if known else None)
    for moment, value in samples:
        if value is None or (state is not None and moment <= state.at_ms):
            continue
        xid, count = int(value), state.count if state else None
        if state is not None and xid:
            again = [at for at in rises if state.at_ms < at <= moment]
            if xid != state.xid or again:
                events.append(XidEvent(xid, moment, state.at_ms))
        state = GaugeState(xid, moment, count)
    last = [int(value) for _, value in counts if value is not None]
    if state is not None and last:
        state = GaugeState(state.xid, state.at_ms, last[-1])
    return events, state


def _rises(counts: Iterable[Sample], before: int | None) -> list[int]:
    """When the count rose; a fall is a start from 0."""
    found = []
    for moment, value in counts:
        if value is None:
            continue
        count = int(value)
        if before is not None and count > before:
            found.append(moment)
        before = count
    return found
