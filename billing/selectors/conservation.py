"""Where the fleet's card-hours went, and whether all of them are accounted for. For platform pages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import F, Max, Min, Q, QuerySet, Sum

from billing.models import Bucket, CapacityHour, UsageRecord
from portal.kernel.clock import Interval

BUCKETS = ("tenants", "idle", "starting", "overhead", "unavailable", "unattributed")
_BUCKETS = sum((F(name) for name in BUCKETS[1:]), F(BUCKETS[0]))


def capacity_hours(window: Interval, *, cluster_id: UUID | None = None) -> QuerySet[CapacityHour]:
    """Per node, type and hour: the six buckets and what was in service, with ``balance`` (0, or an error)."""
    rows = CapacityHour.objects.filter(hour__gte=window.start, hour__lt=window.end)
    if cluster_id is not None:
        rows = rows.filter(cluster_id=cluster_id)
    return (
        rows.select_related("cluster", "node", "gpu_type")
        .annotate(balance=F("in_service") - _BUCKETS)
        .order_by("-hour", "cluster__slug", "node__name")
    )


@dataclass(frozen=True, slots=True)
class TypeCapacity:
    """A type and mode of card of one cluster in a window; millionths·milliseconds."""

    cluster: str
    gpu_type: str
    sharing: str
    in_service: int
    buckets: dict[str, int]
    overbooked: int
    outside: int

    @property
    def balance(self) -> int:
        """Time in service less the six buckets: 0, or an error."""
        return self.in_service - sum(self.buckets.values())


def capacity_by_type(window: Interval, *, cluster_id: UUID | None = None) -> list[TypeCapacity]:
    """The capacity hours summed by cluster, type and mode."""
    rows = CapacityHour.objects.filter(hour__gte=window.start, hour__lt=window.end)
    if cluster_id is not None:
        rows = rows.filter(cluster_id=cluster_id)
    keys = ("cluster__slug", "gpu_type__slug", "sharing")
    figures = ("in_service", "overbooked", "outside", *BUCKETS)
    found = rows.order_by(*keys).values_list(*keys).annotate(**{f"sum_{name}": Sum(name) for name in figures})
    return [
        TypeCapacity(cluster, gpu_type or "", sharing, in_service, dict(zip(BUCKETS, buckets, strict=True)), over, out)
        for cluster, gpu_type, sharing, in_service, over, out, *buckets in found
    ]


def imbalances(window: Interval) -> QuerySet[CapacityHour]:
    """Hours that do not add up, or in which more was held than was there."""
    wrong = ~Q(in_service=_BUCKETS) | ~Q(overbooked=0) | ~Q(outside=0)
    return capacity_hours(window).filter(wrong)


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
