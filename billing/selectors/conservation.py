"""Where the fleet's card-hours went, and whether all of them are accounted for. For platform pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from django.db.models import F, Max, Min, Q, QuerySet, Sum
from django.db.models.functions import TruncDate, TruncHour

from billing.models import Bucket, CapacityHour, Rate, UsageRecord
from billing.prices import pure_rate
from infra.models.evidence import EvidenceSource
from infra.models.hardware import SharingMode
from infra.shares import CARD
from portal.kernel.clock import Interval
from portal.kernel.money import decimal_from

BUCKETS = ("tenants", "idle", "starting", "overhead", "unavailable", "unattributed")
CARD_HOUR = CARD * 3_600_000
"""Millionths·milliseconds: one card for one hour."""
_BUCKETS = sum((F(name) for name in BUCKETS[1:]), F(BUCKETS[0]))


def capacity_hours(
    window: Interval, *, cluster_id: UUID | None = None, gpu_type_id: UUID | None = None, wrong: bool = False
) -> QuerySet[CapacityHour]:
    """Per node, type and hour: the six buckets and what was in service, with ``balance`` (0, or an error).

    Args:
        wrong: only hours that do not add up, or in which more was held than was there.
    """
    rows = _narrowed(window, cluster_id, gpu_type_id).annotate(balance=F("in_service") - _BUCKETS)
    if wrong:
        rows = rows.filter(_WRONG)
    return rows.select_related("cluster", "node", "gpu_type").order_by("-hour", "cluster__slug", "node__name", "id")


_WRONG = ~Q(in_service=_BUCKETS) | ~Q(overbooked=0) | ~Q(outside=0)


@dataclass(frozen=True, slots=True)
class TypeCapacity:
    """A type and mode of card of one cluster, on one day (UTC) or in a window; millionths·milliseconds.

    ``idle_billed``: of the idle time, what a tenant pays for, because only its zone may use those cards.
    ``idle_cost``: idle time × the rate in force at the start of each hour, in the default issuer's currency; None
    where there is no price for a whole card (MIG is priced by instance), or not for all of the time.
    ``past``: of the time in service, that in hours of which some was rebuilt from history.
    """

    day: date | None
    cluster: str
    gpu_type: str
    sharing: str
    in_service: int
    buckets: dict[str, int]
    overbooked: int
    outside: int
    idle_billed: int
    idle_cost: Decimal | None
    past: int = 0

    @property
    def balance(self) -> int:
        """Time in service less the six buckets: 0, or an error."""
        return self.in_service - sum(self.buckets.values())

    @property
    def is_right(self) -> bool:
        """Whether it adds up, and no more was held than was there."""
        return not (self.balance or self.overbooked or self.outside)


def capacity_by_type(
    window: Interval, *, cluster_id: UUID | None = None, gpu_type_id: UUID | None = None, by_day: bool = False
) -> list[TypeCapacity]:
    """The capacity hours summed by cluster, type and mode, and by day (the latest first). Two queries."""
    by_hour = _priced_idle(window, cluster_id, gpu_type_id, by_day=by_day)
    rows = _narrowed(window, cluster_id, gpu_type_id)
    keys: tuple[str, ...] = ("cluster__slug", "gpu_type__slug", "sharing")
    if by_day:
        rows = rows.annotate(day=TruncDate("hour", tzinfo=UTC))
        keys = ("day", *keys)
    found = rows.order_by(*(["-day"] if by_day else []), *keys[-3:]).values_list(*keys)
    figures = {f"sum_{name}": Sum(name) for name in ("in_service", "overbooked", "outside", *BUCKETS)}
    figures["sum_billed"] = Sum("idle", filter=Q(idle_tenant_id__isnull=False), default=0)
    figures["sum_past"] = Sum("in_service", filter=Q(source=EvidenceSource.RETROACTIVE), default=0)
    result = []
    for row in found.annotate(**figures):
        *key, in_service, over, out, tenants, idle, starting, overhead, unavailable, nobody, billed, past = row
        day = key[0] if by_day else None
        cluster, gpu_type, sharing = key[-3:]
        parts = dict(zip(BUCKETS, (tenants, idle, starting, overhead, unavailable, nobody), strict=True))
        cost = by_hour.get((day, cluster, gpu_type, sharing))
        result.append(
            TypeCapacity(
                day, cluster, gpu_type or "", sharing, in_service, parts, over, out, billed,
                Decimal(0) if not idle else cost.amount if cost else None, past,
            )
        )  # fmt: skip
    return result


@dataclass(slots=True)
class _Idle:
    """Idle time with its price; ``missing``: some of it has none."""

    total: Fraction = field(default_factory=Fraction)
    missing: bool = False

    @property
    def amount(self) -> Decimal | None:
        return None if self.missing else decimal_from(self.total, 6)


def _priced_idle(
    window: Interval, cluster_id: UUID | None, gpu_type_id: UUID | None, *, by_day: bool
) -> dict[tuple[Any, ...], _Idle]:
    """Idle time at the rates of the default issuer's card, by (day, cluster, type, mode)."""
    prices: dict[tuple[str, str], list[Any]] = {}
    stored = Rate.objects.filter(
        Q(valid_to__isnull=True) | Q(valid_to__gt=window.start), card__issuer__is_default=True,
        resource=Rate.Resource.GPU, valid_from__lt=window.end,
    ).exclude(sharing=SharingMode.MIG)  # fmt: skip
    for row in stored.select_related("gpu_type"):
        one = pure_rate(row)
        prices.setdefault((one.key.gpu_type, one.key.sharing), []).append(one)
    changes = any(
        edge is not None and window.start < edge < window.end
        for dated in prices.values()
        for one in dated
        for edge in (one.valid_from, one.valid_to)
    )
    rows = _narrowed(window, cluster_id, gpu_type_id).exclude(idle=0)
    # Where a price changes in the window, each hour is looked at; else a day is enough.
    step = TruncHour("hour", tzinfo=UTC) if changes else TruncDate("hour", tzinfo=UTC)
    keys = ("step", "cluster__slug", "gpu_type__slug", "sharing")
    found: dict[tuple[Any, ...], _Idle] = {}
    for at, cluster, gpu_type, sharing, idle in (
        rows.annotate(step=step).order_by().values_list(*keys).annotate(sum_idle=Sum("idle"))
    ):
        hour = at if isinstance(at, datetime) else max(datetime(at.year, at.month, at.day, tzinfo=UTC), window.start)
        cell = found.setdefault((hour.date() if by_day else None, cluster, gpu_type, sharing), _Idle())
        price = next((one.unit_price for one in prices.get((gpu_type, sharing), ()) if _in_force(one, hour)), None)
        if price is None:
            cell.missing = True
        else:
            cell.total += Fraction(idle, CARD_HOUR) * Fraction(price)
    return found


def _in_force(rate: Any, at: datetime) -> bool:
    return bool(rate.valid_from <= at and (rate.valid_to is None or at < rate.valid_to))


def _narrowed(window: Interval, cluster_id: UUID | None, gpu_type_id: UUID | None) -> QuerySet[CapacityHour]:
    rows = CapacityHour.objects.filter(hour__gte=window.start, hour__lt=window.end)
    if cluster_id is not None:
        rows = rows.filter(cluster_id=cluster_id)
    if gpu_type_id is not None:
        rows = rows.filter(gpu_type_id=gpu_type_id)
    return rows


def idle_cost(rows: Sequence[TypeCapacity]) -> tuple[Decimal, bool]:
    """Σ of what has a price, and whether all of the idle time has one."""
    known = [row.idle_cost for row in rows if row.idle_cost is not None]
    return sum(known, Decimal(0)), all(row.idle_cost is not None for row in rows)


def imbalances(window: Interval) -> QuerySet[CapacityHour]:
    """Hours that do not add up, or in which more was held than was there."""
    return capacity_hours(window, wrong=True)


def latest_hour() -> datetime | None:
    """The last hour that any cluster's capacity is written for."""
    hour: datetime | None = CapacityHour.objects.aggregate(last=Max("hour"))["last"]
    return hour


def days_back(until: datetime, days: int) -> Interval:
    """So many whole UTC days up to and including that of ``until``."""
    midnight = until.replace(hour=0, minute=0, second=0, microsecond=0)
    return Interval(midnight - timedelta(days=days - 1), midnight + timedelta(days=1))


@dataclass(frozen=True, slots=True)
class Unmapped:
    """A namespace that nobody has claimed, and what was held in it: millionths of a card × milliseconds."""

    cluster: str
    namespace: str
    charged: int
    first: datetime
    last: datetime


def unmapped_namespaces(window: Interval) -> list[Unmapped]:
    """Usage of namespaces without a tenant, the largest first. Within a system scope."""
    rows = (
        UsageRecord.objects.filter(
            tenant__isnull=True, bucket=Bucket.UNATTRIBUTED, hour__gte=window.start, hour__lt=window.end
        )
        .values("cluster__slug", "namespace")
        .annotate(sum_charged=Sum("charged"), first=Min("hour"), last=Max("hour"))
        .order_by("-sum_charged")
    )
    return [
        Unmapped(row["cluster__slug"], row["namespace"], row["sum_charged"], row["first"], row["last"])
        for row in rows
        if row["sum_charged"]
    ]
