"""The fleet as the scheduler sees it: rows into :mod:`infra.placement`'s plain data, with a fixed number of queries.

Names: a cluster is called by its slug, a pool and a node by their names, a GPU type by its slug, a zone by its id.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from infra.card_catalogue import NVIDIA_DRIVER
from infra.cel.device import Device as CelDevice
from infra.isolation import lacking
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
from infra.shares import SLICES, physical_mib

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


# A figure that changes with every version of a row that is read below: which transaction wrote it, and where it lies.
_VERSION = """
SELECT array_agg((t, n, h)::text ORDER BY t) FROM (
    SELECT t, count(*) AS n, bit_xor(hashtextextended(concat_ws(' ', x, c), 0)) AS h FROM (
        SELECT 1 AS t, xmin AS x, ctid AS c FROM infra_site
        UNION ALL SELECT 2, xmin, ctid FROM infra_cluster WHERE abandoned_at IS NULL
        UNION ALL SELECT 3, xmin, ctid FROM infra_gputype
        UNION ALL SELECT 4, xmin, ctid FROM infra_nodepool
        UNION ALL SELECT 5, xmin, ctid FROM infra_node WHERE gone_at IS NULL
        UNION ALL SELECT 6, xmin, ctid FROM infra_device WHERE gone_at IS NULL AND register_slots IS NOT NULL
    ) AS rows GROUP BY t
) AS tables
"""


class _KnownPool:
    """A pool as it stands, and what was made of it last with what was taken then."""

    def __init__(
        self, row: NodePool, nodes: Sequence[NodeRow], shared: Mapping[UUID, Mapping[str, CardCapacity]], lacks: str
    ) -> None:
        self._row, self._nodes, self._shared, self._lacks = row, nodes, shared, lacks
        self._made: tuple[dict[UUID, Sequence[Taken]], Pool] | None = None

    def free(self, taken: Mapping[UUID, Sequence[Taken]]) -> Pool:
        """The pool with what is left of its nodes."""
        here = {node.pk: taken[node.pk] for node in self._nodes if node.pk in taken}
        made = self._made
        if made is None or made[0] != here:
            made = self._made = here, _pool(self._row, self._nodes, self._shared, here, self._lacks)
        return made[1]


@dataclass(frozen=True)
class _Fleet:
    """Clusters with their pools, as of a version."""

    version: object
    clusters: tuple[tuple[PlacementCluster, tuple[_KnownPool, ...]], ...]


_fleet: _Fleet | None = None


def fleet_snapshot() -> Snapshot:
    """The fleet now: free vectors of all nodes that have cards of a known type.

    Time-sliced pools and cards of other vendors are left out: nothing is placed on them. Needs no scope; the tables
    are global. What clusters, pools and nodes are changes seldom, so a process reads it again only when it changed:
    then eight queries, else two; what is taken is read each time.
    """
    global _fleet  # noqa: PLW0603  # per process; replaced as a whole
    with connection.cursor() as cursor:
        cursor.execute(_VERSION)
        version = cursor.fetchone()
    fleet = _fleet
    if fleet is None or fleet.version != version:
        fleet = _fleet = _read(version)
    taken = taken_by_node()
    return Snapshot(
        tuple(replace(cluster, pools=tuple(pool.free(taken) for pool in pools)) for cluster, pools in fleet.clusters)
    )


def _read(version: object) -> _Fleet:
    pools = NodePool.objects.filter(sharing__in=list(Sharing), gpu_type__isnull=False).prefetch_related("gpu_type")
    pools = pools.order_by("name")
    by_pool: dict[UUID, list[NodeRow]] = defaultdict(list)
    for node in _rows(Node.objects.filter(gone_at__isnull=True, pool__isnull=False)):
        by_pool[node.pool_id].append(node)
    shared = hami_cards() if any(pool.sharing == Sharing.HAMI for pool in pools) else {}
    by_cluster: dict[UUID, list[NodePool]] = defaultdict(list)
    for pool in pools:
        by_cluster[pool.cluster_id].append(pool)
    return _Fleet(
        version,
        tuple(
            (
                _cluster(row),
                tuple(_KnownPool(pool, by_pool.get(pool.pk, ()), shared, lacks) for pool in by_cluster.get(row.pk, ())),
            )
            for row in _clusters()
            for lacks in [_lacks_for_shares(row)]
        ),
    )


def _lacks_for_shares(cluster: Cluster) -> str:
    """Why no share of a card is handed out on a cluster, though whole cards may be; "" = nothing is missing."""
    lacks = lacking(cluster.isolation, cluster.isolation_said, hami=True)
    return f"the cluster lacks: {', '.join(lacks)}" if lacks else ""


def clusters_snapshot(cluster_ids: Collection[UUID]) -> Snapshot:
    """These clusters now, without their pools: enough to see whether what is there may stay. One query."""
    return Snapshot(tuple(_cluster(row) for row in _clusters().filter(pk__in=cluster_ids)))


def _clusters() -> QuerySet[Cluster]:
    return Cluster.objects.filter(abandoned_at__isnull=True).select_related("site").order_by("slug")


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
    for node_id, uuid, own, memory, cores, slots, healthy, of_type in devices.values_list(
        "node_id", "uuid", "memory_mib", "register_memory_mib", "register_cores", "register_slots", "healthy",
        "node__pool__gpu_type__memory_mib",
    ):  # fmt: skip
        card = CardCapacity(memory or 0, physical_mib(own, memory, of_type or 0), cores or 0, slots or 0, healthy)
        found[node_id][uuid] = card
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


def _cluster(row: Cluster) -> PlacementCluster:
    """The cluster as it stands; its pools come with what is free of them."""
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
        pools=(),
        mode=Mode(row.mode),
        ready=trouble is None,
        not_ready_reason=trouble.get("message") or trouble["reason"] if trouble else "",
        paused=row.paused,
        lacks=lacking(row.isolation, row.isolation_said, hami=False),
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
    lacks: str,
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
            _hami_node(
                node, entries, free_of(node, sharing, dra, shared.get(node.pk, {}), taken.get(node.pk, ())), lacks
            )
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
            mig_slices=gpu_type.compute_slices or SLICES,
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


def _hami_node(node: NodeRow, entries: tuple[DeviceEntry, ...], free: NodeFree, lacks: str) -> PlacementNode:
    why = unusable(node) or lacks
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
