"""The fleet while a plan is made: what is free now, and what a request's pods are to each kind of pool."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from typing import NamedTuple

from infra.placement.fit import Fit, MemberMatch, Score, match_member
from infra.placement.fleet import Cluster, FreeVector, Pool, PoolShape
from infra.placement.quota import cards_in
from infra.placement.request import Request


class PoolState:
    """A pool while a plan is made: which nodes have what vector now. Starts as the snapshot, copies on the first
    change. `groups`: free vector → names of the usable nodes that have it, sorted; never empty."""

    __slots__ = ("_own", "groups", "pool")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.groups: Mapping[FreeVector, tuple[str, ...] | list[str]] = pool.groups
        self._own: dict[FreeVector, list[str]] | None = None

    def move(self, node: str, old: FreeVector, new: FreeVector) -> None:
        """The node's vector changes."""
        own = self._own
        if own is None:
            own = self._own = {vector: list(names) for vector, names in self.groups.items()}
            self.groups = own
        names = own[old]
        names.remove(node)
        if not names:
            del own[old]
        insort(own.setdefault(new, []), node)

    def vector_of(self, node: str) -> FreeVector | None:
        """The node's vector now; None for a node that is gone or not usable."""
        return next((vector for vector, names in self.groups.items() if node in names), None)


class ClusterState:
    """A cluster while a plan is made. `own`: replicas of this deployment that are there, kept or new."""

    __slots__ = ("cluster", "own", "pools")

    def __init__(self, cluster: Cluster, own: int = 0) -> None:
        self.cluster = cluster
        self.own = own
        self.pools = [PoolState(pool) for pool in cluster.pools]


class Item(NamedTuple):
    """One pod to place: indexes into the request's engines and members, its copy and ordinal."""

    engine: int
    copy: int
    member: int
    ordinal: int


class Step(NamedTuple):
    """One pod placed."""

    item: Item
    pool: PoolState
    node: str
    before: FreeVector
    fit: Fit


class Solution(NamedTuple):
    """Where all pods go. `score` compares solutions (smaller is better); `usage` is by keys of `quota.py`."""

    steps: tuple[Step, ...]
    score: Score
    usage: Mapping[str, int]


class Outcome(NamedTuple):
    """What a search found. `solution` None: nothing; then `quota` says that quota stood in the way of a choice, and
    `gave_up` that not everything was tried. `fitting`: pools that would take the replica, where that is known."""

    solution: Solution | None = None
    quota: bool = False
    gave_up: bool = False
    fitting: tuple[str, ...] = ()


class Asked:
    """A request with its members matched against kinds of pools, each once for the whole plan."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._matches: dict[PoolShape, list[list[MemberMatch]]] = {}
        # For the search: what found nothing, by the look of the cluster, and choices tried in all.
        self.failed: dict[object, Outcome] = {}
        self.steps = 0
        engines = request.engines
        self.single = len(engines) == 1 and engines[0].copies == 1 and [m.pods for m in engines[0].members] == [1]

    def all_matches(self, pool: PoolState) -> list[list[MemberMatch]]:
        """Members by engine against the pool's kind. Raises SelectorError."""
        shape = pool.pool.shape
        known = self._matches.get(shape)
        if known is None:
            known = self._matches[shape] = [
                [match_member(member, shape, self.request.zone) for member in engine.members]
                for engine in self.request.engines
            ]
        return known

    def matches(self, engine: int, pool: PoolState) -> list[MemberMatch]:
        """All members of the engine, in order."""
        return self.all_matches(pool)[engine]


def apply(state: ClusterState, solution: Solution) -> None:
    """Take what the solution takes."""
    for step in solution.steps:
        step.pool.move(step.node, step.before, step.fit.after)
    state.own += 1


def open_pools_by_engine(asked: Asked, state: ClusterState) -> list[list[PoolState]]:
    """For each engine the pools that have room for it when it is alone there."""
    return [
        [pool for pool in state.pools if pool_is_open(asked, engine, pool, state.cluster.name)]
        for engine in range(len(asked.request.engines))
    ]


def pool_is_open(asked: Asked, engine: int, pool: PoolState, cluster: str) -> bool:
    """Whether nothing about the pool, taken alone, speaks against this engine; quota apart."""
    request = asked.request
    if pool.pool.zone not in ("", request.zone):
        return False
    copies = request.engines[engine].copies
    for match in asked.matches(engine, pool):
        if not match.possible or not has_room(match, pool, copies * match.member.pods, copies):
            return False
    if request.price_check is not None:
        return request.price_check(cluster, pool.pool.name, cards_in(engine_usage(asked, engine, pool))) is None
    return True


def has_room(match: MemberMatch, pool: PoolState, wanted: int, copies: int) -> bool:
    """Whether `wanted` of these pods fit in the pool with nothing else of the replica."""
    return room_in(match, pool, wanted, copies) >= wanted


def room_in(match: MemberMatch, pool: PoolState, wanted: int, copies: int) -> int:
    """How many of these pods fit in the pool; stops counting at `wanted`. Pods that want nodes of their own share
    one with at most the pods of other copies."""
    total = 0
    for vector, names in pool.groups.items():
        room = match.room(vector, distinct=False, enough=wanted)
        if match.member.distinct_nodes:
            room = min(room, copies)
        total += room * len(names)
        if total >= wanted:
            return wanted
    return total


def engine_usage(asked: Asked, engine: int, pool: PoolState) -> dict[str, int]:
    """What the engine would take in the pool, by keys of `quota.py`, going by the best fit for each member."""
    usage: dict[str, int] = {}
    copies = asked.request.engines[engine].copies
    for match in asked.matches(engine, pool):
        fits = [fits[0] for vector in pool.groups if (fits := match.fits(vector))]
        if fits:
            best = min(fits, key=lambda fit: fit.score)
            for gpu_type, amount in best.usage:
                usage[gpu_type] = usage.get(gpu_type, 0) + amount * match.member.pods * copies
    return usage
