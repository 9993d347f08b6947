"""From sums to the lines of one tenant's bill: rated, merged where one rate goes on, rounded together, digested.

Pure: no Django. The same sums give the same bytes, whatever order they come in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from billing.rates import CPU, MEMORY, RateBook, RateKey
from billing.rating import DrawnUp, Estimate, Kind, Line, LineHour, UsageSum, draw_up, estimate_lines, mean_price, rate
from portal.kernel.clock import Interval, format_rfc3339
from portal.kernel.money import exact_sum, minor_units


@dataclass(frozen=True, slots=True)
class Charges:
    """Rated lines of one tenant. ``late`` ones carry the charge period of a month that was closed before."""

    current: tuple[Line, ...]
    late: tuple[Line, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        """Late lines first, in the order in which they are printed."""
        return (*self.late, *self.current)

    @property
    def unpriced(self) -> tuple[Line, ...]:
        """Lines that nobody has a price for."""
        return tuple(line for line in self.lines if not line.is_priced)


def charges(
    held: Iterable[UsageSum], idle: Iterable[UsageSum], book: RateBook, estimates: Iterable[Estimate] = ()
) -> tuple[Line, ...]:
    """The lines of usage, of reserved idle time, and of what OpenCost estimates; stretches with one rate are made
    one."""
    sums = list(held)
    lines = rate(_joined([replace(one, hosts=()) for one in sums], book), book)
    for key in (CPU, MEMORY):
        lines += rate(_joined([_host_only(one, key) for one in sums if one.hosts], book, key), book)
    lines += [replace(line, kind=Kind.IDLE) for line in rate(_joined(idle, book), book)]
    return tuple(_merged([*lines, *estimate_lines(estimates, book)]))


def draw(found: Charges, currency: str) -> DrawnUp:
    """All lines of the bill, rounded once and together."""
    return draw_up(found.lines, currency)


def digest(drawn: DrawnUp, late: int) -> str:
    """sha256 of the bill as canonical JSON. ``late``: how many of its lines, from the first, are late."""
    body = {
        "currency": drawn.currency,
        "total": str(drawn.total),
        "lines": [
            [
                "late" if index < late else "", one.line.kind, one.line.subject.namespace, one.line.subject.deployment,
                one.line.subject.cost_code, str(one.line.key or ""), format_rfc3339(one.line.segment.start),
                format_rfc3339(one.line.segment.end), str(one.line.quantity), one.line.unit, str(one.line.unit_price),
                str(one.line.amount), str(one.amount), one.line.rate_id, one.line.gpu_rate_id,
                *([[_hour(hour) for hour in one.line.hours]] if one.line.hours else []),
            ]
            for index, one in enumerate(drawn.lines)
        ],
    }  # fmt: skip
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _hour(hour: LineHour) -> list[str]:
    return [
        hour.cluster, format_rfc3339(hour.segment.start), format_rfc3339(hour.segment.end), str(hour.quantity),
        str(hour.unit_price), str(hour.amount), hour.unit_cost_id,
    ]  # fmt: skip


def minor(amount: object, currency: str) -> int:
    """A rounded amount in minor units of its currency."""
    return int(exact_sum([amount]).scaleb(minor_units(currency)))  # type: ignore[list-item]


def _host_only(usage: UsageSum, key: RateKey) -> UsageSum:
    """The CPU, or the memory, that goes with these devices, and nothing else."""
    other = "memory_mib" if key == CPU else "cpu_millicores"
    return replace(usage, milliseconds=0, charged=0, hosts=tuple(replace(host, **{other: 0}) for host in usage.hosts))


def _joined(sums: Iterable[UsageSum], book: RateBook, also: RateKey | None = None) -> Iterable[UsageSum]:
    """Sums of one price in one segment, so that a line is rounded once, whatever other prices change meanwhile.

    ``also``: that price has to be one, too. What has none, or another one in each hour, stays as it is.
    """
    together: dict[tuple[object, ...], list[UsageSum]] = {}
    for usage in sums:
        found = [book.for_segment(key, usage.segment) for key in (usage.key, also) if key is not None]
        if None in found or found[-1] is None or found[-1].hourly:
            yield usage
        else:
            ids = [one.id for one in found if one is not None]
            together.setdefault((usage.subject, usage.kind, usage.key, *ids), []).append(usage)
    for parts in together.values():
        segment = Interval(min(one.segment.start for one in parts), max(one.segment.end for one in parts))
        yield from (replace(one, segment=segment, cluster="") for one in parts)


def _merged(lines: Iterable[Line]) -> Iterable[Line]:
    """One line per subject, kind of card and rate: segments were cut at every change of any rate, and at each hour
    where the rate is hourly."""
    together: dict[tuple[object, ...], list[Line]] = {}
    for line in lines:
        key = (line.subject, line.kind, line.key, line.rate_id, line.gpu_rate_id, line.is_priced)
        together.setdefault(key, []).append(line)
    return sorted(
        (line for line in map(_one, together.values()) if line.quantity or line.amount),
        key=lambda line: (line.subject, line.kind, line.key or "", line.segment, line.rate_id, line.gpu_rate_id),
    )


def _one(parts: list[Line]) -> Line:
    first = min(parts, key=lambda part: part.segment)
    quantity = exact_sum([part.quantity for part in parts])
    amount = exact_sum([part.amount for part in parts if part.amount is not None]) if first.is_priced else None
    found = (hour for part in parts for hour in part.hours)
    hours = tuple(sorted(found, key=lambda hour: (hour.segment, hour.cluster, hour.unit_cost_id)))
    return replace(
        first,
        segment=Interval(first.segment.start, max(part.segment.end for part in parts)),
        quantity=quantity,
        amount=amount,
        unit_price=mean_price(amount, quantity) if hours and amount is not None else first.unit_price,
        hours=hours,
        reason=_reason([part.reason for part in sorted(parts, key=lambda part: part.segment) if part.reason]),
    )


def _reason(reasons: list[str]) -> str:
    """The first of several reasons, and how many there are."""
    known = list(dict.fromkeys(reasons))
    more = f" (and {len(known) - 1} more like it)" if len(known) > 1 else ""
    return f"{known[0]}{more}" if known else ""
