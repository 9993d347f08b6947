"""Whose a namespace was, when; and which namespaces with cards are nobody's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Exists, Max, Min, OuterRef, Q

from infra.models import Cluster, NamespaceClaim, PodObservation


@dataclass(frozen=True, slots=True)
class UnmappedNamespace:
    """A namespace with pods that asked for cards and that no tenant pays for now. ``live``: pods that are there."""

    cluster: str
    namespace: str
    pods: int
    live: int
    first_seen_at: datetime
    last_bound_at: datetime | None


def unmapped_namespaces(clusters: Sequence[Cluster]) -> list[UnmappedNamespace]:
    """Namespaces without an open claim whose pods asked for cards; those with most live pods first. System namespaces
    are left out: their time is overhead, not a gap."""
    claimed = NamespaceClaim.objects.filter(
        cluster=OuterRef("cluster"), namespace=OuterRef("namespace"), valid_to__isnull=True
    )
    found: list[UnmappedNamespace] = []
    for cluster in clusters:
        rows = (
            PodObservation.objects.filter(~Exists(claimed), cluster=cluster)
            .exclude(namespace__in=cluster.system_namespaces)
            .values("namespace")
            .annotate(
                # A pod that was watched and has rebuilt time as well is in two rows.
                pods=Count("pk", filter=Q(past__isnull=True) | ~Q(past__api=True)),
                live=Count("pk", filter=Q(ended_at__isnull=True, gone_at__isnull=True)),
                first=Min("first_seen_at"),
                bound=Max("scheduled_at"),
            )
        )
        found += [
            UnmappedNamespace(cluster.slug, r["namespace"], r["pods"], r["live"], r["first"], r["bound"]) for r in rows
        ]
    return sorted(found, key=lambda one: (-one.live, -one.pods, one.cluster, one.namespace))
