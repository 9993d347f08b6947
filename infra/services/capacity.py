"""Capacity as evidence: what a node had in service, from when to when. Rows of a node never overlap."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from uuid import UUID

from django.db.models import Max

from infra.models import CapacitySpan, Node
from infra.services.changes import Changes, lock_changes


@dataclass(frozen=True, slots=True)
class InService:
    """What a :class:`~infra.models.CapacitySpan` says, without its times. ``devices``: UUIDs of unavailable cards.
    ``mig_layout``: sorted pairs, see :func:`infra.node_reading.mig_layout`."""

    gpu_type_id: UUID | None
    sharing: str
    zone_id: UUID | None
    cards: int
    unavailable_cards: int = 0
    reason: str = ""
    lost: bool = False
    devices: tuple[str, ...] = ()
    overcommit_percent: int = 100
    mig_profile: str = ""
    timeslice_replicas: int = 1
    mig_layout: tuple[tuple[str, int], ...] = ()

    def fields(self) -> dict[str, object]:
        """The span's fields."""
        values = asdict(self)
        return values | {
            "unavailable_devices": list(values.pop("devices")), "mig_layout": dict(self.mig_layout)
        }  # fmt: skip


def state_of(span: CapacitySpan) -> InService:
    """The state that a span records."""
    return InService(
        span.gpu_type_id,
        span.sharing,
        span.zone_id,
        span.cards,
        span.unavailable_cards,
        span.reason,
        span.lost,
        tuple(span.unavailable_devices),
        span.overcommit_percent,
        span.mig_profile,
        span.timeslice_replicas,
        tuple(sorted(span.mig_layout.items())),
    )


def capacity_set(node: Node, state: InService | None, *, at: datetime, changes: Changes, source: str = "watch") -> bool:
    """From ``at`` on the node is in ``state`` (None: out of service). Answers whether that changed anything.

    ``at`` is moved up to the start of the running span where it lies before it: what was recorded stays. A state
    that lasted no time is overwritten.
    """
    span = CapacitySpan.objects.select_for_update().filter(node=node, ended_at__isnull=True).first()
    wanted = state if state is not None and state.cards else None
    if span is None:
        if wanted is None:
            return False
        ended = CapacitySpan.objects.filter(node=node).aggregate(last=Max("ended_at"))["last"]
        _open(node, wanted, at if ended is None else max(at, ended), changes, source)
        return True
    if wanted is not None and state_of(span) == wanted:
        return False
    at = max(at, span.started_at)
    span.changed_seq = changes.draw()
    if wanted is not None and at == span.started_at:
        for name, value in wanted.fields().items():
            setattr(span, name, value)
        span.began_seq = span.changed_seq
    else:
        span.ended_at = at
    span.save()
    if wanted is not None and span.ended_at is not None:
        _open(node, wanted, at, changes, source)
    return True


def _open(node: Node, state: InService, at: datetime, changes: Changes, source: str) -> None:
    seq = changes.draw()
    CapacitySpan.objects.create(
        cluster_id=node.cluster_id,
        node=node,
        started_at=at,
        source=source,
        changed_seq=seq,
        began_seq=seq,
        **state.fields(),
    )


def pool_zone_changed(node_ids: list[UUID], *, cluster_id: UUID, zone_id: UUID | None, at: datetime) -> None:
    """From ``at`` on the pool of these nodes is kept for another zone (None: for none). In the caller's transaction."""
    changes = lock_changes(cluster_id)
    for node in Node.objects.filter(pk__in=node_ids, gone_at__isnull=True).order_by("pk"):
        span = CapacitySpan.objects.filter(node=node, ended_at__isnull=True).first()
        if span is not None:
            state = replace(state_of(span), zone_id=zone_id)
            capacity_set(node, state, at=at, changes=changes, source=span.source)
    changes.save()
