"""What the scheduler answers: placements, removals, and why not elsewhere. Immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from infra.placement.fleet import ClaimKind, Sharing

if TYPE_CHECKING:
    from infra.placement.request import ExistingReplica


class Role(StrEnum):
    """A member's part in its engine."""

    STANDALONE = "Standalone"
    LEADER = "Leader"
    WORKER = "Worker"


class Rule(StrEnum):
    """Why a cluster or pool was not chosen (or a replica was removed): the machine-readable reason."""

    LABEL = "label"  # clusterSelector names a label that the cluster lacks or has otherwise
    TAINT = "taint"
    NOT_READY = "not-ready"
    PAUSED = "paused"
    OBSERVE = "observe"
    ISOLATION = "isolation"  # the cluster lacks something that keeps tenants apart
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
