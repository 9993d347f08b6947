"""A search's solution in the words of the answer."""

from __future__ import annotations

from infra.placement.answer import DeviceGrant, EnginePlacement, PodPlacement
from infra.placement.request import Request
from infra.placement.state import Solution, Step


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
