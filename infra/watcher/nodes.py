"""What a batch of nodes does to the rows: node, type, pool, cards, and the spans of capacity in service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from infra.concerned import concerned_by
from infra.ledger import amount_of
from infra.models import CapacitySpan, Cluster, Device, GPUType, Node, Reservation
from infra.node_reading import NodeFacts
from infra.pod_devices import is_gpu
from infra.selectors.snapshot import unusable
from infra.services.capacity import InService, capacity_set
from infra.services.changes import Changes
from infra.services.gpu_types import gpu_type_discover, pool_for, selector_labels
from infra.services.health import health_rebooted, health_set, with_faults
from infra.services.overcommit import node_overcommit
from infra.watcher.items import NodeSight
from portal.kernel.workqueue import Mark


def store_nodes(
    cluster: Cluster,
    sights: Sequence[NodeSight],
    changes: Changes,
    *,
    listed: frozenset[str] | None = None,
    listed_at: datetime | None = None,
    last_proof: datetime | None = None,
) -> set[Mark]:
    """Bring the cluster's node rows to what was seen, in the order given; the answer is what must be looked at.

    Nodes without accelerators are not kept, unless they had some before. ``listed``: uids of a complete list taken at
    ``listed_at``; nodes that are not in it went out of service at ``last_proof`` (None: at that list).
    """
    also = selector_labels(cluster.pk)
    # Locked by id, as whoever reserves devices on several nodes does; and what is read is what will be overwritten.
    nodes = Node.objects.filter(cluster=cluster)
    if listed is None:
        nodes = nodes.filter(uid__in={sight.facts.uid for sight in sights})
    locked = nodes.order_by("pk").select_for_update(of=("self",), no_key=True).select_related("pool")
    rows = {node.uid: node for node in locked}
    changed = more_room = False
    for sight in sorted(sights, key=lambda s: s.facts.name) if listed is not None else sights:
        row = rows.get(sight.facts.uid)
        if sight.deleted:
            if row is not None:
                changed |= _gone(row, sight.unwatched_since or sight.seen_at, sight.seen_at, changes)
            continue
        if row is None and not sight.facts.has_cards:
            continue
        if row is not None and _older(sight.facts, row):
            continue
        if row is not None and row.gone_at is None and row.digest == sight.facts.digest:
            Node.objects.filter(pk=row.pk).update(resource_version=sight.facts.resource_version)
            continue
        before = room_on(row)
        row, told = _seen(cluster, row, sight, also, changes, last_proof)
        rows[row.uid] = row
        changed |= told
        more_room |= more(before, room_on(row))
    if listed is not None and listed_at is not None:
        for row in rows.values():
            if row.uid not in listed and row.gone_at is None:
                changed |= _gone(row, last_proof or listed_at, listed_at, changes)
    marks = {Mark("metering", cluster.pk, cause="watch")} if changed else set()
    return marks | set(concerned_by(cluster.pk)) if more_room and cluster.writable else marks


def room_on(row: Node | None) -> dict[str, object]:
    """What a node has to offer to who waits for a place; empty where nothing may go to it."""
    if row is None or row.gone_at is not None or row.pool is None or unusable(row):
        return {}
    offered: dict[str, object] = {
        resource: amount_of(row.allocatable, resource)
        for resource in row.allocatable
        if is_gpu(resource) or resource in ("cpu", "memory")
    }
    cards = Device.objects.filter(node=row, gone_at__isnull=True, healthy=True).count()
    return offered | {"cards": row.cards - row.unavailable_cards, "healthy": cards, "pool": row.pool.pk}


def more(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    """Whether there is more of anything, or in another pool, than before."""
    if before.get("pool") != after.get("pool"):
        return bool(after)
    return any(isinstance(amount, int) and amount > int(str(before.get(name, 0))) for name, amount in after.items())


def _older(facts: NodeFacts, row: Node) -> bool:
    """Whether we know a later state: events may be repeated."""
    old, new = row.resource_version, facts.resource_version
    return old.isdecimal() and new.isdecimal() and int(new) < int(old)


def _gone(row: Node, out_of_service: datetime, at: datetime, changes: Changes) -> bool:
    if row.gone_at is not None:
        return False
    row.gone_at = at
    row.save(update_fields=["gone_at"])
    health_set(row, (), at=at)
    Device.objects.filter(node=row, gone_at__isnull=True).update(gone_at=at)
    return capacity_set(row, None, at=out_of_service, changes=changes)


def _seen(
    cluster: Cluster,
    row: Node | None,
    sight: NodeSight,
    also: frozenset[str],
    changes: Changes,
    last_proof: datetime | None,
) -> tuple[Node, bool]:
    facts = sight.facts
    gpu_type = gpu_type_discover(facts) if facts.has_cards else None
    was_ready, fresh = (row.ready if row else None), row is None
    if row is None:
        row = Node(cluster=cluster, uid=facts.uid, first_seen_at=sight.seen_at)
    pool = pool_for(cluster, facts, gpu_type, row.pool)
    if row.pool is None or pool is None or pool.pk == row.pool.pk or not _promised(row, facts, gpu_type):
        row.pool = pool
    row.name, row.ready, row.unschedulable = facts.name, facts.ready, facts.unschedulable
    row.taints, row.labels = list(facts.taints), facts.stored_labels(also)
    row.allocatable, row.capacity = dict(facts.allocatable), dict(facts.capacity)
    row.cards, row.unavailable_cards = facts.cards, facts.unavailable
    row.unavailable_reason, row.mig_profile = facts.reason[:200], facts.mig_profile
    row.lease_renewed_at = sight.lease_renewed_at or row.lease_renewed_at
    row.boot_id = facts.boot_id or row.boot_id
    row.resource_version, row.gone_at, row.digest = facts.resource_version, None, facts.digest
    row.save()
    _store_cards(cluster, row, facts, sight.seen_at)
    health_set(row, facts.faults, at=sight.seen_at)
    health_rebooted(row, at=sight.seen_at)
    state = InService(
        gpu_type.pk if gpu_type else None,
        facts.sharing,
        row.pool.zone_id if row.pool else None,
        facts.cards,
        facts.unavailable,
        facts.reason[:200],
        facts.ready is None or (facts.ready is False and not fresh and _is_lost(row)),
        overcommit_percent=node_overcommit(row, gpu_type, facts.sharing),
        mig_profile=facts.mig_profile,
        timeslice_replicas=facts.timeslice_replicas,
        mig_layout=facts.mig_layout,
    )
    state = with_faults(row, state, [card.uuid for card in facts.registered if not card.healthy])
    at = _came(facts, sight.seen_at, last_proof) if fresh else _since(facts, was_ready, sight)
    return row, capacity_set(row, state, at=at, changes=changes)


def _is_lost(row: Node) -> bool:
    """Whether it was lost so far: it is so until it is Ready again, not just heard of."""
    return CapacitySpan.objects.filter(node=row, ended_at__isnull=True, lost=True).exists()


def _came(facts: NodeFacts, seen_at: datetime, last_proof: datetime | None) -> datetime:
    """Since when a node that we did not know is in service: since it was seen; one that was made while nobody watched,
    since it is Ready."""
    if last_proof is None or facts.created_at is None or facts.created_at < last_proof or not facts.ready:
        return seen_at
    return min(seen_at, max(facts.created_at, facts.ready_since or seen_at))


def _promised(row: Node, facts: NodeFacts, gpu_type: GPUType | None) -> bool:
    """Whether devices of the node are promised in its pool, which still describes it: then it stays there for now."""
    assert row.pool is not None
    same = gpu_type is not None and (row.pool.gpu_type_id, row.pool.sharing) == (gpu_type.pk, facts.sharing)
    return same and Reservation.objects.filter(node=row, released_at__isnull=True).exists()


def _since(facts: NodeFacts, was_ready: bool | None, sight: NodeSight) -> datetime:
    """When the state began. A node that turned Unknown was last alive when its Lease was renewed: the condition comes
    later, by the node controller's grace; any other turn of Ready is dated by the condition itself."""
    if facts.ready == was_ready:
        return sight.seen_at
    turned = min(facts.ready_since or sight.seen_at, sight.seen_at)
    if facts.ready is None and sight.lease_renewed_at is not None:
        return min(sight.lease_renewed_at, turned)
    return turned


def _store_cards(cluster: Cluster, row: Node, facts: NodeFacts, at: datetime) -> None:
    """The cards of HAMi's register. A card that left it is gone; one that turns up on another node has moved."""
    if not facts.registered and facts.sharing == "hami":
        return  # the register can't be read: what is known stays
    known = {device.uuid: device for device in Device.objects.filter(cluster=cluster, node=row)}
    wanted = {card.uuid: card for card in facts.registered}
    elsewhere = [uuid for uuid in wanted if uuid not in known]
    if elsewhere:
        known |= {device.uuid: device for device in Device.objects.filter(cluster=cluster, uuid__in=elsewhere)}
    for uuid, card in sorted(wanted.items()):
        device = known.get(uuid) or Device(cluster=cluster, uuid=uuid, first_seen_at=at)
        values: dict[str, object] = {
            "node_id": row.pk,
            "index": card.index,
            "memory_mib": facts.memory_mib or card.memory_mib,
            "register_memory_mib": card.memory_mib,
            "register_cores": card.cores,
            "register_slots": card.slots,
            "healthy": card.healthy,
            "gone_at": None,
        }
        if device._state.adding or any(getattr(device, name) != value for name, value in values.items()):
            for name, value in values.items():
                setattr(device, name, value)
            device.save()
    left = [d.pk for uuid, d in known.items() if uuid not in wanted and d.register_slots is not None]
    Device.objects.filter(pk__in=left, gone_at__isnull=True).update(gone_at=at)


def live_nodes(cluster_id: UUID) -> Sequence[tuple[str, str, str]]:
    """("", name, uid) of the nodes that are thought to be there."""
    return [
        ("", name, uid)
        for name, uid in Node.objects.filter(cluster_id=cluster_id, gone_at__isnull=True).values_list("name", "uid")
    ]
