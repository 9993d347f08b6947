"""Gauges that stick and counters that fall."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from infra.prometheus.types import Sample


@dataclass(frozen=True)
class XidEdge:
    """The XID gauge changed to ``xid`` between ``after_ms`` (the sample before; ``None``: there is none) and ``at_ms``.

    The gauge shows the last XID until the exporter or the driver starts anew (dcgm-exporter#500, DCGM#277), so only a
    change is an event. The first sample of a series tells a value and no event: ``after_ms`` is ``None``.
    """

    xid: int
    at_ms: int
    after_ms: int | None


def xid_edges(samples: Iterable[Sample]) -> list[XidEdge]:
    """The changes of a card's XID gauge, the first known value included, 0 (it was cleared) as well. The same XID
    twice in a row can't be told from once."""
    found: list[XidEdge] = []
    last: int | None = None
    before: int | None = None
    for moment, value in samples:
        if value is None:
            continue
        xid = int(value)
        if last is None or xid != last:
            found.append(XidEdge(xid, moment, before))
        last, before = xid, moment
    return found


@dataclass(frozen=True)
class EnergyStep:
    """Energy used from ``start_ms`` to ``end_ms`` in mJ; ``None`` where the counter fell: not known."""

    start_ms: int
    end_ms: int
    millijoule: int | None


def energy_steps(samples: Iterable[Sample]) -> list[EnergyStep]:
    """What was used between each two known samples of an energy counter (mJ since the driver was loaded).

    A counter that falls was reset (a reboot) or simply fell (dcgm-exporter#417 saw it without a restart): how much was
    used meanwhile is not known, and nothing is made up for it.
    """
    found: list[EnergyStep] = []
    before: tuple[int, Decimal] | None = None
    for moment, value in samples:
        if value is None:
            continue
        if before is not None:
            used = value - before[1]
            found.append(EnergyStep(before[0], moment, int(used) if used >= 0 else None))
        before = (moment, value)
    return found
