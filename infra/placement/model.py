"""What the scheduler reads and what it answers: plain immutable data, no I/O, no Django.

Names identify things: a cluster by its name, a pool and a node by their name inside the cluster, a GPU type by
its name. Units: memory of cards in MiB, compute of a card in percent (100 = the whole card), shares in millionths
of a card, CPU in millicores, memory of nodes in bytes. `None` means unknown or not set, never zero or unlimited.

The snapshot holds one *free vector* per node (see `infra.placement.free` for how it is computed). Equal vectors of
a pool are grouped, so that the scheduler's work grows with distinct shapes, not with nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any

from infra.cel.device import Device

__all__ = [
    "Card", "ClaimKind", "Cluster", "DeviceEntry", "DeviceGrant", "DeviceRequest", "Device", "Effect",
    "EnginePlacement", "EngineSpec", "ExistingReplica", "Explanation", "FreeVector", "HamiShare", "MemberSpec",
    "MigShare", "Mode", "Node", "Placement", "Plan", "PodPlacement", "Pool", "PriceCheck", "Removal", "Request",
    "Role", "Rule", "Sharing", "Snapshot", "Taint", "Toleration",
]  # fmt: skip


class Mode(StrEnum):
    """How the portal treats a cluster. Nothing is ever placed on an observed one."""

    OBSERVE = "observe"
    MANAGE = "manage"


class Sharing(StrEnum):
    """How the cards of a pool are handed out."""

    WHOLE = "whole"
    MIG = "mig"
    HAMI = "hami"


class ClaimKind(StrEnum):
    """How a pod gets hold of a device. `SYNTHETIC` devices match selectors but nothing is claimed for them."""

    PLUGIN = "plugin"
    DRA = "dra"
    SYNTHETIC = "synthetic"


class Role(StrEnum):
    """A member's part in its engine."""

    STANDALONE = "Standalone"
    LEADER = "Leader"
    WORKER = "Worker"


class Effect(StrEnum):
    """Effects of a cluster's taint, as Kubernetes names them."""

    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


class Rule(StrEnum):
    """Why a cluster or pool was not chosen (or a replica was removed): the machine-readable reason."""

    LABEL = "label"  # clusterSelector names a label that the cluster lacks or has otherwise
    TAINT = "taint"
    NOT_READY = "not-ready"
    PAUSED = "paused"
    OBSERVE = "observe"
    SITE = "site"
    ZONE = "zone"
    NO_POOLS = "no-pools"
    SHARING = "sharing"  # the request wants whole cards, slices or shares; the pool hands out something else
    SELECTOR = "selector"
    SELECTOR_ERROR = "selector-error"  # the real allocator would fail the whole claim
    QUOTA = "quota"
    PRICE = "price"
    CAPACITY = "capacity"  # devices
    NODE_RESOURCES = "node-resources"  # CPU or memory beside the devices
    ENGINES = "engines"  # the pool would do, but another engine of the replica fits nowhere in the cluster
    SEARCH_LIMIT = "search-limit"  # gave up looking: the answer is "not found", not "impossible"
    RANKED = "ranked"  # it fits; others came first
    SCALE_DOWN = "scale-down"


# ---------------------------------------------------------------------------------------------- the fleet


@dataclass(frozen=True, slots=True)
class Taint:
    """A cluster's taint."""

    key: str
    effect: Effect
    value: str = ""


@dataclass(frozen=True, slots=True)
class Toleration:
    """Kubernetes' toleration. An empty key with `Exists` tolerates everything; an empty effect, every effect."""

    key: str = ""
    operator: str = "Equal"  # or "Exists"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        """Whether this toleration lets a replica stay with `taint`."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.operator == "Exists":
            return not self.key or self.key == taint.key
        return self.key == taint.key and self.value == taint.value


@dataclass(frozen=True)
class DeviceEntry:
    """One kind of device on the nodes of a pool.

    `name` is unique in the pool and keys `FreeVector.devices`. `gpu_type` is empty for what is no GPU (a network
    card). `mig_profile` is set where the entry describes a MIG slice itself (as DRA drivers publish them), not the
    card that is cut; its free count is then `FreeVector.mig[mig_profile]`.
    `count` is how many of them a node is meant to have, `memory_mib` the physical memory of one (None = unknown).
    `mig_slices` is the number of compute slices of the whole card: 7, or 4 on an A30.
    """

    name: str
    device: Device
    gpu_type: str = ""
    count: int = 1
    claim: ClaimKind = ClaimKind.PLUGIN
    memory_mib: int | None = None
    mig_profile: str = ""
    mig_slices: int = 7
    device_class: str = ""

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.device, self.gpu_type, self.count, self.claim, self.mig_profile))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True, order=True)
class Card:
    """The free part of one HAMi card, without its UUID (so that equal cards are one shape).

    `free_mib` counts what HAMi still hands out (it may exceed the physical memory on an over-committed card);
    `physical_mib` is the real card and the denominator of shares. `pods` is how many pods hold a part now,
    `free_slots` how many more may. `zone` is the trust zone of those who hold it; "" = nobody. A card held by
    somebody whose zone is unknown has a zone that no tenant has (the loader's choice, e.g. "?").
    """

    entry: str
    free_mib: int
    free_cores: int
    physical_mib: int
    pods: int = 0
    free_slots: int = 10
    zone: str = ""


@dataclass(frozen=True)
class FreeVector:
    """What is free on one node, by kind. Build it with `FreeVector.of`, which sorts and interns.

    devices: entry name → whole devices free (also network cards). mig: profile → slices free.
    cards: HAMi cards in the order of `Node.card_uuids`. cpu_millis, memory_bytes: None = not known, not checked.
    zone: the trust zone that holds MIG slices on this node ("" = nobody): which card a slice is on is not known
    beforehand, so slices of one node stay within one zone.
    """

    devices: tuple[tuple[str, int], ...] = ()
    mig: tuple[tuple[str, int], ...] = ()
    cards: tuple[Card, ...] = ()
    cpu_millis: int | None = None
    memory_bytes: int | None = None
    zone: str = ""

    @staticmethod
    def of(
        *,
        devices: Mapping[str, int] | None = None,
        mig: Mapping[str, int] | None = None,
        cards: tuple[Card, ...] = (),
        cpu_millis: int | None = None,
        memory_bytes: int | None = None,
        zone: str = "",
    ) -> FreeVector:
        """The canonical vector: sorted keys, one object for equal content."""
        return interned(
            FreeVector(
                tuple(sorted((devices or {}).items())),
                tuple(sorted((mig or {}).items())),
                cards,
                cpu_millis,
                memory_bytes,
                zone,
            )
        )

    @cached_property
    def _hash(self) -> int:
        return hash((self.devices, self.mig, self.cards, self.cpu_millis, self.memory_bytes, self.zone))

    def __hash__(self) -> int:
        return self._hash


@lru_cache(maxsize=1 << 16)
def interned(vector: FreeVector) -> FreeVector:
    """The first vector seen that equals this one, so that later look-ups compare by identity."""
    return vector


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `card_uuids` runs parallel to `free.cards` (HAMi only). `unusable` = why nothing new may go
    there ("cordoned", "not ready"); empty = usable."""

    name: str
    free: FreeVector
    card_uuids: tuple[str, ...] = ()
    unusable: str = ""

    @staticmethod
    def hami(
        name: str,
        cards: Mapping[str, Card],
        *,
        cpu_millis: int | None = None,
        memory_bytes: int | None = None,
        unusable: str = "",
    ) -> Node:
        """A HAMi node from UUID → free part of the card; sorted by shape, so that equal nodes are one shape."""
        pairs = sorted((card, uuid) for uuid, card in cards.items())
        vector = FreeVector.of(
            cards=tuple(card for card, _ in pairs), cpu_millis=cpu_millis, memory_bytes=memory_bytes
        )
        return Node(name, vector, tuple(uuid for _, uuid in pairs), unusable)


@dataclass(frozen=True)
class Pool:
    """Nodes of one kind. `zone` is the trust zone it is reserved for; "" = every zone may use it.

    `groups` (free vector → names of usable nodes, sorted) and `by_name` are made once, with the pool.
    """

    name: str
    entries: tuple[DeviceEntry, ...]
    sharing: Sharing
    nodes: tuple[Node, ...]
    zone: str = ""
    groups: Mapping[FreeVector, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    by_name: Mapping[str, Node] = field(init=False, repr=False, compare=False)
    shape: PoolShape = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        groups: dict[FreeVector, list[str]] = {}
        for node in self.nodes:
            if not node.unusable:
                groups.setdefault(interned(node.free), []).append(node.name)
        object.__setattr__(self, "groups", {vector: tuple(sorted(names)) for vector, names in groups.items()})
        object.__setattr__(self, "by_name", {node.name: node for node in self.nodes})
        object.__setattr__(self, "shape", _pool_shape(PoolShape(self.entries, self.sharing)))


@dataclass(frozen=True)
class PoolShape:
    """What decides, beside the free vectors, whether a request fits: interned, so pools share the answers."""

    entries: tuple[DeviceEntry, ...]
    sharing: Sharing


@lru_cache(maxsize=4096)
def _pool_shape(shape: PoolShape) -> PoolShape:
    return shape


@dataclass(frozen=True)
class Cluster:
    """A cluster as the scheduler sees it. `paused` and not `ready` keep what runs and take nothing new."""

    name: str
    site: str
    pools: tuple[Pool, ...]
    mode: Mode = Mode.MANAGE
    ready: bool = True
    not_ready_reason: str = ""
    paused: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """The fleet at one moment. Build it once and place many requests from it; placing never changes it."""

    clusters: tuple[Cluster, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Cluster]:
        """Cluster name → cluster."""
        return {cluster.name: cluster for cluster in self.clusters}


# ---------------------------------------------------------------------------------------------- the request


@dataclass(frozen=True, slots=True)
class HamiShare:
    """A part of a card. Memory in MiB, or in percent of the card's physical memory (exactly one of them).
    `cores` in percent of the card's compute; 0 = not set, which HAMi may leave uncapped."""

    memory_mib: int | None = None
    memory_percent: int | None = None
    cores: int = 0

    def __post_init__(self) -> None:
        if (self.memory_mib is None) == (self.memory_percent is None):
            raise ValueError("share: give memory either in MiB or in percent of the card, not both and not neither")
        if self.memory_mib is not None and self.memory_mib < 1:
            raise ValueError(f"share.memory: {self.memory_mib} MiB is not a size; ask for at least 1 MiB")
        if self.memory_percent is not None and not 1 <= self.memory_percent <= 100:
            raise ValueError(f"share.memory: {self.memory_percent} % is not between 1 and 100")
        if not 0 <= self.cores <= 100:
            raise ValueError(f"share.cores: {self.cores} is not between 0 and 100 (percent of one card)")

    def mib(self, physical_mib: int) -> int:
        """MiB on a card with that much physical memory; a percentage is rounded up, never to 0."""
        if self.memory_mib is not None:
            return self.memory_mib
        assert self.memory_percent is not None
        return max(1, -(-physical_mib * self.memory_percent // 100))


@dataclass(frozen=True, slots=True)
class MigShare:
    """A MIG slice by its profile, e.g. `1g.10gb`."""

    profile: str


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """`count` devices of one kind for each pod. All `selectors` (CEL) must be true for the device.
    `share` None = whole devices. With a share, `count` means that many different cards (HAMi) or slices (MIG)."""

    name: str
    count: int = 1
    selectors: tuple[str, ...] = ()
    share: HamiShare | MigShare | None = None


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A pod template of an engine. `pods` per copy of the engine: 1, or the number of workers.
    `distinct_nodes`: each of these pods wants a node that no other pod of the same engine copy is on; otherwise
    pods are packed by devices. CPU and memory are what one pod requests; None = not stated, not checked."""

    role: Role = Role.STANDALONE
    devices: tuple[DeviceRequest, ...] = ()
    pods: int = 1
    cpu_millis: int | None = None
    memory_bytes: int | None = None
    distinct_nodes: bool = False


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """An engine: all pods of all its copies go to one pool (one fabric)."""

    name: str
    members: tuple[MemberSpec, ...]
    copies: int = 1


@dataclass(frozen=True)
class ExistingReplica:
    """A replica that was placed before. It stays where it is whatever selectors say now.

    `current` False = the ask of its pods has changed since (devices, pods, engines): it is placed anew under the
    same index, with what it holds (`pods`) counted as free again. `pods` may be empty when `current`.
    """

    index: int
    cluster: str
    ready: bool = True
    current: bool = True
    engines: tuple[EnginePlacement, ...] = ()


# (cluster, pool, gpu type, millionths of a card for the whole replica) → a sentence why not, or None
PriceCheck = Callable[[str, str, Mapping[str, int]], str | None]


@dataclass(frozen=True)
class Request:
    """What one deployment wants.

    allowed_sites: None = every site (platform's own), an empty set = none. zone: the tenant's trust zone.
    quota_free: GPU type → millionths of cards that may still be admitted, *beyond* what current replicas hold;
    a type that is missing has no quota; None = quota is not checked here.
    price_check(cluster, pool, {gpu type: millionths}) answers a sentence if the pool is too dear, else None.
    """

    name: str
    replicas: int
    engines: tuple[EngineSpec, ...]
    existing: tuple[ExistingReplica, ...] = ()
    cluster_selector: Mapping[str, str] = field(default_factory=dict)
    allowed_sites: frozenset[str] | None = None
    zone: str = ""
    tolerations: tuple[Toleration, ...] = ()
    quota_free: Mapping[str, int] | None = None
    price_check: PriceCheck | None = None
    fill: bool = True  # False = keep what is there, place nothing new (a cache is not resolved yet)


# ---------------------------------------------------------------------------------------------- the answer


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """What one device request of one pod gets.

    `count` devices of `entry`; `millionths` is the charged share of all of them together (0 for what is no GPU).
    HAMi: `cards` are the UUIDs to pin, `memory_mib` and `cores` are per card. MIG: `profile`.
    """

    request: str
    entry: str
    gpu_type: str
    count: int
    millionths: int
    claim: ClaimKind = ClaimKind.PLUGIN
    cards: tuple[str, ...] = ()
    memory_mib: int = 0
    cores: int = 0
    profile: str = ""
    device_class: str = ""


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """One pod: `copy` of the engine, `ordinal` within its member (both from 0), on `node`."""

    role: Role
    copy: int
    ordinal: int
    node: str
    grants: tuple[DeviceGrant, ...]
    cpu_millis: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class EnginePlacement:
    """One engine in its pool."""

    engine: str
    pool: str
    sharing: Sharing
    pods: tuple[PodPlacement, ...]


@dataclass(frozen=True)
class Placement:
    """A new place for the replica `index`."""

    index: int
    cluster: str
    engines: tuple[EnginePlacement, ...]

    @property
    def millionths(self) -> dict[str, int]:
        """GPU type → charged millionths of a card, all pods together: what quota admits."""
        total: dict[str, int] = {}
        for engine in self.engines:
            for pod in engine.pods:
                for grant in pod.grants:
                    if grant.gpu_type:
                        total[grant.gpu_type] = total.get(grant.gpu_type, 0) + grant.millionths
        return total

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes used, sorted, each once."""
        return tuple(sorted({pod.node for engine in self.engines for pod in engine.pods}))


@dataclass(frozen=True, slots=True)
class Removal:
    """A replica that must go: `rule` is `scale-down` or `taint` (NoExecute), `sentence` says it in words."""

    index: int
    cluster: str
    rule: Rule
    sentence: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a cluster (`pool` None: all of it) or one pool was not chosen, or was chosen no further.

    `sentence` is for people and holds the numbers; `facts` holds the same numbers for programs.
    """

    rule: Rule
    cluster: str
    pool: str | None
    sentence: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The answer: who stays, who goes, what is new, and why not elsewhere. Sorted, so equal asks give equal plans.

    `replaced` lists the indexes that are in `placements` because their shape changed.
    `explanations` has one entry for each cluster or pool that got no new replica.
    """

    wanted: int
    retained: tuple[ExistingReplica, ...]
    placements: tuple[Placement, ...]
    removals: tuple[Removal, ...]
    explanations: tuple[Explanation, ...]
    replaced: tuple[int, ...] = ()

    @property
    def short(self) -> int:
        """How many replicas found no place."""
        return max(0, self.wanted - len(self.retained) - len(self.placements))

    def summary(self) -> str:
        """One sentence for a condition: how many are placed and, when short, the reasons by number."""
        placed = len(self.retained) + len(self.placements)
        if not self.short:
            return f"{placed} of {self.wanted} replicas have a place."
        counts: dict[Rule, int] = {}
        for explanation in self.explanations:
            counts[explanation.rule] = counts.get(explanation.rule, 0) + 1
        reasons = ", ".join(f"{rule} ({n})" for rule, n in sorted(counts.items(), key=lambda kv: (-kv[1], kv[0])))
        looked = f"Looked at {len(self.explanations)} clusters and pools: {reasons}." if reasons else "No clusters."
        return f"{placed} of {self.wanted} replicas have a place. {looked}"
