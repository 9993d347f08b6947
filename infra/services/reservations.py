"""Promises of devices. One short transaction, locks in one order, capacity looked at again under the lock.

Order of locks, for every caller: quota rows first (the caller's, by id), then nodes (here, by id), then rows of
reservations. Who takes no quota locks starts at nodes. Two asks for the last card meet at its node: the
second sees what the first has written, since it reads only after it has the lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from uuid import UUID

from django.db import transaction

from infra.isolation import lacking
from infra.ledger import NodeFree
from infra.models import Cluster, Node, NodePool, Reservation
from infra.models.hardware import SharingMode
from infra.placement.model import Placement, Sharing
from infra.selectors.snapshot import free_of, hami_cards, is_dra, unusable
from infra.selectors.usage import taken_by_node
from portal.kernel.clock import utcnow

_NO_NODE = (None, None, None, None)

LOCK_NODES = True
"""Tests switch it off to see the race that the lock prevents. Nothing else may."""


@dataclass(frozen=True, slots=True)
class Line:
    """Devices of one pod on one node, for one holder's ``member`` (``engine/role/copy/ordinal``).

    Exactly one of: ``cards`` whole cards; ``slices`` instances of the MIG ``profile``; ``memory_mib`` and ``cores`` of
    the HAMi card ``device_uuid``. ``share``: millionths of a card, of all devices of the line together.
    """

    node_id: UUID
    pool_id: UUID
    gpu_type_id: UUID
    sharing: str
    member: str
    share: int
    cards: int = 0
    profile: str = ""
    slices: int = 0
    device_uuid: str = ""
    memory_mib: int = 0
    cores: int = 0


@dataclass(frozen=True, slots=True)
class Holder:
    """For whom: a replica, its deployment, tenant and trust zone, and the namespace its pods run in."""

    tenant_id: UUID
    zone_id: UUID
    namespace: str
    deployment_id: UUID
    replica_id: UUID


class NoCapacity(Exception):
    """The devices are not there any more: somebody was faster, or the node changed. Place again.

    ``sentence`` is for people; ``facts`` has the same as names and numbers: cluster, pool, node, resource, wanted,
    free.
    """

    def __init__(self, sentence: str, **facts: str | int) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.facts = facts


def lines_for(placement: Placement) -> list[Line]:
    """A plan's placement as lines, its names looked up. Devices that are no cards (network cards) are not booked.

    Raises NoCapacity where a node, pool or type of the plan is no more.
    """
    rows = Node.objects.filter(cluster__slug=placement.cluster, gone_at__isnull=True, name__in=placement.nodes)
    nodes = {
        (name, pool): (pk, pool_id, gpu_type, type_id)
        for name, pool, pk, pool_id, gpu_type, type_id in rows.values_list(
            "name", "pool__name", "pk", "pool_id", "pool__gpu_type__slug", "pool__gpu_type_id"
        )
    }
    lines: list[Line] = []
    for engine in placement.engines:
        for pod in engine.pods:
            member = f"{engine.engine}/{pod.role}/{pod.copy}/{pod.ordinal}"
            for grant in pod.grants:
                if not grant.gpu_type:
                    continue
                node_id, pool_id, gpu_type, type_id = nodes.get((pod.node, engine.pool), _NO_NODE)
                if node_id is None or pool_id is None or type_id is None or gpu_type != grant.gpu_type:
                    raise NoCapacity(
                        f"Node {pod.node} of pool {engine.pool} on cluster {placement.cluster} is no longer there. "
                        "The deployment is placed anew.",
                        cluster=placement.cluster, pool=engine.pool, node=pod.node,
                    )  # fmt: skip
                line = Line(
                    node_id=node_id,
                    pool_id=pool_id,
                    gpu_type_id=type_id,
                    sharing=str(engine.sharing),
                    member=f"{member}/{grant.request}"[:80],
                    share=grant.millionths,
                )
                if engine.sharing is Sharing.HAMI and grant.cards:
                    each, rest = divmod(grant.millionths, len(grant.cards))
                    lines += [
                        replace(
                            line, device_uuid=uuid, memory_mib=grant.memory_mib, cores=grant.cores,
                            share=each + (rest if number == 0 else 0),
                        )
                        for number, uuid in enumerate(grant.cards)
                    ]  # fmt: skip
                elif grant.profile:
                    lines.append(replace(line, profile=grant.profile, slices=grant.count))
                else:
                    lines.append(replace(line, cards=grant.count))
    return lines


def reserve(*, holder: Holder, lines: Sequence[Line]) -> list[Reservation]:
    """Promise all lines to the holder, or none.

    Call it inside the caller's short transaction (its locks live until that ends). A replica that holds something
    already is refused: :func:`move` is for that.

    Raises:
        NoCapacity: a line does not fit any more, its node may not take it, or a card would be shared across zones.
        ValueError: a line is none: no devices, or of two kinds.
    """
    return _book(holder, lines, replaces=False)


def move(*, holder: Holder, lines: Sequence[Line]) -> list[Reservation]:
    """Give up what the replica holds and promise it these lines, in one step. Raises as :func:`reserve`; then nothing
    has changed."""
    return _book(holder, lines, replaces=True)


def release(replica_id: UUID) -> int:
    """Give up what a replica holds; answers how many lines that were. Its pods still count while they are seen."""
    return Reservation.objects.filter(replica_id=replica_id, released_at__isnull=True).update(released_at=utcnow())


def _book(holder: Holder, lines: Sequence[Line], *, replaces: bool) -> list[Reservation]:
    for line in lines:
        _check_form(line)
    # A promise alone writes nothing before everything fits, so it needs no savepoint.
    with transaction.atomic() if replaces else nullcontext():
        nodes = _lock({line.node_id for line in lines})
        held = Reservation.objects.filter(replica_id=holder.replica_id, released_at__isnull=True)
        if replaces:
            held.update(released_at=utcnow())
        elif held.exists():
            raise ValueError(f"replica {holder.replica_id} holds devices already; move() them instead")
        _check_fit(holder, lines, nodes)
        return _write(holder, lines, nodes)


def _check_form(line: Line) -> None:
    kinds = (line.cards > 0, bool(line.profile) and line.slices > 0, bool(line.device_uuid) and line.memory_mib > 0)
    wanted = {SharingMode.WHOLE: 0, SharingMode.MIG: 1, SharingMode.HAMI: 2}.get(SharingMode(line.sharing))
    if sum(kinds) != 1 or wanted is None or not (kinds[wanted] or (line.sharing == SharingMode.MIG and kinds[0])):
        raise ValueError(f"{line.member}: one kind of device per line, as the pool hands them out: {line}")


def _lock(node_ids: Collection[UUID]) -> dict[UUID, Node]:
    nodes = Node.objects.filter(pk__in=node_ids).order_by("pk")
    if LOCK_NODES:
        nodes = nodes.select_for_update(of=("self",))
    return {node.pk: node for node in nodes.select_related("cluster", "pool")}


def _check_fit(holder: Holder, lines: Sequence[Line], nodes: dict[UUID, Node]) -> None:
    by_node: dict[UUID, list[Line]] = defaultdict(list)
    for line in lines:
        by_node[line.node_id].append(line)
    taken = taken_by_node(list(by_node))
    cards = hami_cards(list(by_node)) if any(line.device_uuid for line in lines) else {}
    kept = _kept(lines)
    for node_id, wanted in by_node.items():
        node = nodes.get(node_id)
        if node is not None and node.pool is not None:
            node.pool.zone_id = kept.get(node.pool.pk, node.pool.zone_id)
        if node is None or node.pool is None:
            raise NoCapacity(f"Node {node_id} is no longer there. The deployment is placed anew.", node=str(node_id))
        _check_node(node, node.pool, holder, wanted)
        dra = is_dra(node.pool, [node])
        free = free_of(node, node.pool.sharing, dra, cards.get(node_id, {}), taken.get(node_id, ()))
        if node.pool.sharing == SharingMode.HAMI:
            _check_shares(node, node.pool, holder, wanted, free)
        else:
            _check_counts(node, node.pool, holder, wanted, free)


def _kept(lines: Iterable[Line]) -> dict[UUID, UUID | None]:
    """For which zones the pools are kept; to be read after the nodes are locked, as the pools that came with the nodes
    are those of before the wait."""
    return dict(NodePool.objects.filter(pk__in={line.pool_id for line in lines}).values_list("pk", "zone_id"))


def _check_node(node: Node, pool: NodePool, holder: Holder, lines: Iterable[Line]) -> None:
    cluster, where = node.cluster, _where(node, pool)
    facts: dict[str, str | int] = {"cluster": cluster.slug, "pool": pool.name, "node": node.name}
    why = unusable(node) if node.gone_at is None else "no longer there"
    if cluster.mode != Cluster.Mode.MANAGE:
        why = "on a cluster that is only observed"
    elif cluster.paused:
        why = "on a cluster that is paused"
    elif cluster.abandoned_at is not None:
        why = "on a cluster that was given up"
    elif lacks := lacking(cluster.isolation, cluster.isolation_said, hami=pool.sharing == SharingMode.HAMI):
        why = f"on a cluster that lacks {', '.join(lacks)}"
    elif any(
        line.pool_id != pool.pk or line.gpu_type_id != pool.gpu_type_id or line.sharing != pool.sharing
        for line in lines
    ):
        why = "in another pool now, or hands its cards out in another way"
    elif pool.zone_id is not None and pool.zone_id != holder.zone_id:
        why = "kept for another trust zone"
    if why:
        raise NoCapacity(f"{where} takes nothing new: it is {why}.", **facts, reason=why)


def _check_counts(node: Node, pool: NodePool, holder: Holder, lines: Iterable[Line], free: NodeFree) -> None:
    cards = 0
    slices: dict[str, int] = defaultdict(int)
    for line in lines:
        cards += line.cards
        if line.profile:
            slices[line.profile] += line.slices
    if cards > free.cards:
        raise _short(node, pool, "whole cards", cards, free.cards)
    for profile, count in sorted(slices.items()):
        if count > free.slices.get(profile, 0):
            raise _short(node, pool, f"MIG slices {profile}", count, free.slices.get(profile, 0))
    if slices and free.slice_zones - {str(holder.zone_id)}:
        raise _other_zone(node, pool, "MIG slices of this node")


def _check_shares(node: Node, pool: NodePool, holder: Holder, lines: Iterable[Line], free: NodeFree) -> None:
    if free.unpinned:
        raise NoCapacity(
            f"{_where(node, pool)} has {free.unpinned} shares of which it is not known on which card they are, so "
            "nothing is promised beside them.",
            cluster=node.cluster.slug, pool=pool.name, node=node.name, unpinned=free.unpinned,
        )  # fmt: skip
    by_card: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_card[line.device_uuid].append(line)
    for uuid, wanted in sorted(by_card.items()):
        card = free.shared.get(uuid)
        left = (card.memory_mib, card.cores, card.slots) if card else (0, 0, 0)
        sums = (sum(line.memory_mib for line in wanted), sum(line.cores for line in wanted), len(wanted))
        for what, ask, have in zip((f"MiB of card {uuid}", f"% cores of card {uuid}", f"slots of card {uuid}"),
                                   sums, left, strict=True):  # fmt: skip
            if ask > have:
                raise _short(node, pool, what, ask, have)
        if card is not None and card.zones - {str(holder.zone_id)}:
            raise _other_zone(node, pool, f"card {uuid}")


def _where(node: Node, pool: NodePool) -> str:
    return f"Node {node.name} of pool {pool.name} on cluster {node.cluster.slug}"


def _short(node: Node, pool: NodePool, resource: str, wanted: int, free: int) -> NoCapacity:
    return NoCapacity(
        f"{_where(node, pool)} has {free} {resource} free, {wanted} are wanted. The deployment is placed anew.",
        cluster=node.cluster.slug, pool=pool.name, node=node.name, resource=resource, wanted=wanted, free=free,
    )  # fmt: skip


def _other_zone(node: Node, pool: NodePool, what: str) -> NoCapacity:
    return NoCapacity(
        f"{_where(node, pool)}: {what} is held by somebody of another trust zone; cards are never shared across zones.",
        cluster=node.cluster.slug, pool=pool.name, node=node.name, reason="zone",
    )  # fmt: skip


def _write(holder: Holder, lines: Sequence[Line], nodes: dict[UUID, Node]) -> list[Reservation]:
    rows = [
        Reservation(
            cluster_id=nodes[line.node_id].cluster_id,
            pool_id=line.pool_id,
            node_id=line.node_id,
            gpu_type_id=line.gpu_type_id,
            sharing=line.sharing,
            tenant_id=holder.tenant_id,
            zone_id=holder.zone_id,
            namespace=holder.namespace,
            deployment_id=holder.deployment_id,
            replica_id=holder.replica_id,
            member=line.member,
            cards=line.cards,
            profile=line.profile,
            slices=line.slices,
            device_uuid=line.device_uuid,
            memory_mib=line.memory_mib,
            cores=line.cores,
            share=line.share,
        )
        for line in lines
    ]
    return Reservation.objects.bulk_create(rows)
