"""The fleet as the scheduler sees it: rows into :mod:`infra.placement`'s plain data, with a fixed number of queries.

Names: a cluster is called by its slug, a pool and a node by their names, a GPU type by its slug, a zone by its id.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from infra.card_catalogue import NVIDIA_DRIVER
from infra.cel.device import Device as CelDevice
from infra.ledger import CardCapacity, NodeFree, Taken, amount_of, node_capacity, node_free, sole_zone
from infra.models import Cluster, Device, GPUType, Node, NodePool
from infra.placement.model import (
    Card,
    ClaimKind,
    DeviceEntry,
    Effect,
    FreeVector,
    Mode,
    Pool,
    Sharing,
    Snapshot,
    Taint,
)
from infra.placement.model import Cluster as PlacementCluster
from infra.placement.model import Node as PlacementNode
from infra.pod_devices import GPU
from infra.selectors.usage import taken_by_node

GPU_ENTRY = "gpu"
_BLOCKING_CONDITIONS = ("Reachable", "NodesWatched", "PodsWatched")
# Taints that say "a node with cards"; the pods that we render tolerate them.
_CARD_TAINTS = frozenset({GPU, "amd.com/gpu"})


class NodeState(Protocol):
    """What the ledger reads of a node: a model instance, or a :class:`NodeRow` (a fleet has many)."""

    @property
    def pk(self) -> UUID: ...
    @property
    def name(self) -> str: ...
    @property
    def ready(self) -> bool | None: ...
    @property
    def unschedulable(self) -> bool: ...
    @property
    def taints(self) -> Sequence[Mapping[str, str]]: ...
    @property
    def allocatable(self) -> Mapping[str, str]: ...
    @property
    def cards(self) -> int: ...
    @property
    def unavailable_cards(self) -> int: ...
    @property
    def unavailable_reason(self) -> str: ...
    @property
    def mig_profile(self) -> str: ...


class NodeRow(NamedTuple):
    """A node as it is read for a snapshot. Nodes that say the same share ``taints`` and ``allocatable``."""

    pk: UUID
    name: str
    pool_id: UUID
    ready: bool | None
    unschedulable: bool
    taints: Sequence[Mapping[str, str]]
    allocatable: Mapping[str, str]
    cards: int
    unavailable_cards: int
    unavailable_reason: str
    mig_profile: str


def fleet_snapshot(cluster_ids: Collection[UUID] | None = None) -> Snapshot:
    """The fleet now, or some clusters of it: free vectors of all nodes that have cards of a known type.

    Time-sliced pools and cards of other vendors are left out: nothing is placed on them. Needs no scope; the tables
    are global. Eight queries, whatever the size.
    """
    rows = Cluster.objects.filter(abandoned_at__isnull=True).prefetch_related("site").order_by("slug")
    pools = NodePool.objects.filter(sharing__in=list(Sharing), gpu_type__isnull=False).prefetch_related("gpu_type")
    nodes = Node.objects.filter(gone_at__isnull=True, pool__isnull=False)
    if cluster_ids is not None:
        rows = rows.filter(pk__in=cluster_ids)
        pools, nodes = pools.filter(cluster__in=cluster_ids), nodes.filter(cluster__in=cluster_ids)
    by_pool: dict[UUID, list[NodeRow]] = defaultdict(list)
    for node in _rows(nodes):
        by_pool[node.pool_id].append(node)
    shared = hami_cards()
    taken = taken_by_node()
    by_cluster: dict[UUID, list[Pool]] = defaultdict(list)
    for pool in pools.order_by("name"):
        by_cluster[pool.cluster_id].append(_pool(pool, by_pool.get(pool.pk, ()), shared, taken))
    return Snapshot(tuple(_cluster(row, tuple(by_cluster.get(row.pk, ()))) for row in rows))


def _rows(nodes: QuerySet[Node]) -> Iterator[NodeRow]:
    """The nodes by name. A fleet's nodes say the same few things: each text is read once."""
    read = cache(json.loads)
    texts = {"taints_text": Cast("taints", TextField()), "allocatable_text": Cast("allocatable", TextField())}
    columns = ("pk", "name", "pool_id", "ready", "unschedulable", *texts, "cards", "unavailable_cards",
               "unavailable_reason", "mig_profile")  # fmt: skip
    for pk, name, pool, ready, cordoned, taints, allocatable, *rest in (
        nodes.annotate(**texts).order_by("name").values_list(*columns)
    ):
        yield NodeRow(pk, name, pool, ready, cordoned, read(taints), read(allocatable), *rest)


def hami_cards(node_ids: Collection[UUID] | None = None) -> dict[UUID, dict[str, CardCapacity]]:
    """Node → UUID → card, of HAMi's registers."""
    devices = Device.objects.filter(gone_at__isnull=True, register_slots__isnull=False)
    if node_ids is not None:
        devices = devices.filter(node__in=node_ids)
    found: dict[UUID, dict[str, CardCapacity]] = defaultdict(dict)
    for node_id, uuid, physical, memory, cores, slots, healthy in devices.values_list(
        "node_id", "uuid", "memory_mib", "register_memory_mib", "register_cores", "register_slots", "healthy"
    ):
        found[node_id][uuid] = CardCapacity(memory or 0, physical, cores or 0, slots or 0, healthy)
    return found


def is_dra(pool: NodePool, nodes: Collection[NodeState]) -> bool:
    """Whether the pool's cards are claimed by DRA: its class says so, and no node counts them as a resource."""
    declared = _gpu_device(pool.devices)
    return bool(declared) and declared.get("claim", "DRA") == "DRA" and not any(GPU in n.allocatable for n in nodes)


def free_of(
    node: NodeState, sharing: str, dra: bool, shared: Mapping[str, CardCapacity], taken: Sequence[Taken]
) -> NodeFree:
    """What is left of a node."""
    capacity = node_capacity(
        sharing=sharing,
        allocatable=node.allocatable,
        cards=node.cards,
        unavailable=node.unavailable_cards,
        mig_profile=node.mig_profile,
        shared=shared,
        dra=dra,
    )
    return node_free(capacity, taken)


def unusable(node: NodeState) -> str:
    """Why nothing new may go to a node; "" = it may."""
    if node.ready is None:
        return "lost (Ready is Unknown)"
    if not node.ready:
        return "not ready"
    if node.unschedulable:
        return "cordoned"
    if node.cards and node.unavailable_cards >= node.cards:
        return node.unavailable_reason or "no card available"
    for taint in node.taints:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and taint.get("key") not in _CARD_TAINTS:
            return f"tainted {taint.get('key')}={taint.get('value', '')}:{taint.get('effect')}"
    return ""


def _cluster(row: Cluster, pools: tuple[Pool, ...]) -> PlacementCluster:
    trouble = next(
        (
            condition
            for condition in row.conditions
            if condition.get("type") in _BLOCKING_CONDITIONS and condition.get("status") == "False"
        ),
        None,
    )
    return PlacementCluster(
        name=row.slug,
        site=row.site.slug,
        pools=pools,
        mode=Mode(row.mode),
        ready=trouble is None,
        not_ready_reason=trouble.get("message") or trouble["reason"] if trouble else "",
        paused=row.paused,
        labels={str(key): str(value) for key, value in row.labels.items()},
        taints=tuple(
            Taint(str(taint["key"]), Effect(taint["effect"]), str(taint.get("value", ""))) for taint in row.taints
        ),
    )


def _pool(
    pool: NodePool,
    nodes: Sequence[NodeRow],
    shared: Mapping[UUID, Mapping[str, CardCapacity]],
    taken: Mapping[UUID, Sequence[Taken]],
) -> Pool:
    assert pool.gpu_type is not None
    dra = is_dra(pool, nodes)
    entries = device_entries(pool, pool.gpu_type, max((node.cards for node in nodes), default=0), dra=dra)
    sharing = Sharing(pool.sharing)
    alike: dict[object, FreeVector] = {}
    return Pool(
        name=pool.name,
        entries=entries,
        sharing=sharing,
        nodes=tuple(
            _hami_node(node, entries, free_of(node, sharing, dra, shared.get(node.pk, {}), taken.get(node.pk, ())))
            if sharing is Sharing.HAMI
            else PlacementNode(
                node.name, _vector(node, sharing, dra, entries, taken.get(node.pk, ()), alike), unusable=unusable(node)
            )
            for node in nodes
        ),
        zone=str(pool.zone_id) if pool.zone_id else "",
    )


def _gpu_device(devices: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((device for device in devices if device.get("driver") == NVIDIA_DRIVER), {})


def device_entries(pool: NodePool, gpu_type: GPUType, cards: int, *, dra: bool = False) -> tuple[DeviceEntry, ...]:
    """The kinds of devices on a pool's nodes: its cards first, then what else its class declares."""
    declared = _gpu_device(pool.devices)
    name = str(declared.get("name", GPU_ENTRY))
    seen = {"attributes": gpu_type.attributes, "capacity": gpu_type.capacity, "driver": gpu_type.driver}
    if declared:
        # What the class declares is what selectors were written against; what was discovered completes it.
        seen["attributes"] = {**gpu_type.attributes, **(declared.get("attributes") or {})}
        seen["capacity"] = {**gpu_type.capacity, **(declared.get("capacity") or {})}
    entries = [
        DeviceEntry(
            name=name,
            device=CelDevice.from_manifest(seen),
            gpu_type=gpu_type.slug,
            count=int(declared.get("count", 0)) or cards or 1,
            claim=ClaimKind.DRA if dra else ClaimKind.PLUGIN,
            memory_mib=gpu_type.memory_mib or None,
            mig_slices=gpu_type.compute_slices or 7,
            device_class=str(declared.get("deviceClassName", "")) if dra else "",
        )
    ]
    for device in pool.devices:
        if device is declared:
            continue
        synthetic = device.get("claim", "DRA") == "Synthetic"
        entries.append(
            DeviceEntry(
                name=str(device["name"]),
                device=CelDevice.from_manifest(device),
                count=int(device.get("count", 1)),
                claim=ClaimKind.SYNTHETIC if synthetic else ClaimKind.DRA,
                device_class=str(device.get("deviceClassName", "")),
            )
        )
    return tuple(entries)


def _hami_node(node: NodeRow, entries: tuple[DeviceEntry, ...], free: NodeFree) -> PlacementNode:
    why = unusable(node)
    if free.unpinned and not why:
        why = f"{free.unpinned} shares are held there and it is not known on which cards"
    cards = {
        uuid: Card(
            entry=entries[0].name,
            free_mib=card.memory_mib,
            free_cores=card.cores,
            physical_mib=card.physical_mib,
            pods=card.pods,
            free_slots=card.slots,
            zone=sole_zone(card.zones),
        )
        for uuid, card in free.shared.items()
    }
    cpu, memory = _host(node)
    return PlacementNode.hami(node.name, cards, cpu_millis=cpu, memory_bytes=memory, unusable=why)


def _vector(
    node: NodeRow,
    sharing: Sharing,
    dra: bool,
    entries: tuple[DeviceEntry, ...],
    taken: Sequence[Taken],
    alike: dict[object, FreeVector],
) -> FreeVector:
    """What is free of a node; made once for all nodes of a pool that are alike and hold alike."""
    # Texts that agree were read into one object (_rows), which lives as long as its nodes do.
    key = (id(node.allocatable), node.cards, node.unavailable_cards, node.mig_profile, tuple(taken))
    if key not in alike:
        free = free_of(node, sharing, dra, {}, taken)
        cpu, memory = _host(node)
        alike[key] = FreeVector.of(
            devices={entries[0].name: free.cards} | {entry.name: entry.count for entry in entries[1:]},
            mig=free.slices,
            cpu_millis=cpu,
            memory_bytes=memory,
            zone=sole_zone(free.slice_zones),
        )
    return alike[key]


def _host(node: NodeRow) -> tuple[int | None, int | None]:
    """Its processors in thousandths and its memory in bytes; None where it does not say."""
    cpu = amount_of(node.allocatable, "cpu", times=1000) if "cpu" in node.allocatable else None
    return cpu, amount_of(node.allocatable, "memory") if "memory" in node.allocatable else None
