"""Faults written down: from a node's own word (the watcher) and from XIDs (metrics). Monotonic; the same again is
nothing new. What a fault withholds goes into the node's capacity as evidence; nothing is written to a cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.conf import settings
from django.db.models import Q

from infra.health import Finding, GaugeState, XidEvent, xid_class, xid_events, xid_name
from infra.models import CapacitySpan, Cluster, Device, DeviceSighting, HealthEvent, Node, PodObservation, XidGauge
from infra.services.capacity import InService, capacity_set, state_of
from infra.services.changes import Changes, lock_changes
from portal.kernel import audit, workqueue
from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.clock import from_epoch_ms, utcnow
from portal.kernel.problems import Conflict, Forbidden, Invalid
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import Mark

Sample = tuple[int, Decimal | None]
LARGEST_XID = 65_535
SIGHTED = timedelta(minutes=15)
"""How old a sight of a pod on a card may be to say that it holds the card."""


def health_set(row: Node, findings: Sequence[Finding], *, at: datetime) -> None:
    """The node tells of these faults now, and of no others: new ones begin, those that are gone end.

    XIDs are not among them: they end with a boot that is newer (:func:`health_rebooted`), or by a person.
    In the caller's transaction, which holds the node's row.
    """
    open_events = {
        (event.device, event.kind, event.code): event
        for event in HealthEvent.objects.filter(node=row, ended_at__isnull=True).exclude(kind=HealthEvent.Kind.XID)
    }
    told = {finding.key: finding for finding in findings}
    for key, event in open_events.items():
        if key not in told:
            _end(event, at, "the node no longer tells of it")
    begun = []
    for key in sorted(told.keys() - open_events.keys()):
        finding = told[key]
        since = min(finding.since or at, at)
        begun.append(
            HealthEvent(
                cluster_id=row.cluster_id, node=row, device=finding.device, kind=finding.kind, code=finding.code,
                fault_class=finding.fault_class, started_at=since, boot_id=row.boot_id, source="node",
                message=finding.message, affects=_holders(row, finding.device) if finding.fault_class.lasts else [],
            )
        )  # fmt: skip
    # A condition may come back with the time of its first turn: then it is the same event, and stays as it ended.
    HealthEvent.objects.bulk_create(begun, ignore_conflicts=True)


def health_rebooted(row: Node, *, at: datetime) -> None:
    """The node runs with another boot than when the faults of its cards were told: a reset has ended them."""
    stale = HealthEvent.objects.filter(node=row, kind=HealthEvent.Kind.XID, ended_at__isnull=True)
    for event in stale.exclude(boot_id__in=["", row.boot_id]):
        _end(event, at, "the node was started anew")


def health_event_end(*, event: HealthEvent, reason: str, actor: Actor) -> HealthEvent:
    """Say that a fault is over: a card that was reset without a new start of its node tells nobody.

    Raises:
        Forbidden: not a platform-admin. Invalid: no reason. Conflict: it is over.
    """
    if not actor.is_platform(PLATFORM_ADMIN):
        raise Forbidden("Only a platform-admin says that a fault is over.")
    if not reason.strip():
        raise Invalid.field("/reason", "Say what was done: it stands beside the event.")
    with system_scope("health_event_end"):
        changes = lock_changes(event.cluster_id)
        node = Node.objects.select_for_update(of=("self",), no_key=True).get(pk=event.node_id)
        row = HealthEvent.objects.select_for_update(of=("self",)).get(pk=event.pk)
        if row.ended_at is not None:
            raise Conflict(f"{row.title} on {node.name} is over since {row.ended_at:%Y-%m-%d %H:%M} UTC.")
        now = utcnow()
        _end(row, now, f"{actor.label}: {reason.strip()}")
        _withhold(node, changes, now)
        changes.save()
        audit.record(
            "health_event_end", actor=actor, tenant_id=None, object_kind="health_event", object_id=row.pk,
            object_name=f"{row.title} on {node.name}", after={"reason": reason.strip(), "device": row.device},
        )  # fmt: skip
        workqueue.mark("metering", row.cluster_id, cause="watch")
    return row


def _end(event: HealthEvent, at: datetime, why: str) -> None:
    event.ended_at, event.ended_by = max(at, event.started_at), why[:200]
    event.save(update_fields=["ended_at", "ended_by"])


# --- XIDs ------------------------------------------------------------------------------------------------------------


def xids_write(cluster: Cluster, samples: Mapping[str, Sequence[Sample]], places: Mapping[str, str]) -> int:
    """The XIDs that a window's samples tell of, by card; how many there were. In the caller's system scope.

    Args:
        samples: UUID → samples of the gauge, in the order of time; a window may overlap what was read before.
        places: UUID → name of the node, as far as known; else where the card was last seen.
    """
    known = {row.device: row for row in XidGauge.objects.filter(cluster=cluster, device__in=samples)}
    found: dict[str, list[XidEvent]] = {}
    moved: list[XidGauge] = []
    for uuid, values in sorted(samples.items()):
        old = known.get(uuid)
        events, state = xid_events(values, GaugeState(old.xid, old.at_ms) if old else None)
        if events:
            found[uuid] = events
        if state is not None and (old is None or (old.xid, old.at_ms) != (state.xid, state.at_ms)):
            moved.append(XidGauge(cluster=cluster, device=uuid, xid=state.xid, at_ms=state.at_ms))
    # Every gauge moves in every window: one statement for all cards.
    XidGauge.objects.bulk_create(
        moved, update_conflicts=True, unique_fields=["cluster", "device"], update_fields=["xid", "at_ms"]
    )
    if not found:
        return 0
    return _store_xids(cluster, found, places)


def _store_xids(cluster: Cluster, found: Mapping[str, list[XidEvent]], places: Mapping[str, str]) -> int:
    changes = lock_changes(cluster.pk)
    last_seen = dict(
        Device.objects.filter(cluster=cluster, uuid__in=found, gone_at__isnull=True).values_list("uuid", "node__name")
    )
    names = {uuid: places.get(uuid) or last_seen.get(uuid, "") for uuid in found}
    nodes = {
        node.name: node
        for node in Node.objects.filter(cluster=cluster, name__in=set(names.values()), gone_at__isnull=True)
        .order_by("pk")
        .select_for_update(of=("self",), no_key=True)
    }
    count = 0
    first: dict[UUID, datetime] = {}
    for uuid, events in sorted(found.items()):
        node = nodes.get(names[uuid])
        if node is None:
            continue  # a card of no node that is known: its samples stay with the source
        for event in events:
            at = from_epoch_ms(event.at_ms)
            fault_class = xid_class(event.xid, settings.AIF_HEALTH_XIDS)
            same = Q(node=node, device=uuid, kind=HealthEvent.Kind.XID, code=str(event.xid))
            if HealthEvent.objects.filter(same & (Q(started_at=at) | Q(ended_at__isnull=True))).exists():
                continue  # it lasts already
            HealthEvent.objects.create(
                cluster=cluster, node=node, device=uuid, kind=HealthEvent.Kind.XID, code=str(event.xid),
                fault_class=fault_class, started_at=at, not_before=from_epoch_ms(event.after_ms),
                ended_at=None if fault_class.lasts else at, boot_id=node.boot_id, source="metrics",
                message=xid_name(event.xid), affects=_holders(node, uuid),
            )  # fmt: skip
            count += 1
            if fault_class.value in settings.AIF_HEALTH_WITHHELD:
                first[node.pk] = min(first.get(node.pk, at), at)
    for node in nodes.values():
        if node.pk in first:
            _withhold(node, changes, first[node.pk])
    changes.save()
    if count:
        workqueue.mark_many([Mark("metering", cluster.pk, cause="watch")])
    return count


def _holders(node: Node, device: str) -> list[list[str]]:
    """Pods on the node now; where a card is named, those that are known to hold it (HAMi's record, metrics)."""
    seen = set(
        DeviceSighting.objects.filter(
            cluster_id=node.cluster_id, uuid=device, last_seen__gte=utcnow() - SIGHTED
        ).values_list("pod_uid", flat=True)
    )
    rows = PodObservation.objects.filter(
        cluster_id=node.cluster_id, node_name=node.name, ended_at__isnull=True, gone_at__isnull=True
    ).order_by("namespace", "name")
    found = []
    for namespace, name, uid, holds in rows.values_list("namespace", "name", "uid", "holds"):
        cards = {hold.get("uuid") for hold in holds if hold.get("uuid")}
        if not device or device in cards or uid in seen:
            found.append([namespace, name, uid])
    return found[:50]


# --- capacity --------------------------------------------------------------------------------------------------------


def with_faults(row: Node, state: InService, named: Collection[str] = ()) -> InService:
    """A node's state as its object tells it, with the cards that faults withhold.

    Args:
        named: UUIDs of the cards that the object itself calls unusable (HAMi); the other unusable ones have no name.
            A named fault of a card that is no longer allocatable is taken for one of those.
    """
    events = [
        event
        for event in HealthEvent.objects.filter(node=row, ended_at__isnull=True)
        if event.fault_class in settings.AIF_HEALTH_WITHHELD and event.kind != HealthEvent.Kind.HEARTBEAT
    ]
    if not events and not named:
        return state
    faulty = {event.device for event in events if event.device}
    whole = any(not event.device for event in events)
    unnamed = max(0, state.unavailable_cards - len(named) - len(faulty - set(named)))
    cards = faulty | set(named)
    count = state.cards if whole else min(state.cards, len(cards) + unnamed)
    titles = list(dict.fromkeys(event.title for event in events))
    reason = "; ".join([*([state.reason] if state.reason else []), *titles])
    return replace(state, unavailable_cards=count, reason=reason[:200], devices=tuple(sorted(cards))[: state.cards])


def _withhold(row: Node, changes: Changes, at: datetime) -> None:
    """Bring the running span to the node's open faults, from ``at`` on."""
    span = CapacitySpan.objects.filter(node=row, ended_at__isnull=True).first()
    if span is None:
        return
    named = Device.objects.filter(node=row, gone_at__isnull=True, healthy=False, register_slots__isnull=False)
    told = replace(
        state_of(span), unavailable_cards=min(row.unavailable_cards, span.cards), reason=row.unavailable_reason,
        devices=(),
    )  # fmt: skip
    state = with_faults(row, told, tuple(named.values_list("uuid", flat=True)))
    capacity_set(row, state, at=at, changes=changes, source=span.source)


def xid_samples(series: Iterable[tuple[Mapping[str, str], Sequence[Sample]]]) -> dict[str, list[Sample]]:
    """UUID → samples of its gauge, in order. Rows of MIG instances and of virtual cards repeat the card's value."""
    found: dict[str, dict[int, Decimal | None]] = defaultdict(dict)
    for labels, samples in series:
        if labels.get("__name__") == "DCGM_FI_DEV_XID_ERRORS" and labels.get("UUID"):
            found[labels["UUID"]].update((at, _xid(value)) for at, value in samples)
    return {uuid: sorted(values.items()) for uuid, values in found.items()}


def _xid(value: Decimal | None) -> Decimal | None:
    """The number; None where it can be none of an XID, such as DCGM's blanks."""
    return value if value is not None and 0 <= value <= LARGEST_XID else None
