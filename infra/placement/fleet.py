"""The fleet as the scheduler sees it: clusters, pools, nodes and what is free on them. Immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache

from infra.cel import Device
from infra.shares import parse_mig


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


class Effect(StrEnum):
    """Effects of a cluster's taint, as Kubernetes names them."""

    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    """A cluster's taint."""

    key: str
    effect: Effect
    value: str = ""


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


@dataclass(frozen=True, slots=True, eq=False)
class FreeVector:
    """What is free on one node, by kind. Build it with `FreeVector.of`, which sorts, and gives one object for equal
    content: vectors are compared by identity, because the scheduler looks each up many times.

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
        """The one vector with this content. Raises MigFormatError for what is no MIG profile."""
        return _vector(
            tuple(sorted((devices or {}).items())),
            tuple(sorted((_profile(name), amount) for name, amount in (mig or {}).items())),
            cards,
            cpu_millis,
            memory_bytes,
            zone,
        )


@lru_cache(maxsize=256)
def _profile(name: str) -> str:
    """A MIG profile in the one spelling that requests are compared in."""
    return str(parse_mig(name))


# An evicted vector only costs sharing: a second object with the same content works as well.
_vector = lru_cache(maxsize=1 << 16)(FreeVector)


def interned(vector: FreeVector) -> FreeVector:
    """The one vector with this content."""
    return _vector(vector.devices, vector.mig, vector.cards, vector.cpu_millis, vector.memory_bytes, vector.zone)


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
        vector = FreeVector.of(cards=tuple(card for card, _ in pairs), cpu_millis=cpu_millis, memory_bytes=memory_bytes)
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
        for node in sorted(self.nodes, key=lambda node: node.name):
            if not node.unusable:
                groups.setdefault(interned(node.free), []).append(node.name)
        object.__setattr__(self, "groups", {vector: tuple(names) for vector, names in groups.items()})
        object.__setattr__(self, "by_name", {node.name: node for node in self.nodes})
        object.__setattr__(self, "shape", _pool_shape(self.entries, self.sharing))


@dataclass(frozen=True, eq=False)
class PoolShape:
    """What decides, beside the free vectors, whether a request fits. One object for equal content (`Pool.shape`), so
    that pools share the answers."""

    entries: tuple[DeviceEntry, ...]
    sharing: Sharing


_pool_shape = lru_cache(maxsize=4096)(PoolShape)


@dataclass(frozen=True)
class Cluster:
    """A cluster as the scheduler sees it. `paused` and not `ready` keep what runs and take nothing new, and so does a
    cluster that lacks something that keeps tenants apart (`lacks`: what, as people call it)."""

    name: str
    site: str
    pools: tuple[Pool, ...]
    mode: Mode = Mode.MANAGE
    ready: bool = True
    not_ready_reason: str = ""
    paused: bool = False
    lacks: tuple[str, ...] = ()
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
