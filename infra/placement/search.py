"""Finding nodes for all pods of one replica in one cluster.

Every engine goes to one pool, every pod to one node. The search is depth first over *distinct* free vectors, best fit
first, and goes back when a choice leaves no room for what is still to place; so the order in which engines, members
and requests are written does not decide whether they fit. It gives up after a bounded number of steps and says so.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from infra.placement.answer import DeviceGrant, EnginePlacement, PodPlacement
from infra.placement.fit import Fit, MemberMatch, Score, match_member
from infra.placement.fleet import Cluster, FreeVector, Pool
from infra.placement.request import Request

# Choices tried for one replica on one cluster before giving up.
MAX_STEPS = 4000
# Above this many pods, what was found hopeless is no longer remembered: writing it down costs more than it saves.
_REMEMBER_PODS = 64


class PoolState:
    """A pool while a plan is made: who has what vector now. Starts as the snapshot, copies on the first change."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._groups: Mapping[FreeVector, tuple[str, ...] | list[str]] = pool.groups
        self._own: dict[FreeVector, list[str]] | None = None

    @property
    def groups(self) -> Mapping[FreeVector, tuple[str, ...] | list[str]]:
        """Free vector → names of the usable nodes that have it, sorted; never empty lists."""
        return self._groups

    def move(self, node: str, old: FreeVector, new: FreeVector) -> None:
        """The node's vector changes."""
        own = self._own
        if own is None:
            own = self._own = {vector: list(names) for vector, names in self._groups.items()}
            self._groups = own
        names = own[old]
        names.remove(node)
        if not names:
            del own[old]
        insort(own.setdefault(new, []), node)

    def vector_of(self, node: str) -> FreeVector | None:
        """The node's vector now; None for a node that is gone or not usable."""
        original = self.pool.by_name.get(node)
        if original is None or original.unusable:
            return None
        if self._own is None:
            return original.free
        return next((vector for vector, names in self._own.items() if node in names), None)


class Asked:
    """A request with its members matched against kinds of pools, each once for the whole plan."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._matches: dict[tuple[int, int, int], MemberMatch] = {}

    def match(self, engine: int, member: int, pool: PoolState) -> MemberMatch:
        """The member against the pool's kind. Raises SelectorError."""
        shape = pool.pool.shape
        key = (engine, member, id(shape))
        known = self._matches.get(key)
        if known is None:
            spec = self.request.engines[engine].members[member]
            known = self._matches[key] = match_member(spec, shape, self.request.zone)
        return known

    def matches(self, engine: int, pool: PoolState) -> list[MemberMatch]:
        """All members of the engine, in order."""
        return [self.match(engine, member, pool) for member in range(len(self.request.engines[engine].members))]


@dataclass(frozen=True, slots=True)
class Step:
    """One pod placed."""

    item: Item
    pool: PoolState
    node: str
    before: FreeVector
    fit: Fit


@dataclass(frozen=True, slots=True)
class Item:
    """One pod to place: indexes into the request's engines and members, its copy and ordinal."""

    engine: int
    copy: int
    member: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class Solution:
    """Where all pods go. `score` compares solutions (smaller is better)."""

    steps: tuple[Step, ...]
    score: Score
    usage: Mapping[str, int]


@dataclass
class ClusterState:
    """A cluster while a plan is made. `own`: replicas of this deployment that are there (kept or new)."""

    cluster: Cluster
    own: int = 0
    pools: list[PoolState] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pools = [PoolState(pool) for pool in self.cluster.pools]


@dataclass(slots=True)
class Outcome:
    """What a search found. `solution` None: nothing; then `quota` says that quota stood in the way of a choice, and
    `gave_up` that not everything was tried."""

    solution: Solution | None = None
    quota: bool = False
    gave_up: bool = False


class Search:
    """One replica on one cluster."""

    def __init__(self, asked: Asked, state: ClusterState, quota: Mapping[str, int] | None) -> None:
        self.asked = asked
        self.request = asked.request
        self.state = state
        self.quota = quota
        self.outcome = Outcome()
        self.usage: dict[str, int] = {}
        self.chosen: dict[int, PoolState] = {}
        self.steps: list[Step] = []
        self.tried = 0

    def run(self) -> Outcome:
        """Search; the cluster's state is as before when it returns."""
        open_pools = open_pools_by_engine(self.asked, self.state)
        if all(open_pools):
            items = list(_items(self.request, open_pools))
            self._descend(items, open_pools)
            self._undo(0)
        return self.outcome

    def _descend(self, items: list[Item], open_pools: list[list[PoolState]]) -> None:
        remember = 1 < len(items) <= _REMEMBER_PODS
        hopeless: set[object] = set()
        stack: list[Iterator[tuple[PoolState, FreeVector, str, Fit]]] = []
        keys: list[object] = []
        while True:
            depth = len(stack)
            if depth == len(items):
                self.outcome.solution = self._solution()
                return
            key = self._key(depth) if remember else None
            if key is not None and key in hopeless:
                stack.append(iter(()))
            else:
                choices = self._choices(items[depth], open_pools)
                # Nothing comes after the last pod, so its best choice will do.
                best = (
                    [min(choices, key=_order)] if choices and depth + 1 == len(items) else sorted(choices, key=_order)
                )
                stack.append(iter(best))
            keys.append(key)
            while stack:
                choice = next(stack[-1], None)
                if choice is not None:
                    break
                stack.pop()
                hopeless.add(keys.pop())
                if stack:
                    self._undo(len(stack) - 1)
            else:
                return
            self.tried += 1
            if self.tried > MAX_STEPS:
                self.outcome.gave_up = True
                return
            self._do(items[len(stack) - 1], choice)

    def _choices(self, item: Item, open_pools: list[list[PoolState]]) -> list[tuple[PoolState, FreeVector, str, Fit]]:
        member = self.request.engines[item.engine].members[item.member]
        chosen = self.chosen.get(item.engine)
        pools = open_pools[item.engine] if chosen is None else [chosen]
        taken, exclusive = self._nodes_of(item) if _cares(self.request, item) else (frozenset(), frozenset())
        avoid = taken if member.distinct_nodes else exclusive
        found: list[tuple[PoolState, FreeVector, str, Fit]] = []
        for pool in pools:
            match = self.asked.match(item.engine, item.member, pool)
            for vector, names in pool.groups.items():
                fits = match.fits(vector)
                if not fits:
                    continue
                node = names[0] if not avoid else next((name for name in names if name not in avoid), "")
                if not node:
                    continue
                for fit in fits:
                    if self._within_quota(fit):
                        found.append((pool, vector, node, fit))
                    else:
                        self.outcome.quota = True
        return found

    def _within_quota(self, fit: Fit) -> bool:
        if self.quota is None:
            return True
        return all(
            self.usage.get(gpu_type, 0) + amount <= self.quota.get(gpu_type, 0) for gpu_type, amount in fit.usage
        )

    def _nodes_of(self, item: Item) -> tuple[frozenset[str], frozenset[str]]:
        """Nodes that this copy of the engine is on, and those of them that a pod wants for itself."""
        members = self.request.engines[item.engine].members
        mine = [s for s in self.steps if s.item.engine == item.engine and s.item.copy == item.copy]
        return (
            frozenset(s.node for s in mine),
            frozenset(s.node for s in mine if members[s.item.member].distinct_nodes),
        )

    def _do(self, item: Item, choice: tuple[PoolState, FreeVector, str, Fit]) -> None:
        pool, vector, node, fit = choice
        pool.move(node, vector, fit.after)
        self.chosen.setdefault(item.engine, pool)
        for gpu_type, amount in fit.usage:
            self.usage[gpu_type] = self.usage.get(gpu_type, 0) + amount
        self.steps.append(Step(item, pool, node, vector, fit))

    def _undo(self, length: int) -> None:
        """Take back steps until `length` are left."""
        while len(self.steps) > length:
            step = self.steps.pop()
            step.pool.move(step.node, step.fit.after, step.before)
            for gpu_type, amount in step.fit.usage:
                self.usage[gpu_type] -= amount
            if not any(s.item.engine == step.item.engine for s in self.steps):
                del self.chosen[step.item.engine]

    def _key(self, depth: int) -> object:
        """What decides whether the rest can be placed: how far we are, the pools chosen, all vectors, the quota used,
        and, where pods want nodes of their own, which nodes are taken."""
        vectors = tuple(
            frozenset((vector, len(names)) for vector, names in pool.groups.items())
            for pool in dict.fromkeys(s.pool for s in self.steps)
        )
        chosen = tuple(sorted((engine, pool.pool.name) for engine, pool in self.chosen.items()))
        used = tuple(sorted((k, v) for k, v in self.usage.items() if v)) if self.quota is not None else ()
        nodes: object = ()
        if any(m.distinct_nodes for e in self.request.engines for m in e.members):
            nodes = frozenset((s.item.engine, s.item.copy, s.item.member, s.node) for s in self.steps)
        return depth, chosen, vectors, used, nodes

    def _solution(self) -> Solution:
        scores = [step.fit.score for step in self.steps]
        score = (sum(s[0] for s in scores), sum(s[1] for s in scores), sum(s[2] for s in scores))
        return Solution(tuple(self.steps), score, {k: v for k, v in self.usage.items() if v})


def _order(choice: tuple[PoolState, FreeVector, str, Fit]) -> tuple[Score, str, str]:
    pool, _, node, fit = choice
    return fit.score, pool.pool.name, node


def _cares(request: Request, item: Item) -> bool:
    return any(member.distinct_nodes for member in request.engines[item.engine].members)


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
        return request.price_check(cluster, pool.pool.name, engine_usage(asked, engine, pool)) is None
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
    """GPU type → millionths that the engine would take in the pool, going by the best fit for each member."""
    usage: dict[str, int] = {}
    copies = asked.request.engines[engine].copies
    for match in asked.matches(engine, pool):
        fits = [fits[0] for vector in pool.groups if (fits := match.fits(vector))]
        if fits:
            best = min(fits, key=lambda fit: fit.score)
            for gpu_type, amount in best.usage:
                usage[gpu_type] = usage.get(gpu_type, 0) + amount * match.member.pods * copies
    return usage


def _items(request: Request, open_pools: list[list[PoolState]]) -> Iterator[Item]:
    """The pods, those that are hardest to place first; independent of the order they are written in."""
    engines = sorted(
        range(len(request.engines)),
        key=lambda i: (len(open_pools[i]), -_weight(request, i), request.engines[i].name),
    )
    for engine in engines:
        spec = request.engines[engine]
        members = sorted(
            range(len(spec.members)),
            key=lambda m: (-sum(d.count for d in spec.members[m].devices), str(spec.members[m].role)),
        )
        for copy in range(spec.copies):
            for member in members:
                for ordinal in range(spec.members[member].pods):
                    yield Item(engine, copy, member, ordinal)


def _weight(request: Request, engine: int) -> int:
    spec = request.engines[engine]
    return spec.copies * sum(m.pods * sum(d.count for d in m.devices) for m in spec.members)


def apply(state: ClusterState, solution: Solution) -> None:
    """Take what the solution takes."""
    for step in solution.steps:
        step.pool.move(step.node, step.before, step.fit.after)
    state.own += 1


def placements_of(request: Request, solution: Solution) -> tuple[EnginePlacement, ...]:
    """The solution in the words of the answer: engines in the order they were asked, pods by copy, role, ordinal."""
    engines: dict[int, list[Step]] = {}
    for step in solution.steps:
        engines.setdefault(step.item.engine, []).append(step)
    answer = []
    for index, spec in enumerate(request.engines):
        steps = sorted(engines[index], key=lambda s: (s.item.copy, s.item.member, s.item.ordinal))
        pool = steps[0].pool.pool
        pods = tuple(_pod(request, step) for step in steps)
        answer.append(EnginePlacement(spec.name, pool.name, pool.sharing, pods))
    return tuple(answer)


def _pod(request: Request, step: Step) -> PodPlacement:
    member = request.engines[step.item.engine].members[step.item.member]
    uuids = step.pool.pool.by_name[step.node].card_uuids
    grants = tuple(
        DeviceGrant(
            request=member.devices[pick.request].name,
            entry=pick.entry.name,
            gpu_type=pick.entry.gpu_type,
            count=pick.count,
            millionths=pick.millionths,
            claim=pick.entry.claim,
            cards=tuple(uuids[position] for position in pick.cards),
            memory_mib=pick.memory_mib,
            cores=pick.cores,
            profile=pick.profile,
            device_class=pick.entry.device_class,
        )
        for pick in sorted(step.fit.picks, key=lambda pick: pick.request)
    )
    return PodPlacement(
        role=member.role,
        copy=step.item.copy,
        ordinal=step.item.ordinal,
        node=step.node,
        grants=grants,
        cpu_millis=member.cpu_millis,
        memory_bytes=member.memory_bytes,
    )
