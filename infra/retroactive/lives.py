"""From what history says of a pod to evidence that metering reads, with the stated error of its edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from infra.evidence import ContainerEvidence, Owner, PodEvidence
from infra.hami_record import HAMI_ALLOCATED, HAMI_PHASE
from infra.pod_devices import HAMI_SCHEDULER, ContainerKind, reserved
from infra.retroactive.pods import PastContainer, PastPod
from portal.kernel.clock import from_epoch_ms


@dataclass(frozen=True, slots=True)
class Life:
    """A pod's past as evidence.

    ``start_error_ms``: the pod may have held its cards so much earlier than the evidence says; ``end_error_ms``: so
    much longer. 0: the edge is exact to the second, or lies outside of history.
    """

    evidence: PodEvidence
    start_error_ms: int
    end_error_ms: int


def life_of(
    pod: PastPod, *, uid: str, step: int, gaps: Sequence[tuple[int, int]] = (), ends_by: int | None = None
) -> Life:
    """The evidence that history gives of a pod.

    Args:
        uid: of the evidence: history is kept apart from what was watched.
        step: ms between two looks at history: how far an edge that no metric tells may lie from the scrape beside it.
        gaps: times without any scrape; one that ends where the pod appears widens its start's error.
        ends_by: the pod was there at this instant for certain, seen by other means (the watch's first list); it has
            no end before it.
    """
    bound = min((t for t in (pod.scheduled, pod.start_time) if t is not None), default=None)
    bound_at = pod.first if bound is None else bound
    start_error = 0 if bound is not None else _before(pod.first, step, gaps)
    containers = tuple(_container(one) for one in pod.containers)
    started = min((one.started for one in pod.containers if one.started is not None), default=None)
    if pod.init_seen is not None and (started is None or pod.init_seen < started):
        started = pod.init_seen  # an init container's start is told by no metric
    if started is None:
        started = pod.start_time if pod.start_time is not None else pod.first
    started = max(started, bound_at)
    end, gone, proof = (None, None, None) if ends_by is not None else _end(pod)
    end_error = (gone - proof) if gone is not None and proof is not None else 0
    finished = _at(end)
    state = "terminated" if finished else "running"
    return Life(
        PodEvidence(
            uid=uid,
            namespace=pod.namespace,
            name=pod.name,
            resource_version=0,
            first_seen_at=from_epoch_ms(pod.first),
            last_seen_at=from_epoch_ms(max(pod.last, ends_by or pod.last)),
            node=pod.node,
            scheduler=HAMI_SCHEDULER if pod.grants else "",
            phase="Succeeded" if finished else "Running",
            requests=_reserved(pod.containers),
            containers=_with_times(containers, from_epoch_ms(started), finished, state),
            annotations=_record(pod),
            owner=Owner(pod.owner_kind, pod.owner_name, "") if pod.owner_kind else None,
            created_at=_at(pod.created),
            scheduled_at=from_epoch_ms(bound_at),
            # An end that its metric tells was seen at the latest in the scrape that told it.
            terminal_seen_at=from_epoch_ms(max(pod.terminal or pod.last, end)) if end is not None else None,
            gone_at=_at(gone),
            gone_inferred_after=_at(proof),
        ),
        start_error,
        end_error,
    )


def _before(first: int, step: int, gaps: Sequence[tuple[int, int]]) -> int:
    """How much earlier than its first scrape the pod may have been bound."""
    widest = max((right - left for left, right in gaps if left < first and abs(right - first) <= 2 * step), default=0)
    return max(step, widest)


def _end(pod: PastPod) -> tuple[int | None, int | None, int | None]:
    """(exact end, gone at, proved until): either the first, or the other two, or none where it was still there."""
    if pod.terminal is not None:
        if pod.completed is not None:
            return pod.completed, None, None
        # It failed without a container that ran to its end (evicted): over by the scrape that says so.
        proof = pod.alive if pod.alive is not None else pod.first
        return None, max(pod.terminal, proof), min(proof, pod.terminal)
    if pod.after is not None:
        return None, pod.after, pod.last
    return None, None, None


def _at(ms: int | None) -> datetime | None:
    return None if ms is None else from_epoch_ms(ms)


def _container(one: PastContainer) -> ContainerEvidence:
    return ContainerEvidence(
        one.name,
        ContainerKind(one.kind),
        "Always",  # not told; of this policy nothing is concluded
        tuple((resource, Fraction(text)) for resource, text in one.requests),
    )


def _with_times(
    containers: Sequence[ContainerEvidence], started: datetime, finished: datetime | None, state: str
) -> tuple[ContainerEvidence, ...]:
    """The pod's start and end, on its containers: which of them it was is not told of all."""
    return tuple(
        ContainerEvidence(
            one.name, one.kind, one.restart_policy, one.requests, state,
            first_started_at=started, last_finished_at=max(finished, started) if finished else None,
        )
        for one in containers
    )  # fmt: skip


def _reserved(containers: Sequence[PastContainer]) -> tuple[tuple[str, Fraction], ...]:
    """As Kubernetes keeps it. The order of init containers is not told: sidecars are taken to start before them."""
    order = {"sidecar": 0, "init": 1, "main": 2}
    kept = reserved(
        (ContainerKind(one.kind), {resource: Fraction(text) for resource, text in one.requests})
        for one in sorted(containers, key=lambda one: order[one.kind])
    )
    return tuple(sorted((resource, amount) for resource, amount in kept.items() if amount))


def _record(pod: PastPod) -> tuple[tuple[str, str], ...]:
    """HAMi's record in its own form, from its scheduler's metrics (which no tenant writes)."""
    if not pod.grants:
        return ()
    containers = [""] * (max(grant.index for grant in pod.grants) + 1)
    for grant in pod.grants:
        containers[grant.index] += f"{grant.uuid},NVIDIA,{grant.memory_mib},{grant.cores}:"
    text = "".join(container + ";" for container in containers)
    return ((HAMI_PHASE, "success"), (HAMI_ALLOCATED, text))
