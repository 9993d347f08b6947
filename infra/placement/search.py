"""Finding nodes for all pods of one replica in one cluster.

Every engine goes to one pool, every pod to one node. The search is depth first over *distinct* free vectors, best fit
first, and goes back when a choice leaves no room for what is still to place; so the order in which engines, members
and requests are written does not decide whether they fit. It gives up after a bounded number of steps and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.placement.fit import NO_FIT, Fit, Score
from infra.placement.fleet import FreeVector
from infra.placement.quota import left_of
from infra.placement.request import Request
from infra.placement.state import (
    Asked,
    ClusterState,
    Item,
    Outcome,
    PoolState,
    Solution,
    Step,
    open_pools_by_engine,
    pool_is_open,
)

# Choices tried for one replica on one cluster before giving up, and for all searches of a plan together. When the
# latter are spent, a cluster still gets as many as its pods need when each first choice is right, and a few more.
MAX_STEPS = 4000
PLAN_STEPS = 40_000
_LEAST_SPARE = 50
# Above this many pods, what was found hopeless is no longer remembered: writing it down costs more than it saves.
_REMEMBER_PODS = 64

# A pod's place: pool, vector before, node, and how it fits there.
Choice = tuple[PoolState, FreeVector, str, Fit]

_FIRST = Item(0, 0, 0, 0)
_NONE_USED: Mapping[str, int] = {}


def find(asked: Asked, state: ClusterState, quota: Mapping[str, int] | None) -> Outcome:
    """The best way to place one more replica on the cluster; `quota`: GPU type → millionths left, None = no matter.
    Nothing is changed. Raises SelectorError."""
    if asked.single:
        return _find_single(asked, state, quota)
    # What failed on one cluster fails on every other that looks the same.
    key = _look(state, quota) if asked.request.price_check is None else None
    known = asked.failed.get(key) if key is not None else None
    if known is not None:
        return known
    outcome = Search(asked, state, quota).run()
    if outcome.solution is None and key is not None:
        asked.failed[key] = outcome
    return outcome


def _look(state: ClusterState, quota: Mapping[str, int] | None) -> object:
    pools = frozenset(
        (pool.pool.name, pool.pool.shape, pool.pool.zone, frozenset((v, len(n)) for v, n in pool.groups.items()))
        for pool in state.pools
    )
    return pools, tuple(sorted(quota.items())) if quota is not None else None


def _find_single(asked: Asked, state: ClusterState, quota: Mapping[str, int] | None) -> Outcome:
    """The common case: one pod. Nothing depends on anything else, so the best fit of all is the answer; of equal ones
    the first pool and node by name."""
    zone = asked.request.zone
    priced = asked.request.price_check is not None
    fitting: list[str] = []
    refused = False
    found: tuple[Score, str, PoolState, FreeVector, Fit] | None = None
    for pool in state.pools:
        groups, name, reserved = pool.groups, pool.pool.name, pool.pool.zone
        if not groups or (reserved and reserved != zone):
            continue
        match = asked.all_matches(pool)[0][0]
        if not match.possible or (priced and not pool_is_open(asked, 0, pool, state.cluster.name)):
            continue
        scores = match.scores
        if not groups.keys() <= scores.keys():
            for vector in groups:
                match.fits(vector)
        vector = min(groups, key=scores.__getitem__)
        score = scores[vector]
        if score is NO_FIT:
            continue
        fit = match.known[vector][0]
        if not _within(quota, _NONE_USED, fit):
            refused = True
            within = [(f.score, v, f) for v in groups for f in match.fits(v) if _within(quota, _NONE_USED, f)]
            if not within:
                continue
            score, vector, fit = min(within, key=lambda choice: choice[0])
        fitting.append(name)
        if found is None or (score, name) < found[:2]:
            found = (score, name, pool, vector, fit)
    if found is None:
        return Outcome(None, refused)
    score, _, pool, vector, fit = found
    step = Step(_FIRST, pool, pool.groups[vector][0], vector, fit)
    return Outcome(Solution((step,), score, dict(fit.usage)), refused, False, tuple(fitting))


def _within(quota: Mapping[str, int] | None, used: Mapping[str, int], fit: Fit) -> bool:
    if quota is not None:
        for gpu_type, amount in fit.usage:
            if used.get(gpu_type, 0) + amount > left_of(quota, gpu_type):
                return False
    return True


class Search:
    """One replica on one cluster."""

    def __init__(self, asked: Asked, state: ClusterState, quota: Mapping[str, int] | None) -> None:
        self.asked = asked
        self.request = asked.request
        self.state = state
        self.quota = quota
        self.solution: Solution | None = None
        self.quota_refused = self.gave_up = False
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
        return Outcome(self.solution, self.quota_refused, self.gave_up)

    def _descend(self, items: list[Item], open_pools: list[list[PoolState]]) -> None:
        remember = 1 < len(items) <= _REMEMBER_PODS
        hopeless: set[object] = set()
        stack: list[Iterator[Choice]] = []
        keys: list[object] = []
        while True:
            depth = len(stack)
            if depth == len(items):
                self.solution = self._solution()
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
            choice = self._next_choice(stack, keys, hopeless)
            if choice is None:
                return
            self.tried += 1
            self.asked.steps += 1
            if self.tried > max(min(MAX_STEPS, PLAN_STEPS - self.asked.steps), len(items) + _LEAST_SPARE):
                self.gave_up = True
                return
            self._do(items[len(stack) - 1], choice)

    def _next_choice(self, stack: list[Iterator[Choice]], keys: list[object], hopeless: set[object]) -> Choice | None:
        """The next choice of the deepest pod that has one; pods that have none left are taken back."""
        while stack:
            choice = next(stack[-1], None)
            if choice is not None:
                return choice
            stack.pop()
            hopeless.add(keys.pop())
            if stack:
                self._undo(len(stack) - 1)
        return None

    def _choices(self, item: Item, open_pools: list[list[PoolState]]) -> list[Choice]:
        member = self.request.engines[item.engine].members[item.member]
        chosen = self.chosen.get(item.engine)
        pools = open_pools[item.engine] if chosen is None else [chosen]
        taken, exclusive = self._nodes_of(item) if _cares(self.request, item) else (frozenset(), frozenset())
        avoid = taken if member.distinct_nodes else exclusive
        found: list[Choice] = []
        for pool in pools:
            match = self.asked.matches(item.engine, pool)[item.member]
            for vector, names in pool.groups.items():
                fits = match.fits(vector)
                if not fits:
                    continue
                node = names[0] if not avoid else next((name for name in names if name not in avoid), "")
                if not node:
                    continue
                for fit in fits:
                    if _within(self.quota, self.usage, fit):
                        found.append((pool, vector, node, fit))
                    else:
                        self.quota_refused = True
        return found

    def _nodes_of(self, item: Item) -> tuple[frozenset[str], frozenset[str]]:
        """Nodes that this copy of the engine is on, and those of them that a pod wants for itself."""
        members = self.request.engines[item.engine].members
        mine = [s for s in self.steps if s.item.engine == item.engine and s.item.copy == item.copy]
        return (
            frozenset(s.node for s in mine),
            frozenset(s.node for s in mine if members[s.item.member].distinct_nodes),
        )

    def _do(self, item: Item, choice: Choice) -> None:
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


def _order(choice: Choice) -> tuple[Score, str, str]:
    pool, _, node, fit = choice
    return fit.score, pool.pool.name, node


def _cares(request: Request, item: Item) -> bool:
    return any(member.distinct_nodes for member in request.engines[item.engine].members)


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
