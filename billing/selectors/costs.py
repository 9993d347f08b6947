"""What a tenant has spent, by deployment, type and day; and its open period as a preview of the bill.

Every function runs within a scope of the tenant that the caller has opened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from billing.drawing import Charges, draw
from billing.locks import last_usage_seq
from billing.models import BillingPeriod, Issuer
from billing.prices import book_of, stored_rates
from billing.rating import DrawnUp, Kind, Line, rate
from billing.selectors.charges import charges_of, delimiters_of, issuer_of
from billing.selectors.running import Running, running_usage
from billing.selectors.sums import Part, usage_sums
from portal.kernel.clock import Interval, Period, period_of, utcnow, zone
from portal.kernel.money import Money, exact_sum
from tenants.models import ModelDeployment


@dataclass(frozen=True, slots=True)
class Preview:
    """An open period as its bill would be now. ``drawn`` holds what is final, ``running`` what is not yet.

    ``late``: how many lines of ``drawn``, from the first, belong to earlier periods.
    """

    issuer: Issuer
    period: Interval
    drawn: DrawnUp
    late: int
    running: Running

    @property
    def recorded(self) -> Money:
        """What final hours cost so far."""
        return Money(self.drawn.total, self.issuer.currency)

    @property
    def running_amount(self) -> Money:
        """What the hours that are not final cost so far, rounded."""
        return Money(
            exact_sum([line.amount for line in self.running.lines if line.amount]), self.issuer.currency
        ).quantize()

    @property
    def total(self) -> Money:
        """Both."""
        return self.recorded + self.running_amount

    @property
    def unpriced(self) -> tuple[Line, ...]:
        """What has no price; it is in no total."""
        return self.drawn.unpriced + tuple(line for line in self.running.lines if not line.is_priced)


@dataclass(frozen=True, slots=True)
class Cost:
    """One row of a table of costs. ``amount`` is exact; ``unpriced`` says that some of it has no price.

    ``card_hours`` counts charged shares of whole cards, and MIG instances as instances (``instance_hours``).
    """

    label: str
    key: str
    card_hours: Decimal
    instance_hours: Decimal
    amount: Decimal
    unpriced: bool


def bill_preview(tenant_id: UUID, *, now: datetime | None = None) -> Preview | None:
    """The tenant's current month; None where no issuer was set up."""
    now = now or utcnow()
    issuer = issuer_of(tenant_id)
    if issuer is None:
        return None
    month = current_period(issuer, now)
    bounds = delimiters_of(BillingPeriod(issuer=issuer, starts_at=month.start, ends_at=month.end), last_usage_seq())
    found = charges_of(issuer, bounds, tenant_ids=[tenant_id]).get(tenant_id, Charges(()))
    drawn = draw(found, issuer.currency)
    late = sum(1 for line in found.late if line.is_priced)
    return Preview(issuer, month, drawn, late, running_usage(tenant_id, issuer, since=month.start, before=month.end))


def current_period(issuer: Issuer, now: datetime) -> Interval:
    """The month in which ``now`` lies: as stored, or as it will be."""
    stored = BillingPeriod.objects.filter(issuer=issuer, starts_at__lte=now, ends_at__gt=now).first()
    if stored is not None:
        return Interval(stored.starts_at, stored.ends_at)
    month: Period = period_of(now, issuer.time_zone)
    return Interval(month.start, month.end)


def cost_by_deployment(tenant_id: UUID, window: Interval) -> list[Cost]:
    """Costs of final hours by deployment (or namespace, for pods of none), the largest first."""
    names = {
        str(pk): name for pk, name in ModelDeployment.objects.filter(tenant_id=tenant_id).values_list("pk", "name")
    }

    def of(line: Line) -> tuple[str, str]:
        deployment = line.subject.deployment
        return (deployment, names.get(deployment, deployment)) if deployment else (line.subject.namespace,) * 2

    return sorted(_table(_lines(tenant_id, window), of), key=lambda row: -row.amount)


def cost_by_type(tenant_id: UUID, window: Interval) -> list[Cost]:
    """Costs of final hours by kind of card, the largest first."""
    return sorted(
        _table(_lines(tenant_id, window), lambda line: (str(line.key), str(line.key))), key=lambda row: -row.amount
    )


def usage_by_day(tenant_id: UUID, window: Interval) -> list[Cost]:
    """Hours and costs of final hours by day of the issuer's time zone, in order; ``key`` is the ISO date.

    Every day of the window is there, also one without usage.
    """
    issuer = issuer_of(tenant_id)
    if issuer is None:
        return []
    days = days_of(window, issuer.time_zone)
    starts = [start for start, _ in days]

    def of(line: Line) -> tuple[str, str]:
        day = next(day for start, day in reversed(days) if start <= line.segment.start)
        return day.isoformat(), day.isoformat()

    found = {row.key: row for row in _table(_lines(tenant_id, window, starts), of)}
    nothing = Decimal(0)
    return [
        found.get(day.isoformat(), Cost(day.isoformat(), day.isoformat(), nothing, nothing, nothing, unpriced=False))
        for _, day in days
    ]


def days_of(window: Interval, tz_name: str) -> list[tuple[datetime, date]]:
    """The instants at which the window's days begin in a zone, with their dates; a day may have 23 or 25 hours."""
    tz = zone(tz_name)
    day = window.start.astimezone(tz).date()
    days: list[tuple[datetime, date]] = []
    while True:
        start = datetime(day.year, day.month, day.day, tzinfo=tz).astimezone(window.start.tzinfo)
        if start >= window.end:
            return days
        days.append((max(start, window.start), day))
        day += timedelta(days=1)


def _lines(tenant_id: UUID, window: Interval, starts: Iterable[datetime] = ()) -> list[Line]:
    issuer = issuer_of(tenant_id)
    if issuer is None:
        return []
    rates = stored_rates(issuer)
    edges = {edge for one in rates for edge in (one.valid_from, one.valid_to) if edge is not None} | set(starts)
    part = Part(window, 0, last_usage_seq())
    sums = usage_sums(part, edges, rates, tenant_ids=[tenant_id]).get(tenant_id)
    if sums is None:
        return []
    book = book_of(issuer, rates, window, part.upto)
    return rate(sums.held, book) + rate(sums.idle, book)


def _table(lines: Iterable[Line], of: Callable[[Line], tuple[str, str]]) -> list[Cost]:
    together: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        together[of(line)].append(line)
    return [
        Cost(
            label=label,
            key=key,
            card_hours=_hours(part, "gpu-hour"),
            instance_hours=_hours(part, "instance-hour"),
            amount=exact_sum([line.amount for line in part if line.amount is not None]),
            unpriced=any(not line.is_priced for line in part),
        )
        for (key, label), part in together.items()
    ]


def _hours(lines: Iterable[Line], unit: str) -> Decimal:
    return exact_sum([line.quantity for line in lines if line.kind in (Kind.GPU, Kind.IDLE) and line.unit == unit])
