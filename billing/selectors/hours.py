"""Where the fleet's card-hours went: by site, cluster, pool, type, team, model and day; idle time by reason and price.

For platform pages, within a system scope. However many hours there are, the number of queries is the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Sum, Value
from django.db.models.functions import TruncDate, TruncHour

from billing.metering.idle import Reason
from billing.models import BlockedHour, Bucket, CapacityHour, IdleHour, UsageRecord
from billing.selectors.busy import Busy, busy_by
from billing.selectors.conservation import CARD_HOUR
from billing.selectors.idleprice import IdlePrices, idle_prices
from infra.models import Node
from portal.kernel.clock import Interval
from portal.kernel.money import decimal_from
from tenants.models import ModelDeployment, Tenant

DIMENSIONS = {
    "day": "day",
    "site": "site",
    "cluster": "cluster",
    "pool": "pool",
    "gpu_type": "GPU type",
    "tenant": "team",
    "model": "deployment",
}
"""What rows may be apart in, and how pages call it."""
REASONS = tuple(reason.value for reason in Reason)
UNEXPLAINED = "unexplained"
PARTS = ("tenants", "starting", "overhead", "unavailable", "unattributed", *REASONS, UNEXPLAINED)
"""Where a card's time goes: the buckets, with idle time by reason. Together they are the time in service."""
MOVES = {
    "no_demand": "Nobody waited for a card of this kind: offer them, or take fewer into service.",
    "quota": "Raise the asking team's limit, or lend it the guarantee that its owner does not use.",
    "fragmented": "Enough cards, but spread over nodes or cards: move small pods together.",
    "stranded": "Memory, cores, slots or the host's CPU are used up beside free cards: change shares or MIG layout.",
    "reserved": "Promised to pods that have not started: look at what keeps them (image, volume, scheduler).",
    "pending": "It fits and is placed at the next look. If that lasts, look at the work queue.",
    "zone": "Kept for a trust zone that does not ask for it: make the pool smaller, or open it.",
    "unexplained": "Hours that were written before reasons were kept.",
}
"""What frees idle time of a reason."""
WORDS = {
    "tenants": "held by teams",
    "starting": "starting",
    "overhead": "system and overhead",
    "unavailable": "unavailable",
    "unattributed": "nobody's",
    "no_demand": "no demand",
    "quota": "quota-blocked",
    "fragmented": "fragmented",
    "stranded": "stranded",
    "reserved": "reserved, not started",
    "pending": "about to be placed",
    "zone": "kept for a zone",
    "unexplained": "reason not known",
}
"""The parts in words. ``unexplained``: idle hours that were written before reasons were."""
_BUCKETS = ("tenants", "starting", "overhead", "unavailable", "unattributed", "idle", "in_service")


class HoursKey(NamedTuple):
    """What a row is about; what the table is not grouped by is empty. ``deployment`` is an id, ``model`` its name or
    the namespace. A row without a team holds what is no team's."""

    day: date | None = None
    site: str = ""
    cluster: str = ""
    pool: str = ""
    gpu_type: str = ""
    tenant: str = ""
    model: str = ""
    deployment: str = ""


@dataclass(frozen=True, slots=True)
class Only:
    """Narrows what is counted; what is None does not."""

    site_id: UUID | None = None
    cluster_id: UUID | None = None
    pool_id: UUID | None = None
    gpu_type_id: UUID | None = None
    tenant_id: UUID | None = None


@dataclass(slots=True)
class HoursRow:
    """Millionths·milliseconds of cards. ``parts`` are those of :data:`PARTS`, and together ``in_service``.

    ``geometry`` is the part of ``overhead`` that the MIG geometry strands; ``lopsided`` how much of shared cards was
    free in one dimension only (it is in no part of its own). ``costs``: idle time by reason at the rate in force;
    ``unpriced``: some of it has none. ``busy``: None where no sample says anything.
    """

    key: HoursKey
    parts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    in_service: int = 0
    geometry: int = 0
    lopsided: int = 0
    costs: dict[str, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    unpriced: bool = False
    busy: Busy | None = None

    @property
    def buckets(self) -> dict[str, int]:
        """The parts, by the name that bars of buckets use."""
        return self.parts

    @property
    def idle(self) -> int:
        """All idle time."""
        return sum(self.parts[name] for name in (*REASONS, UNEXPLAINED))

    @property
    def allocated(self) -> int:
        """Time that pods held: teams', starting, system, nobody's."""
        parts = self.parts
        return parts["tenants"] + parts["starting"] + parts["unattributed"] + parts["overhead"] - self.geometry

    @property
    def stranded(self) -> int:
        """Time that nobody could be given: idle but stranded, and what the MIG geometry leaves."""
        return self.parts["stranded"] + self.geometry

    def percent(self, amount: int) -> Decimal | None:
        """Of the time in service, to a tenth; None where nothing was in service."""
        return decimal_from(Fraction(100 * amount, self.in_service), 1) if self.in_service else None

    @property
    def allocated_percent(self) -> Decimal | None:
        """Allocated, of in service."""
        return self.percent(self.allocated)

    @property
    def stranded_percent(self) -> Decimal | None:
        """Stranded, of in service."""
        return self.percent(self.stranded)

    @property
    def idle_cost(self) -> Decimal | None:
        """What idle time costs at list prices; None where nothing of it has a price."""
        if self.unpriced and not self.costs:
            return None
        return decimal_from(sum(self.costs.values(), Fraction()), 6)

    def cost_of(self, reason: str) -> Decimal | None:
        """As :attr:`idle_cost`, of one reason."""
        if not self.parts[reason]:
            return Decimal(0)
        return decimal_from(self.costs[reason], 6) if reason in self.costs else None

    def add(self, other: HoursRow) -> None:
        """Count another row in."""
        for name in PARTS:
            self.parts[name] += other.parts[name]
        for reason, cost in other.costs.items():
            self.costs[reason] += cost
        self.in_service += other.in_service
        self.geometry += other.geometry
        self.lopsided += other.lopsided
        self.unpriced = self.unpriced or other.unpriced
        if other.busy is not None:
            self.busy = other.busy if self.busy is None else self.busy + other.busy


@dataclass(frozen=True, slots=True)
class Blocked:
    """Idle time that a quota kept from somebody: whose ask it was, and whose guarantee was not used.

    ``owner`` is empty where no guarantee was unused: the asking team's own limit stood in the way.
    """

    tenant: str
    owner: str
    cluster: str
    gpu_type: str
    units: int
    cost: Decimal | None


@dataclass(frozen=True, slots=True)
class HoursTable:
    """``balance``: time in service less Σ rows; 0, or an error. ``days``: how many the window has."""

    rows: tuple[HoursRow, ...]
    total: HoursRow
    blocked: tuple[Blocked, ...]
    currency: str
    days: Decimal
    balance: int

    def per_day(self, cost: Decimal | None) -> Decimal | None:
        """A cost of the window, for one day."""
        return None if cost is None else decimal_from(Fraction(cost) / Fraction(self.days), 6)


def hours_table(window: Interval, *, by: Collection[str], only: Only = Only()) -> HoursTable:
    """Card-hours of final hours, the rows with most idle cost (then idle time) first; by day, the latest first.

    Args:
        by: names of :data:`DIMENSIONS`. A pool's name is its cluster's, so ``pool`` brings ``cluster`` along.
    """
    by = {*by, "cluster"} if "pool" in by else set(by)
    fleet = by - {"tenant", "model"}
    prices = idle_prices(window)
    rows: dict[HoursKey, HoursRow] = {}
    total = HoursRow(HoursKey())
    if only.tenant_id is None:
        rows = _fleet_rows(window, fleet, only, prices)
        for row in rows.values():
            total.add(row)
    teams = by & {"tenant", "model"} or only.tenant_id is not None
    if teams:
        for row in rows.values():  # what teams held is in rows of their own
            row.in_service -= row.parts["tenants"]
            row.parts["tenants"] = 0
            row.busy = None
        for row in _team_rows(window, by, only):
            rows[row.key] = row
            if only.tenant_id is not None:
                total.add(row)
    found = [row for row in rows.values() if row.in_service or row.idle]
    found.sort(key=lambda row: (*_order(row), row.key[1:]))
    days = decimal_from(Fraction(window.ms, 86_400_000), 6)
    balance = total.in_service - sum(row.in_service for row in found)
    return HoursTable(tuple(found), total, tuple(_blocked(window, only, prices)), prices.currency, days, balance)


def _order(row: HoursRow) -> tuple[Any, ...]:
    day = -row.key.day.toordinal() if row.key.day else 0
    return day, -sum(row.costs.values()), -row.idle, -row.in_service


# --- the fleet -------------------------------------------------------------------------------------------------------

_FIELDS = {"site": "cluster__site__slug", "cluster": "cluster__slug", "pool": "node__pool__name",
           "gpu_type": "gpu_type__slug"}  # fmt: skip
_HOUR_DAY = TruncDate("hour", tzinfo=UTC)


def narrowed(rows: QuerySet[Any], window: Interval, only: Only) -> QuerySet[Any]:
    """Hours of nodes within a window, as far as they belong to what is asked for."""
    rows = rows.filter(hour__gte=window.start, hour__lt=window.end)
    for name, value in (
        ("cluster__site_id", only.site_id), ("cluster_id", only.cluster_id), ("node__pool_id", only.pool_id),
        ("gpu_type_id", only.gpu_type_id),
    ):  # fmt: skip
        if value is not None:
            rows = rows.filter(**{name: value})
    return rows


def _columns(by: Collection[str]) -> dict[str, Any]:
    """What rows are apart in, for the database; a constant where it is nothing."""
    found: dict[str, Any] = {f"by_{name}": F(path) for name, path in _FIELDS.items() if name in by}
    return found | ({"by_day": _HOUR_DAY} if "day" in by else {}) or {"by_all": Value(1)}


def _key(values: Mapping[str, Any]) -> HoursKey:
    found = {name: values.get(f"by_{name}") or "" for name in _FIELDS}
    return HoursKey(values.get("by_day"), **found)


def _fleet_rows(window: Interval, by: Collection[str], only: Only, prices: IdlePrices) -> dict[HoursKey, HoursRow]:
    columns = _columns(by)
    rows: dict[HoursKey, HoursRow] = {}
    sums = {f"sum_{name}": Sum(name) for name in _BUCKETS}
    for values in (
        narrowed(CapacityHour.objects.all(), window, only).annotate(**columns).order_by().values(*columns)
        .annotate(**sums)
    ):  # fmt: skip
        row = rows.setdefault(_key(values), HoursRow(_key(values)))
        for name in _BUCKETS[:5]:
            row.parts[name] = values[f"sum_{name}"]
        row.parts[UNEXPLAINED] = values["sum_idle"]
        row.in_service = values["sum_in_service"]
    _add_reasons(window, columns, only, prices, rows)
    for key, busy in busy_by(window, by, only.site_id, only.cluster_id, only.pool_id, only.gpu_type_id).items():
        if (known := rows.get(HoursKey(*key))) is not None:
            known.busy = busy
    return rows


def _add_reasons(
    window: Interval, columns: dict[str, Any], only: Only, prices: IdlePrices, rows: dict[HoursKey, HoursRow]
) -> None:
    """Idle time by reason, each hour at its price; what stays unexplained is idle time that was never split."""
    step = TruncHour("hour", tzinfo=UTC) if prices.change else _HOUR_DAY
    names = (*REASONS, "geometry", "lopsided")
    found = (
        narrowed(IdleHour.objects.all(), window, only)
        .annotate(**columns, step=step, slug=F("gpu_type__slug"))
        .order_by()
        .values(*columns, "step", "slug", "sharing")
        .annotate(**{f"sum_{name}": Sum(name) for name in names})
    )
    for values in found:
        row = rows.get(_key(values))
        if row is None:
            continue
        row.geometry += values["sum_geometry"]
        row.lopsided += values["sum_lopsided"]
        price = prices.at(values["slug"] or "", values["sharing"], values["step"])
        for reason in REASONS:
            units = values[f"sum_{reason}"]
            row.parts[reason] += units
            row.parts[UNEXPLAINED] -= units
            if not units:
                continue
            if price is None:
                row.unpriced = True
            else:
                row.costs[reason] += Fraction(units, CARD_HOUR) * price
    for row in rows.values():
        row.unpriced = row.unpriced or row.parts[UNEXPLAINED] != 0


# --- teams -----------------------------------------------------------------------------------------------------------


def _team_rows(window: Interval, by: Collection[str], only: Only) -> list[HoursRow]:
    """What teams held (the physical part of each card), from their usage."""
    pool = Node.objects.filter(pk=OuterRef("node_id"))
    columns = _columns(by)
    if "pool" in by:
        columns["by_pool"] = Subquery(pool.values("pool__name")[:1])
    if "tenant" in by:
        columns["by_tenant"] = F("tenant__slug")
    if "model" in by:
        columns |= {"by_deployment": F("deployment_id"), "by_namespace": F("namespace")}
    rows = UsageRecord.objects.filter(
        hour__gte=window.start, hour__lt=window.end, bucket=Bucket.TENANTS, tenant__isnull=False
    )
    if only.pool_id is not None:
        rows = rows.filter(node_id__in=Node.objects.filter(pool_id=only.pool_id).values("pk"))
    for name, value in (
        ("cluster__site_id", only.site_id), ("cluster_id", only.cluster_id), ("gpu_type_id", only.gpu_type_id),
        ("tenant_id", only.tenant_id),
    ):  # fmt: skip
        if value is not None:
            rows = rows.filter(**{name: value})
    found = list(rows.annotate(**columns).order_by().values(*columns).annotate(held=Sum("physical")))
    ids = {values["by_deployment"] for values in found if values.get("by_deployment")}
    names = dict(ModelDeployment.objects.filter(pk__in=ids).values_list("pk", "name"))
    teams: dict[HoursKey, HoursRow] = {}
    for values in found:
        deployment = values.get("by_deployment")
        label = names.get(deployment, str(deployment)) if deployment else values.get("by_namespace") or ""
        key = _key(values)._replace(
            tenant=values.get("by_tenant") or "", model=label, deployment=str(deployment) if deployment else ""
        )
        row = teams.setdefault(key, HoursRow(key))
        row.parts["tenants"] += values["held"]
        row.in_service += values["held"]
    return list(teams.values())


# --- blocked by a quota ----------------------------------------------------------------------------------------------


def _blocked(window: Interval, only: Only, prices: IdlePrices) -> list[Blocked]:
    """Who was kept from idle cards by a quota, the most expensive first."""
    step = TruncHour("hour", tzinfo=UTC) if prices.change else _HOUR_DAY
    rows = narrowed(BlockedHour.objects.all(), window, only)
    if only.tenant_id is not None:
        rows = rows.filter(Q(tenant_id=only.tenant_id) | Q(owner_tenant_id=only.tenant_id))
    names = ("tenant_id", "owner_tenant_id", "cluster__slug", "gpu_type__slug", "sharing", "step")
    units: dict[tuple[UUID, UUID | None, str, str], int] = defaultdict(int)
    costs: dict[tuple[UUID, UUID | None, str, str], Fraction | None] = {}
    for tenant, owner, cluster, slug, sharing, at, amount in (
        rows.annotate(step=step).order_by().values_list(*names).annotate(amount=Sum("units"))
    ):
        key = (tenant, owner, cluster, slug or "")
        units[key] += amount
        price, cost = prices.at(slug or "", sharing, at), costs.get(key, Fraction())
        costs[key] = None if price is None or cost is None else cost + Fraction(amount, CARD_HOUR) * price
    slugs = dict(Tenant.objects.values_list("pk", "slug")) if units else {}
    found = [
        Blocked(
            slugs.get(tenant, ""), slugs.get(owner, "") if owner else "", cluster, slug, units[key],
            None if (cost := costs[key]) is None else decimal_from(cost, 6),
        )
        for key in units
        for tenant, owner, cluster, slug in [key]
    ]  # fmt: skip
    return sorted(found, key=lambda one: (-(one.cost or 0), -one.units, one.tenant, one.owner))
