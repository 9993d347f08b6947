"""A tenant's usage of final hours as a table: by any of day, deployment, type of card and mode."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple
from uuid import UUID

from django.db.models import Min

from billing.locks import last_usage_seq
from billing.models import DeviceAllocation, Issuer, MeterProgress
from billing.prices import book_of, stored_rates
from billing.rates import RateBook
from billing.rating import UsageSum, rate
from billing.selectors.conservation import CARD_HOUR
from billing.selectors.costs import days_of
from billing.selectors.sums import EVERYTHING, IDLE, Only, Part, usage_sums
from infra.models import GPUType
from infra.models.hardware import SharingMode
from portal.kernel.clock import Interval
from portal.kernel.money import decimal_from, exact_sum
from tenants.models import ModelDeployment, TenantCluster

DIMENSIONS = ("day", "deployment", "gpu_type", "mode", "inner_namespace")
STANDARD = DIMENSIONS[:4]
"""What rows are apart in where nobody says. The namespaces inside tenant clusters cost a look at every pod."""
HOURS_PLACES = 6


class UsageKey(NamedTuple):
    """What a row is about; what the table is not grouped by is empty.

    ``deployment`` is its id ("" for pods of none), ``label`` its name, or the namespace. ``retroactive``: rebuilt from
    history, and on no bill. ``inner_namespace``: inside a tenant cluster; "" for what is in none.
    """

    day: date | None
    deployment: str
    label: str
    gpu_type: str
    sharing: str
    profile: str
    retroactive: bool = False
    inner_namespace: str = ""


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Hours and cost of one key.

    ``gpu_hours``: share of a card × time (MIG: slices ÷ slices of the card). ``instance_hours``: of it, MIG instances
    as instances, which is what they are billed by. ``amount`` is exact, and None where nothing of it has a price;
    ``unpriced``: some of it has none, and is not in the amount.
    """

    key: UsageKey
    gpu_hours: Decimal
    instance_hours: Decimal
    amount: Decimal | None
    unpriced: bool


@dataclass(frozen=True, slots=True)
class UsageTable:
    """All rows, the latest day first and then by amount, and what they are together.

    ``past``: what of the total was rebuilt from history; rows of it are apart.
    """

    issuer: Issuer
    rows: tuple[UsageRow, ...]
    total: UsageRow
    past: UsageRow


def usage_table(
    tenant_id: UUID, issuer: Issuer, window: Interval, *, by: Collection[str] = STANDARD, only: Only = EVERYTHING
) -> UsageTable:
    """Usage of final hours in a window, within a scope of the tenant. A few queries, however much there is.

    Args:
        by: which of :data:`DIMENSIONS` the rows are apart in. Days are those of the issuer's time zone.
        only: narrows what is counted.
    """
    rates = stored_rates(issuer)
    days = days_of(window, issuer.time_zone) if "day" in by else []
    edges = {edge for one in rates for edge in (one.valid_from, one.valid_to) if edge is not None}
    part = Part(window, 0, last_usage_seq())
    found: list[tuple[bool, UsageSum]] = []
    for past in (False, True):
        sums = usage_sums(
            part, edges | {start for start, _ in days}, rates,
            tenant_ids=[tenant_id], only=replace(only, retroactive=past), subjects="deployment" in by,
            inner="inner_namespace" in by,
        ).get(tenant_id)  # fmt: skip
        found += [(past, one) for one in (*sums.held, *sums.idle)] if sums else []
    names = _names(tenant_id) if "deployment" in by else {}
    starts = [start for start, _ in days]
    together: dict[UsageKey, list[UsageSum]] = defaultdict(list)
    for past, usage in found:
        day = days[bisect_right(starts, usage.segment.start) - 1][1] if days else None
        together[_key(usage, day, names, by)._replace(retroactive=past)].append(usage)
    book = book_of(issuer, rates, window, part.upto)
    rows = [_row(key, part, book) for key, part in together.items()]
    rows.sort(key=lambda row: (-row.key.day.toordinal() if row.key.day else 0, -(row.amount or 0), row.key[1:]))
    return UsageTable(issuer, tuple(rows), _total(rows), _total([row for row in rows if row.key.retroactive]))


def usage_days(
    tenant_id: UUID, issuer: Issuer, window: Interval, *, only: Only = EVERYTHING
) -> list[tuple[date, UsageRow]]:
    """One row a day, in order; a day without usage has zeros."""
    table = usage_table(tenant_id, issuer, window, by=("day",), only=only)
    found: dict[date | None, list[UsageRow]] = defaultdict(list)
    for row in table.rows:
        found[row.key.day].append(row)
    days = [day for _, day in days_of(window, issuer.time_zone)]
    return [(day, replace(_total(found[day]), key=UsageKey(day, "", "", "", "", ""))) for day in days]


def usage_final_until(tenant_id: UUID) -> datetime | None:
    """Up to when usage is final on every cluster on which the tenant holds, or held, a card."""
    clusters = DeviceAllocation.objects.filter(tenant_id=tenant_id).order_by().values("cluster_id").distinct()
    until: datetime | None = MeterProgress.objects.filter(cluster_id__in=clusters).aggregate(m=Min("final_until"))["m"]
    return until


@dataclass(frozen=True, slots=True)
class Choices:
    """What a tenant's usage can be narrowed to."""

    deployments: list[tuple[str, str]]
    namespaces: list[str]
    gpu_types: list[tuple[str, str]]
    inside: bool = False
    """Whether it has, or had, a tenant cluster, with namespaces inside."""


def usage_choices(tenant_id: UUID) -> Choices:
    """Deployments (the latest 200), namespaces without one, and types of cards that the tenant ever held."""
    held = DeviceAllocation.objects.filter(tenant_id=tenant_id).order_by()
    deployments = ModelDeployment.objects.filter(
        tenant_id=tenant_id, pk__in=held.exclude(deployment_id=None).values("deployment_id")
    ).order_by("-created_at")[:200]
    namespaces = held.filter(deployment_id=None).values_list("namespace", flat=True).distinct()
    types = GPUType.objects.filter(pk__in=held.values("gpu_type_id")).order_by("slug")
    return Choices(
        [(str(pk), name) for pk, name in deployments.values_list("pk", "name")],
        sorted(namespaces),
        [(row.slug, row.name) for row in types],
        TenantCluster.objects.filter(tenant_id=tenant_id).exists(),
    )


def narrowed(tenant_id: UUID, *, deployment: str = "", gpu_type: str = "", sharing: str = "") -> Only | None:
    """A filter from names; None where a name is unknown, so nothing matches.

    Args:
        deployment: a deployment's id or name, or ``ns:`` and a namespace (pods of no deployment).
        gpu_type: slug.
    """
    only = Only(sharing=sharing)
    if sharing and sharing not in SharingMode.values:
        return None
    if gpu_type:
        card = GPUType.objects.filter(slug=gpu_type).first()
        if card is None:
            return None
        only = Only(gpu_type_id=card.pk, sharing=sharing)
    if not deployment:
        return only
    if deployment.startswith("ns:"):
        return Only(namespace=deployment[3:], gpu_type_id=only.gpu_type_id, sharing=sharing)
    rows = ModelDeployment.objects.filter(tenant_id=tenant_id)
    try:
        row = rows.filter(pk=UUID(deployment)).first()
    except ValueError:
        row = rows.filter(name=deployment).order_by("-created_at").first()
    return Only(deployment_id=row.pk, gpu_type_id=only.gpu_type_id, sharing=sharing) if row else None


def _names(tenant_id: UUID) -> dict[str, str]:
    return {str(pk): name for pk, name in ModelDeployment.objects.filter(tenant_id=tenant_id).values_list("pk", "name")}


def _key(usage: UsageSum, day: date | None, names: dict[str, str], by: Collection[str]) -> UsageKey:
    deployment = usage.subject.deployment
    label = names.get(deployment, deployment) if deployment else usage.subject.namespace
    mode = "mode" in by
    return UsageKey(
        day,
        deployment,
        "idle time of reserved cards" if label == IDLE else label,
        usage.key.gpu_type if "gpu_type" in by else "",
        usage.key.sharing if mode else "",
        usage.key.profile if mode else "",
        inner_namespace=usage.subject.inner,
    )


def _row(key: UsageKey, sums: list[UsageSum], book: RateBook) -> UsageRow:
    lines = rate(sums, book)
    amounts = [line.amount for line in lines if line.amount is not None]
    instances = sum(one.milliseconds for one in sums if one.key.sharing == SharingMode.MIG)
    return UsageRow(
        key,
        decimal_from(Fraction(sum(one.charged for one in sums), CARD_HOUR), HOURS_PLACES),
        decimal_from(Fraction(instances, 3_600_000), HOURS_PLACES),
        exact_sum(amounts) if amounts or not lines else None,
        any(not line.is_priced for line in lines),
    )


def _total(rows: list[UsageRow]) -> UsageRow:
    return UsageRow(
        UsageKey(None, "", "", "", "", ""),
        exact_sum([row.gpu_hours for row in rows]),
        exact_sum([row.instance_hours for row in rows]),
        exact_sum([row.amount for row in rows if row.amount is not None]),
        any(row.unpriced for row in rows),
    )
