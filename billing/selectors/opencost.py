"""What OpenCost has answered, and where it is silent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db.models import Q, QuerySet

from billing.models import OpenCostAnswer, OpenCostSource
from billing.opencost.client import SETTLED
from billing.rates import Rate, RateKey, Resource, hour_words
from billing.rating import Kind, Line, Subject
from infra.models import ClusterEndpoint, NamespaceClaim
from portal.kernel.clock import HOUR, Interval, hour_start, utcnow

PATIENCE = timedelta(hours=2)
"""How long after its end an hour may be without an answer before anybody is told."""


def answers(window: Interval, *, cluster_id: UUID | None = None) -> QuerySet[OpenCostAnswer]:
    """The latest taken answer of each cluster and hour of a window, without the bodies."""
    rows = OpenCostAnswer.objects.filter(accepted=True, hour__gte=window.start, hour__lt=window.end)
    if cluster_id is not None:
        rows = rows.filter(cluster_id=cluster_id)
    return rows.defer("raw").order_by("cluster_id", "hour", "-revision").distinct("cluster_id", "hour")


def refused_answers(window: Interval, *, cluster_id: UUID | None = None) -> QuerySet[OpenCostAnswer]:
    """Hours whose answer was refused, and that have no other, the latest first."""
    rows = OpenCostAnswer.objects.filter(hour__gte=window.start, hour__lt=window.end)
    if cluster_id is not None:
        rows = rows.filter(cluster_id=cluster_id)
    taken = rows.filter(accepted=True).values_list("cluster_id", "hour")
    known = set(taken)
    ids = [pk for pk, cluster, hour in rows.filter(accepted=False).values_list("pk", "cluster_id", "hour")
           if (cluster, hour) not in known]  # fmt: skip
    return OpenCostAnswer.objects.filter(pk__in=ids).defer("raw").select_related("cluster").order_by("-hour", "cluster")


def silent_hours(window: Interval, upto: int) -> dict[UUID, list[datetime]]:
    """Hours of a window that a cluster's OpenCost should have answered for by now, and has not; by cluster.

    Only of clusters that have an OpenCost. ``upto``: answers with a later sequence number don't count.
    """
    end = min(hour_start(window.end), hour_start(utcnow() - SETTLED - PATIENCE))
    if end <= window.start:
        return {}
    sources = OpenCostSource.objects.filter(
        first_hour__isnull=False,
        cluster_id__in=ClusterEndpoint.objects.filter(role=ClusterEndpoint.Role.OPENCOST).values("cluster_id"),
    )
    known: dict[UUID, set[datetime]] = defaultdict(set)
    taken = OpenCostAnswer.objects.filter(accepted=True, hour__gte=window.start, hour__lt=end, seq__lte=upto)
    for cluster, hour in taken.values_list("cluster_id", "hour"):
        known[cluster].add(hour)
    found = {}
    for cluster in sources.values_list("cluster_id", flat=True):
        missing = [hour for hour in _hours(Interval(window.start, end)) if hour not in known[cluster]]
        if missing:
            found[cluster] = missing
    return found


def _hours(window: Interval) -> Iterable[datetime]:
    at = hour_start(window.start)
    at = at if at >= window.start else at + HOUR
    while at < window.end:
        yield at
        at += HOUR


def silent_lines(
    rates: Sequence[Rate], window: Interval, upto: int, tenant_ids: Collection[UUID] | None
) -> dict[UUID, tuple[Line, ...]]:
    """Storage and network of hours that OpenCost has not answered for: unpriced lines, by tenant with a claim there.

    What nobody has answered for is not zero, so it blocks the close of whoever is charged for it.
    """
    estimated = [rate for rate in rates if rate.key.resource in (Resource.STORAGE, Resource.NETWORK)]
    if not any(rate.valid_from < window.end for rate in estimated):
        return {}
    silent = silent_hours(window, upto)
    names = dict(OpenCostSource.objects.filter(cluster_id__in=silent).values_list("cluster_id", "cluster__slug"))
    found: dict[UUID, list[Line]] = defaultdict(list)
    for cluster, missing in silent.items():
        for key in sorted({rate.key for rate in estimated}):
            hours = [hour for hour in missing if _in_force(estimated, key, hour)]
            if not hours:
                continue
            whole = Interval(hours[0], hours[-1] + HOUR)
            more = f" (and {len(hours) - 1} more hours)" if len(hours) > 1 else ""
            reason = f"OpenCost has not answered for {names[cluster]} {hour_words(hours[0])}{more}"
            for tenant in _claimants(cluster, whole, tenant_ids):
                found[tenant].append(
                    Line(
                        Kind(key.resource.value), Subject(str(tenant), names[cluster]), key, whole,
                        Decimal(len(hours)), "hour", reason=reason,
                    )
                )  # fmt: skip
    return {tenant: tuple(lines) for tenant, lines in found.items()}


def _in_force(rates: Iterable[Rate], key: RateKey, at: datetime) -> bool:
    return any(
        rate.key == key and rate.valid_from <= at and (rate.valid_to is None or at < rate.valid_to) for rate in rates
    )


def _claimants(cluster: UUID, window: Interval, tenant_ids: Collection[UUID] | None) -> list[UUID]:
    rows = NamespaceClaim.objects.filter(
        Q(valid_to__isnull=True) | Q(valid_to__gt=window.start), cluster_id=cluster, valid_from__lt=window.end
    )
    if tenant_ids is not None:
        rows = rows.filter(tenant_id__in=list(tenant_ids))
    return sorted(set(rows.values_list("tenant_id", flat=True)))
