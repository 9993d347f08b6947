"""From a snapshot and a request to a plan: keep, remove, place anew, fill, explain."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from infra.placement.answer import DeviceGrant, Explanation, Placement, Plan, PodPlacement, Removal, Rule
from infra.placement.explain import explain_pool
from infra.placement.fleet import Card, Effect, FreeVector, Node, Snapshot, interned
from infra.placement.gates import refusal, untolerated
from infra.placement.grants import placements_of
from infra.placement.quota import left_of, profile_key, spend
from infra.placement.request import ExistingReplica, Request
from infra.placement.search import find
from infra.placement.state import Asked, ClusterState, Outcome, Solution, apply


def place(snapshot: Snapshot, request: Request) -> Plan:
    """Where the replicas of a deployment go. Pure: equal arguments give an equal plan; nothing is changed.

    Replicas that exist stay, whatever the request's selectors say now, unless their cluster has a NoExecute taint that
    is not tolerated, or fewer are wanted. A cluster that is missing from the snapshot removes nothing. What is missing
    is placed one by one: on the cluster with the fewest replicas of this deployment, then where the fit is best (the
    tightest type, the least stranded, the fullest node), then by name. Explanations are given when a replica was to
    be placed.

    Raises SelectorError for a CEL selector that does not compile.
    """
    return _Planner(snapshot, request).run()


@dataclass
class _Planner:
    snapshot: Snapshot
    request: Request
    asked: Asked = field(init=False)
    quota: dict[str, int] | None = field(init=False)
    states: dict[str, ClusterState] = field(default_factory=dict)
    refusals: list[Explanation] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    placements: list[Placement] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.asked = Asked(self.request)
        self.quota = dict(self.request.quota_free) if self.request.quota_free is not None else None

    def run(self) -> Plan:
        request = self.request
        kept, removals = self._retain()
        kept, fewer = self._scale_down(kept)
        removals += fewer
        stale = [replica for replica in kept if not replica.current]
        missing = max(0, request.replicas - len(kept))
        replaced: list[int] = []
        if request.fill and (stale or missing):
            self._open(kept)
            replaced = [replica.index for replica in stale if self._replace(replica)]
            taken = {replica.index for replica in request.existing}
            self._fill(missing, taken)
        retained = [replica for replica in kept if replica.index not in replaced]
        done = len(retained) + len(self.placements) >= request.replicas
        return Plan(
            wanted=request.replicas,
            retained=tuple(sorted(retained, key=lambda replica: (replica.index, replica.cluster))),
            placements=tuple(sorted(self.placements, key=lambda placement: placement.index)),
            removals=tuple(sorted(removals, key=lambda removal: (removal.index, removal.cluster))),
            explanations=self._explain(done),
            replaced=tuple(sorted(replaced)),
        )

    # ------------------------------------------------------------------------------------ who stays, who goes

    def _retain(self) -> tuple[list[ExistingReplica], list[Removal]]:
        kept: list[ExistingReplica] = []
        removals: list[Removal] = []
        for replica in self.request.existing:
            cluster = self.snapshot.by_name.get(replica.cluster)
            taint = untolerated(cluster, self.request, Effect.NO_EXECUTE) if cluster is not None else None
            if taint is None:
                kept.append(replica)
                continue
            shown = f"{taint.key}={taint.value}" if taint.value else taint.key
            removals.append(
                Removal(
                    replica.index,
                    replica.cluster,
                    Rule.TAINT,
                    f"Replica {replica.index} leaves cluster {replica.cluster}: the deployment does not tolerate its "
                    f"taint {shown}:{taint.effect}.",
                )
            )
        return kept, removals

    def _scale_down(self, kept: list[ExistingReplica]) -> tuple[list[ExistingReplica], list[Removal]]:
        """Fewer are wanted: not-ready ones go first, then from the most crowded cluster, then the highest index."""
        kept = list(kept)
        removals: list[Removal] = []
        while len(kept) > max(0, self.request.replicas):
            crowd: dict[str, int] = {}
            for replica in kept:
                crowd[replica.cluster] = crowd.get(replica.cluster, 0) + 1
            victim = max(kept, key=lambda r: (not r.ready, crowd[r.cluster], r.index, r.cluster))
            kept.remove(victim)
            why = "is not ready" if not victim.ready else f"is one of {crowd[victim.cluster]} on that cluster"
            removals.append(
                Removal(
                    victim.index,
                    victim.cluster,
                    Rule.SCALE_DOWN,
                    f"Replica {victim.index} on cluster {victim.cluster} goes: {self.request.replicas} are wanted, and "
                    f"it {why}.",
                )
            )
        return kept, removals

    # --------------------------------------------------------------------------------------- what is placed

    def _open(self, kept: list[ExistingReplica]) -> None:
        """The clusters that may take something new, and the refusals of the others."""
        own: dict[str, int] = {}
        for replica in kept:
            own[replica.cluster] = own.get(replica.cluster, 0) + 1
        for cluster in sorted(self.snapshot.clusters, key=lambda c: c.name):
            refused = refusal(cluster, self.request)
            if refused is None:
                self.states[cluster.name] = ClusterState(cluster, own.get(cluster.name, 0))
            else:
                self.refusals.append(refused)

    def _search(self, name: str) -> Outcome:
        outcome = find(self.asked, self.states[name], self.quota)
        self.outcomes[name] = outcome
        return outcome

    def _accept(self, index: int, name: str, solution: Solution) -> None:
        state = self.states[name]
        apply(state, solution)
        if self.quota is not None:
            spend(self.quota, solution.usage.items())
        self.placements.append(Placement(index, name, placements_of(self.asked.request, solution)))

    def _fill(self, missing: int, taken: set[int]) -> None:
        ranked: list[tuple[int, tuple[int, int, int], str, Solution]] = []

        def offer(name: str) -> None:
            solution = self._search(name).solution
            if solution is not None:
                heapq.heappush(ranked, (self.states[name].own, solution.score, name, solution))

        if missing:
            for name in self.states:
                offer(name)
        index = 0
        while missing and ranked:
            _, _, name, solution = heapq.heappop(ranked)
            if not self._still_in_quota(solution):
                # The quota shrank since; another type may still do.
                offer(name)
                continue
            while index in taken:
                index += 1
            taken.add(index)
            self._accept(index, name, solution)
            missing -= 1
            offer(name)

    def _still_in_quota(self, solution: Solution) -> bool:
        return self.quota is None or all(left_of(self.quota, k) >= v for k, v in solution.usage.items())

    def _replace(self, replica: ExistingReplica) -> bool:
        """Place a replica anew whose shape has changed, with what it holds counted as free; on its own cluster if it
        fits there. If it fits nowhere it keeps what it has."""
        old = self.states.get(replica.cluster)
        returned = _give_back(old, replica) if old is not None else []
        held = _held(replica)
        if self.quota is not None:
            spend(self.quota, held.items(), times=-1)
        if old is not None:
            old.own -= 1
        best = self._best_for(replica.cluster)
        if best is not None:
            self._accept(replica.index, *best)
            return True
        if old is not None:
            old.own += 1
            for pool_index, node, before, after in reversed(returned):
                old.pools[pool_index].move(node, after, before)
        if self.quota is not None:
            spend(self.quota, held.items())
        return False

    def _best_for(self, home: str) -> tuple[str, Solution] | None:
        """Cluster and solution for a replica that is at home on one: that one if it fits there, else the best."""
        best: tuple[int, tuple[int, int, int], str, Solution] | None = None
        for name in sorted(self.states, key=lambda name: (name != home, name)):
            solution = self._search(name).solution
            if solution is None:
                continue
            if name == home:
                return name, solution
            ranking = (self.states[name].own, solution.score, name, solution)
            if best is None or ranking[:3] < best[:3]:
                best = ranking
        return (best[2], best[3]) if best is not None else None

    # -------------------------------------------------------------------------------------------- why not

    def _explain(self, done: bool) -> tuple[Explanation, ...]:
        if not self.states and not self.refusals:
            return ()
        chosen = {(p.cluster, engine.pool) for p in self.placements for engine in p.engines}
        answers = list(self.refusals)
        for name, state in self.states.items():
            outcome = self.outcomes.get(name) or self._search(name)
            answers.extend(
                explain_pool(self.asked, state, pool, outcome, self.quota, done)
                for pool in state.pools
                # When replicas are left over, the pools that took some say why they take no more.
                if not done or (name, pool.pool.name) not in chosen
            )
        return tuple(sorted(answers, key=lambda e: (e.cluster, e.pool or "")))


def _held(replica: ExistingReplica) -> Mapping[str, int]:
    held = dict(Placement(replica.index, replica.cluster, replica.engines).millionths)
    for grant in (grant for engine in replica.engines for pod in engine.pods for grant in pod.grants):
        if grant.gpu_type and grant.profile:
            key = profile_key(grant.gpu_type, grant.profile)
            held[key] = held.get(key, 0) + grant.count
    return held


def _give_back(state: ClusterState, replica: ExistingReplica) -> list[tuple[int, str, FreeVector, FreeVector]]:
    """Count what the replica holds as free: (pool, node, vector before, vector after) for taking it back."""
    done: list[tuple[int, str, FreeVector, FreeVector]] = []
    by_name = {pool.pool.name: index for index, pool in enumerate(state.pools)}
    for engine in replica.engines:
        if engine.pool not in by_name:
            continue
        index = by_name[engine.pool]
        pool = state.pools[index]
        for pod in engine.pods:
            before = pool.vector_of(pod.node)
            if before is None:
                continue
            after = interned(_with_pod(before, pool.pool.by_name[pod.node], pod))
            pool.move(pod.node, before, after)
            done.append((index, pod.node, before, after))
    return done


def _with_pod(vector: FreeVector, node: Node, pod: PodPlacement) -> FreeVector:
    devices, mig, cards = dict(vector.devices), dict(vector.mig), list(vector.cards)
    for grant in pod.grants:
        if grant.cards:
            _return_cards(cards, node, grant)
        elif grant.profile:
            mig[grant.profile] = mig.get(grant.profile, 0) + grant.count
        else:
            devices[grant.entry] = devices.get(grant.entry, 0) + grant.count
    cpu, memory = vector.cpu_millis, vector.memory_bytes
    return FreeVector.of(
        devices=devices,
        mig=mig,
        cards=tuple(cards),
        cpu_millis=None if cpu is None else cpu + (pod.cpu_millis or 0),
        memory_bytes=None if memory is None else memory + (pod.memory_bytes or 0),
        zone=vector.zone,
    )


def _return_cards(cards: list[Card], node: Node, grant: DeviceGrant) -> None:
    for uuid in grant.cards:
        if uuid not in node.card_uuids:
            continue
        position = node.card_uuids.index(uuid)
        card = cards[position]
        pods = max(0, card.pods - 1)
        cards[position] = replace(
            card,
            free_mib=card.free_mib + grant.memory_mib,
            free_cores=card.free_cores + grant.cores,
            pods=pods,
            free_slots=card.free_slots + 1,
            zone=card.zone if pods else "",
        )
