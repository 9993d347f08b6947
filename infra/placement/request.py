"""What one deployment asks of the scheduler. Immutable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from infra.placement.answer import EnginePlacement, Role
from infra.placement.fleet import Taint
from infra.shares import percent_mib


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


@dataclass(frozen=True, slots=True)
class HamiShare:
    """A part of a card. Memory in MiB, or in percent of the card's physical memory (exactly one of them).
    `cores` in percent of the card's compute; 0 = not set, which HAMi may leave uncapped."""

    memory_mib: int | None = None
    memory_percent: int | Fraction | None = None
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
        """MiB on a card with that much physical memory; a percentage is rounded down (four quarters fit), never to
        0."""
        if self.memory_mib is not None:
            return self.memory_mib
        assert self.memory_percent is not None
        return percent_mib(physical_mib, self.memory_percent)


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
    a type that is missing has no quota; None = quota is not checked here. It may hold MIG profiles too
    (`infra.placement.quota.profile_key` → instances); one that is missing is limited by its cards alone.
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
