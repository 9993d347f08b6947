"""Sums of usage times the rates in force: lines with exact amounts, and the bill they make. Pure: no Django.

SQL sums usage per tenant, deployment or namespace, type of card, mode and stretch of constant rates; `rate`
prices the sums. Nothing is rounded until `draw_up`, which rounds all lines of a bill together, so that they
add up to its total. What has no rate is *unpriced*: not free, and a bill that holds such a line can't be
closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from billing.rates import CPU, MEMORY, Rate, RateBook, RateKey, Unit, with_margin
from infra.shares import CARD
from portal.kernel.clock import Interval, format_rfc3339
from portal.kernel.money import decimal_from, decimal_of, exact_sum, largest_remainder, minor_units

QUANTITY_PLACES = 12
AMOUNT_PLACES = 16
"""Exact amounts are kept to so many decimals (half to even): far below anything that a rounded line can
show."""
PRICE_PLACES = 10

_HOUR_MS = 3_600_000


class Kind(StrEnum):
    """What a line is for."""

    GPU = "gpu"
    IDLE = "idle"
    CPU = "cpu"
    MEMORY = "memory"
    STORAGE = "storage"
    NETWORK = "network"
    CREDIT = "credit"


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """Whose usage, and what for: `deployment` is its id ("" for pods that are nobody's deployment).

    `inner` is the namespace inside a tenant cluster, where sums are kept apart by it; bills don't.
    """

    tenant: str
    namespace: str
    deployment: str = ""
    cost_code: str = ""
    inner: str = ""


@dataclass(frozen=True, slots=True, order=True)
class HostPart:
    """Devices of one shape: the CPU and memory that go with one device, and for how long, over all such
    devices.

    `share`: millionths of a card of such a device (of an instance: 1,000,000). Kept apart by shape because
    only what one device's part goes beyond the included amount is charged.
    """

    cpu_millicores: int
    memory_mib: int
    share: int
    milliseconds: int


@dataclass(frozen=True, slots=True)
class UsageSum:
    """Usage of one subject and kind of card within a segment in which no rate changes.

    `milliseconds`: Σ over devices (MIG: instances). `charged`: Σ share times milliseconds, in millionths of a
    card. Both are negative where a correction takes time back. `kind` is GPU, or IDLE for the idle rest of
    cards kept for one tenant. `cluster` (its id) is given where an hourly rate is in force; the segment lies in one
    hour then.
    """

    subject: Subject
    key: RateKey
    segment: Interval
    milliseconds: int
    charged: int
    hosts: tuple[HostPart, ...] = ()
    kind: Kind = Kind.GPU
    cluster: str = ""

    @property
    def unit_hours(self) -> Fraction:
        """How many of the rate's units: card-hours of charged share, or instance-hours."""
        if self.key.unit is Unit.INSTANCE_HOUR:
            return Fraction(self.milliseconds, _HOUR_MS)
        return self.card_hours

    @property
    def card_hours(self) -> Fraction:
        """Charged hours of whole cards, also of MIG instances."""
        return Fraction(self.charged, CARD * _HOUR_MS)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What OpenCost says that a subject's storage or network cost; negative where a correction takes back."""

    subject: Subject
    key: RateKey
    segment: Interval
    cost: Decimal
    currency: str


@dataclass(frozen=True, slots=True)
class LineHour:
    """An hour of a line with an hourly rate: its price (margin included) and the unit cost that it came from.

    `unit_price` and `amount` are None where there is no unit cost, and `unit_cost_id` is empty then.
    """

    segment: Interval
    cluster: str
    quantity: Decimal
    unit_cost_id: str = ""
    unit_price: Decimal | None = None
    amount: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One line before rounding. `amount` is None where it is unpriced, and `reason` says why.

    `hours`: of a line with an hourly rate, what it is made of; its `unit_price` is the mean then.
    `gpu_rate_id`: of CPU and memory, the rate that says how much of them the card includes.
    """

    kind: Kind
    subject: Subject
    key: RateKey | None
    segment: Interval
    quantity: Decimal
    unit: str
    unit_price: Decimal | None = None
    amount: Decimal | None = None
    rate_id: str = ""
    gpu_rate_id: str = ""
    reason: str = ""
    hours: tuple[LineHour, ...] = ()
    credit_id: str = ""

    @property
    def is_priced(self) -> bool:
        return self.amount is not None


@dataclass(frozen=True, slots=True)
class Credit:
    """Money given back, or forgone, with its reason. `amount` is positive; its line is negative."""

    subject: Subject
    segment: Interval
    amount: Decimal
    reason: str

    def __post_init__(self) -> None:
        if decimal_of(self.amount) <= 0:
            raise ValueError(f"a credit is a positive amount, not {self.amount}; it is subtracted by itself")


def rate(sums: Iterable[UsageSum], rates: Iterable[Rate] | RateBook) -> list[Line]:
    """The lines of these sums, sorted; the same input in any order gives the same lines.

    Sums of equal subject, kind, key and segment become one line. Raises ValueError where rates overlap, or
    change inside a segment.
    """
    book = rates if isinstance(rates, RateBook) else RateBook(rates)
    lines: list[Line] = []
    for usage in _combined(sums):
        gpu_rate = book.for_segment(usage.key, usage.segment)
        # OpenCost prices cards, so an instance pays its part of one.
        quantity = usage.card_hours if gpu_rate is not None and gpu_rate.hourly else usage.unit_hours
        if quantity:
            lines.append(_line(usage.kind, usage, usage.key, quantity, gpu_rate, book))
        if gpu_rate is not None:
            lines += _host_lines(usage, gpu_rate, book)
    return lines


def credit_lines(given: Iterable[Credit]) -> list[Line]:
    """Credits as lines with negative amounts."""
    return [
        Line(
            Kind.CREDIT,
            credit.subject,
            None,
            credit.segment,
            quantity=Decimal(1),
            unit="credit",
            unit_price=-credit.amount,
            amount=-credit.amount,
            reason=credit.reason,
        )
        for credit in given
    ]


def estimate_lines(sums: Iterable[Estimate], book: RateBook) -> list[Line]:
    """Storage and network where the card has a rate for them: OpenCost's cost plus the margin. No rate: no line."""
    lines = []
    for one in sums:
        found = book.for_segment(one.key, one.segment)
        if found is None or not one.cost:
            continue
        kind, price = Kind(one.key.resource.value), _shown(1 + Fraction(found.margin))
        right = one.currency == book.costs.currency
        line = Line(kind, one.subject, one.key, one.segment, one.cost, one.key.unit.value, rate_id=found.id)
        lines.append(
            replace(line, unit_price=price, amount=decimal_from(Fraction(price) * Fraction(one.cost), AMOUNT_PLACES))
            if right
            else replace(
                line,
                reason=f"OpenCost's costs of {one.key} are in {one.currency}, and bills are in {book.costs.currency}",
            )
        )
    return lines


def _combined(sums: Iterable[UsageSum]) -> list[UsageSum]:
    found: dict[tuple[Subject, Kind, RateKey, Interval, str], list[UsageSum]] = {}
    for usage in sums:
        found.setdefault((usage.subject, usage.kind, usage.key, usage.segment, usage.cluster), []).append(usage)
    return [
        UsageSum(
            subject,
            key,
            segment,
            sum(part.milliseconds for part in parts),
            sum(part.charged for part in parts),
            tuple(sorted(host for part in parts for host in part.hosts)),
            kind,
            cluster,
        )
        for (subject, kind, key, segment, cluster), parts in sorted(found.items(), key=lambda item: item[0])
    ]


def _host_lines(usage: UsageSum, gpu_rate: Rate, book: RateBook) -> Iterable[Line]:
    for kind, key, included, unit_size in (
        (Kind.CPU, CPU, gpu_rate.included_cpu_millicores, 1000),
        (Kind.MEMORY, MEMORY, gpu_rate.included_memory_mib, 1024),
    ):
        if included is None:
            continue
        excess = sum(_excess(host, kind, included) * host.milliseconds for host in usage.hosts)
        quantity = Fraction(excess, CARD * unit_size * _HOUR_MS)
        if quantity:
            rate_ = book.for_segment(key, usage.segment)
            yield _line(kind, usage, key, quantity, rate_, book, gpu_rate_id=gpu_rate.id)


def _excess(host: HostPart, kind: Kind, included: int) -> int:
    """Millionths of a millicore or MiB of one device's part beyond what its share of a card includes."""
    asked = host.cpu_millicores if kind is Kind.CPU else host.memory_mib
    return max(0, asked * CARD - included * host.share)


@lru_cache(maxsize=4096)
def _shown(price: Fraction) -> Decimal:
    """The price as the line shows it, and as it is charged: anybody can check quantity times price."""
    return decimal_from(price, PRICE_PLACES)


def _line(
    kind: Kind, usage: UsageSum, key: RateKey, quantity: Fraction, rate_: Rate | None, book: RateBook,
    gpu_rate_id: str = "",
) -> Line:  # fmt: skip
    hourly = rate_ is not None and rate_.hourly
    cost, reason = book.costs.find(key, usage.cluster, usage.segment.start) if hourly else (None, "")
    exact = rate_.unit_price if rate_ is not None else None
    if cost is not None and rate_ is not None:
        exact = with_margin(cost.price, rate_.margin)
    price = None if exact is None else _shown(exact)
    if price is None:
        missing = "has no price" if rate_ is not None else "is not in the rate card"
        reason = reason or (
            f"{key} {missing} from {format_rfc3339(usage.segment.start)} until {format_rfc3339(usage.segment.end)}; "
            f"enter a rate, then the period can be closed"
        )
    amount = None if price is None else decimal_from(Fraction(price) * quantity, AMOUNT_PLACES)
    shown = decimal_from(quantity, QUANTITY_PLACES)
    return Line(
        kind=kind,
        subject=usage.subject,
        key=key,
        segment=usage.segment,
        quantity=shown,
        unit=(Unit.GPU_HOUR if hourly and key.unit is Unit.INSTANCE_HOUR else key.unit).value,
        unit_price=price,
        amount=amount,
        rate_id=rate_.id if rate_ is not None else "",
        gpu_rate_id=gpu_rate_id,
        reason=reason,
        hours=(LineHour(usage.segment, usage.cluster, shown, cost.id if cost else "", price, amount),)
        if hourly
        else (),
    )


def mean_price(amount: Decimal, quantity: Decimal) -> Decimal:
    """What a unit cost on the average of a line's hours, as the line shows it."""
    return decimal_from(Fraction(amount) / Fraction(quantity), PRICE_PLACES) if quantity else Decimal(0)


# --- the bill ---


@dataclass(frozen=True, slots=True)
class BilledLine:
    """A line with its rounded amount, in the currency's minor units."""

    line: Line
    amount: Decimal


@dataclass(frozen=True, slots=True)
class DrawnUp:
    """A bill: Σ amounts of its lines is its total, to the last unit. `unpriced` lines carry no amount yet."""

    currency: str
    lines: tuple[BilledLine, ...]
    total: Decimal
    unpriced: tuple[Line, ...] = ()

    @property
    def can_close(self) -> bool:
        """What is unpriced blocks the close."""
        return not self.unpriced


def draw_up(lines: Sequence[Line], currency: str) -> DrawnUp:
    """The priced lines rounded once, together, by largest remainder; the others apart."""
    priced = [line for line in lines if line.amount is not None]
    amounts = [line.amount for line in priced if line.amount is not None]
    rounded = largest_remainder(amounts, minor_units(currency))
    return DrawnUp(
        currency=currency,
        lines=tuple(BilledLine(line, amount) for line, amount in zip(priced, rounded, strict=True)),
        total=largest_remainder([exact_sum(amounts)], minor_units(currency))[0],
        unpriced=tuple(line for line in lines if line.amount is None),
    )
