"""What a deployment without a place asks for, and in which pool it is counted: from a plan. Pure.

A deployment may fit many pools, and idle cards of each could be said to be "waited for". It is counted in one: of the
pools that the scheduler named with the rule nearest to a place, the one with most free cards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from infra.placement import EngineSpec, HamiShare, MigShare, Placement, Plan, Snapshot
from infra.placement.fit import MemberMatch, match_member
from infra.placement.model import DeviceRequest, FreeVector, Pool
from infra.shares import CARD
from tenants.waiting import nearest


@dataclass(frozen=True, slots=True)
class Ask:
    """``pods`` pods want ``count`` devices each, on one node. ``cluster`` and ``pool`` are names; empty: in none.

    ``memory_percent`` or ``memory_mib``, and ``cores``, are those of a HAMi share of one card; ``profile`` is MIG's.
    """

    part: str
    reason: str
    rule: str
    cluster: str
    pool: str
    count: int
    pods: int
    profile: str = ""
    memory_mib: int = 0
    memory_percent: int | Fraction = 0
    cores: int = 0

    @property
    def sharing(self) -> str:
        """How it wants its cards handed out."""
        if self.memory_mib or self.memory_percent:
            return "hami"
        return "mig" if self.profile else "whole"


@dataclass(frozen=True, slots=True)
class _Where:
    rule: str = ""
    cluster: str = ""
    pool: Pool | None = None


def asks_of(
    plan: Plan,
    snapshot: Snapshot,
    engines: Sequence[EngineSpec],
    *,
    zone: str,
    reason: str,
    refused: Placement | None = None,
) -> tuple[Ask, ...]:
    """Every request for cards of the replicas that have no place; none where all have one.

    Args:
        reason: the word that the condition says.
        refused: a place that the plan had found and that the quota refused when it was to be taken.
    """
    taken = 0 if refused is None else sum(1 for one in plan.placements if one.index >= refused.index)
    short = plan.short + taken
    if not short:
        return ()
    where = _refused(snapshot, refused) if refused is not None else _where(plan, snapshot)
    found = []
    for engine in engines:
        for member in engine.members:
            match = match_member(member, where.pool.shape, zone) if where.pool is not None else None
            for number, request in enumerate(member.devices):
                if match is not None and not _wants_cards(match, number):
                    continue
                part = f"{engine.name}/{member.role}/{request.name}"
                found.append(_ask(part[:200], request, where, reason, short * engine.copies * member.pods))
    return tuple(found)


def _ask(part: str, request: DeviceRequest, where: _Where, reason: str, pods: int) -> Ask:
    share = request.share
    pool = where.pool.name if where.pool is not None else ""
    hami = share if isinstance(share, HamiShare) else None
    return Ask(
        part=part,
        reason=reason,
        rule=where.rule,
        cluster=where.cluster,
        pool=pool,
        count=request.count,
        pods=pods,
        profile=share.profile if isinstance(share, MigShare) else "",
        memory_mib=(hami.memory_mib or 0) if hami else 0,
        memory_percent=(hami.memory_percent or 0) if hami else 0,
        cores=hami.cores if hami else 0,
    )


def _wants_cards(match: MemberMatch, number: int) -> bool:
    """Whether the request is one for cards (not for a network card); what matches nothing is taken for one."""
    candidates = match.candidates[number]
    return not candidates or any(entry.gpu_type for entry in candidates)


def _refused(snapshot: Snapshot, refused: Placement) -> _Where:
    names = [engine.pool for engine in refused.engines]
    return _Where("quota", refused.cluster, _pool(snapshot, refused.cluster, names[0] if names else None))


def _where(plan: Plan, snapshot: Snapshot) -> _Where:
    best, most = _Where(), -1
    for explanation in nearest(plan.explanations):
        pool = _pool(snapshot, explanation.cluster, explanation.pool)
        if pool is None:
            continue
        free = sum(_free(vector) * len(names) for vector, names in pool.groups.items())
        if free > most:
            best, most = _Where(str(explanation.rule), explanation.cluster, pool), free
    return best


def _pool(snapshot: Snapshot, cluster: str, name: str | None) -> Pool | None:
    found = snapshot.by_name.get(cluster)
    return next((pool for pool in found.pools if pool.name == name), None) if found else None


def _free(vector: FreeVector) -> int:
    """Roughly how much of a node's cards is free, millionths: only to choose between pools."""
    return sum(_amounts(vector))


def _amounts(vector: FreeVector) -> Iterator[int]:
    for _, amount in (*vector.devices, *vector.mig):
        yield amount * CARD
    for card in vector.cards:
        if card.physical_mib > 0 and card.free_slots > 0:
            yield min(card.free_mib * CARD // card.physical_mib, card.free_cores * CARD // 100)
