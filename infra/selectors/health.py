"""Faults of cards and nodes, read: what is at fault now and whom it concerns, and the list of all that was told."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db.models import Q, QuerySet

from infra.health import MEANINGS, FaultClass
from infra.models import HealthEvent, PodObservation


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that lasts, in words. ``affected``: namespace/pod of those that were on the card, or the node, then."""

    event: HealthEvent
    meaning: str
    affected: tuple[str, ...]

    @property
    def where(self) -> str:
        """``GPU-… of gpu-7``, or the node."""
        return f"{self.event.device} of {self.event.node.name}" if self.event.device else self.event.node.name

    @property
    def sentence(self) -> str:
        """For a list of what needs attention."""
        event = self.event
        who = f" It concerns {', '.join(self.affected[:3])}" if self.affected else ""
        more = f" and {len(self.affected) - 3} more" if len(self.affected) > 3 else ""
        return (
            f"{event.cluster.slug}: {event.title} on {self.where} since {event.started_at:%Y-%m-%d %H:%M} UTC. "
            f"{self.meaning}{who}{more}{'.' if who else ''}"
        )


def meaning_of(fault_class: str) -> str:
    """What a class means; empty for one that is not known any more."""
    return MEANINGS[FaultClass(fault_class)] if fault_class in set(FaultClass) else ""


_GRAVEST = {name: place for place, name in enumerate(("node", "reset", "link", "memory", "unknown", "watch"))}


def faults_now(cluster_ids: Collection[UUID] | None = None, limit: int = 50) -> list[Fault]:
    """What is at fault now, the gravest class and then the oldest first. What is only a mark (cordoned in HAMi) is not
    among it, nor what another list shows (no heartbeat)."""
    rows = HealthEvent.objects.filter(
        ended_at__isnull=True, cluster__abandoned_at__isnull=True, node__gone_at__isnull=True
    )
    if cluster_ids is not None:
        rows = rows.filter(cluster_id__in=cluster_ids)
    rows = rows.exclude(fault_class=FaultClass.INFO).select_related("cluster", "node")
    found = [
        Fault(event, meaning_of(event.fault_class), tuple(f"{one[0]}/{one[1]}" for one in event.affects))
        for event in rows.order_by("started_at", "id")[: 4 * limit]
    ]
    found.sort(key=lambda one: _GRAVEST.get(one.event.fault_class, len(_GRAVEST)))
    return found[:limit]


def health_events(
    *, cluster_id: UUID | None = None, fault_class: str = "", kind: str = "", lasting: bool = False, text: str = ""
) -> QuerySet[HealthEvent]:
    """All events that match, the latest first.

    Args:
        text: part of a node's name, a card's UUID or a code.
    """
    rows = HealthEvent.objects.select_related("cluster", "node").order_by("-started_at", "-id")
    if cluster_id is not None:
        rows = rows.filter(cluster_id=cluster_id)
    if fault_class:
        rows = rows.filter(fault_class=fault_class)
    if kind:
        rows = rows.filter(kind=kind)
    if lasting:
        rows = rows.filter(ended_at__isnull=True)
    if text:
        rows = rows.filter(Q(node__name__icontains=text) | Q(device__icontains=text) | Q(code__iexact=text))
    return rows


@dataclass(frozen=True, slots=True)
class Told:
    """A fault that a team is told of: a card of its pod. ``credited``: it is credited from then on."""

    pod: str
    title: str
    at: datetime
    device: str
    meaning: str
    credited: bool
    lasts: bool


def told_of_deployment(deployment_id: UUID, since: datetime) -> list[Told]:
    """XIDs and faults of cards and nodes that a deployment's pods held then, the latest first. Two queries.

    Within a scope that may see the deployment: pods of others are never in the answer.
    """
    pods = dict(
        PodObservation.objects.filter(deployment_id=deployment_id)
        .filter(Q(ended_at__isnull=True) | Q(ended_at__gte=since))
        .order_by("-first_seen_at")
        .values_list("uid", "name")[:500]
    )
    if not pods:
        return []
    clusters = PodObservation.objects.filter(deployment_id=deployment_id).values("cluster_id")
    rows = HealthEvent.objects.filter(cluster_id__in=clusters, started_at__gte=since).exclude(affects=[])
    return [
        Told(
            pods[uid], row.title, row.started_at, row.device, meaning_of(row.fault_class),
            row.fault_class in settings.AIF_HEALTH_CREDITED
            and row.kind in (HealthEvent.Kind.XID, HealthEvent.Kind.CONDITION),
            row.ended_at is None,
        )
        for row in rows.order_by("-started_at")[:500]
        for _, _, uid in row.affects
        if uid in pods
    ][:20]  # fmt: skip
