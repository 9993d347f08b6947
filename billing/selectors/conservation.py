"""Where the fleet's card-hours went, and whether all of them are accounted for. For platform pages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import F, Max, Min, QuerySet, Sum

from billing.models import Bucket, CapacityHour, UsageRecord
from portal.kernel.clock import Interval

BUCKETS = ("tenants", "idle", "starting", "overhead", "unavailable", "unattributed")
_DIFFERENCE = F("in_service") - sum((F(name) for name in BUCKETS[1:]), F(BUCKETS[0]))


def capacity_hours(window: Interval, *, cluster_id: UUID | None = None) -> QuerySet[CapacityHour]:
    """Per node, type and hour: the six buckets and what was in service, with ``balance`` (0, or an error)."""
    rows = CapacityHour.objects.filter(hour__gte=window.start, hour__lt=window.end)
    if cluster_id is not None:
        rows = rows.filter(cluster_id=cluster_id)
    return (
        rows.select_related("cluster", "node", "gpu_type")
        .annotate(balance=_DIFFERENCE)
        .order_by("-hour", "cluster__slug", "node__name")
    )


def capacity_by_type(window: Interval, *, cluster_id: UUID | None = None) -> list[dict[str, object]]:
    """The same summed by cluster, type and mode: ``cluster``, ``gpu_type``, ``sharing``, the buckets, ``in_service``,
    ``balance``, ``overbooked``, ``outside`` in millionths·milliseconds."""
    rows = CapacityHour.objects.filter(hour__gte=window.start, hour__lt=window.end)
    if cluster_id is not None:
        rows = rows.filter(cluster_id=cluster_id)
    sums = {name: Sum(name) for name in (*BUCKETS, "in_service", "overbooked", "outside")}
    found = (
        rows.values("cluster__slug", "gpu_type__slug", "sharing")
        .annotate(**{f"sum_{name}": expression for name, expression in sums.items()})
        .order_by("cluster__slug", "gpu_type__slug", "sharing")
    )
    return [
        {
            "cluster": row["cluster__slug"],
            "gpu_type": row["gpu_type__slug"],
            "sharing": row["sharing"],
            **{name: row[f"sum_{name}"] for name in sums},
            "balance": row["sum_in_service"] - sum(row[f"sum_{name}"] for name in BUCKETS),
        }
        for row in found
    ]


def imbalances(window: Interval) -> QuerySet[CapacityHour]:
    """Hours that do not add up, or in which more was held than was there."""
    rows = capacity_hours(window)
    return (rows.exclude(balance=0) | rows.exclude(overbooked=0) | rows.exclude(outside=0)).distinct()


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
