"""What was seen of a pod, as plain data, merged so that nothing known is ever lost. Read by
`infra.pod_reading`.

`merge` is order-independent and idempotent: events may come twice, late, or in any order, from any number of
watchers. Times that happen once (scheduled, first start) keep the earliest sight, ends keep the latest;
everything else is the state of the highest resourceVersion (decimal and comparable for one resource:
Kubernetes documents it since 1.35).

Instants are what the cluster wrote; those called `*_seen_at` are our clock's. Pure: no Django, no Kubernetes
client.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from infra.pod_devices import ContainerKind, is_gpu
from portal.kernel.clock import as_utc

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})
CLOCK_TOLERANCE = timedelta(seconds=60)
"""How far a cluster's clocks may be ahead of ours before an end that it tells is not believed."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The object that controls the pod."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ContainerEvidence:
    """One container. `requests` are sorted pairs of resource and exact quantity.

    `state` is "" (nothing said yet), `waiting`, `running` or `terminated`, with its `reason` and exit code.
    `back_off_after` is the end of the latest run after which it was seen waiting for the next one.
    `end_unknown` is true while it is terminated without a time (reason ContainerStatusUnknown).
    """

    name: str
    kind: ContainerKind
    restart_policy: str
    requests: tuple[tuple[str, Fraction], ...] = ()
    state: str = ""
    reason: str = ""
    exit_code: int | None = None
    end_unknown: bool = False
    restarts: int = 0
    first_started_at: datetime | None = None
    last_finished_at: datetime | None = None
    back_off_after: datetime | None = None

    @property
    def in_back_off(self) -> bool:
        """It ran, and was last seen waiting to run again, or stopped for good out of such a wait."""
        if self.state == "waiting":
            return self.last_finished_at is not None
        return (
            self.state == "terminated"
            and self.last_finished_at is not None
            and self.back_off_after is not None
            and self.last_finished_at <= self.back_off_after
        )


@dataclass(frozen=True, slots=True)
class PodEnd:
    """The pod held its devices for certain until `proved`, and no longer at `at`. Equal where the end was
    seen."""

    proved: datetime
    at: datetime

    @property
    def inferred(self) -> bool:
        return self.proved < self.at


@dataclass(frozen=True, slots=True)
class PodEvidence:
    """A pod as far as it was ever seen. `uid` is its identity; a pod made again under its name is another
    one.

    `requests` is what Kubernetes keeps for the pod all its life (see `infra.pod_devices.reserved`), sorted
    pairs. `gone_at` is when it was seen to be no longer there; `gone_inferred_after` is set, to the last
    proof of it, where it had left some time before (missing after a relist, or deleted while nobody watched).
    """

    uid: str
    namespace: str
    name: str
    resource_version: int
    first_seen_at: datetime
    last_seen_at: datetime
    node: str = ""
    scheduler: str = ""
    phase: str = ""
    ready: bool = False
    waiting_reason: str = ""
    requests: tuple[tuple[str, Fraction], ...] = ()
    containers: tuple[ContainerEvidence, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    owner: Owner | None = None
    created_at: datetime | None = None
    scheduled_at: datetime | None = None
    terminal_seen_at: datetime | None = None
    deletion_seen_at: datetime | None = None
    gone_at: datetime | None = None
    gone_inferred_after: datetime | None = None

    # --- what follows from it ---

    def request(self, resource: str) -> Fraction:
        """What the pod holds of a resource; 0 where it asks for none."""
        return dict(self.requests).get(resource, Fraction(0))

    def annotation(self, name: str) -> str:
        """An annotation of the allow-list; "" where it is absent."""
        return dict(self.annotations).get(name, "")

    def label(self, name: str) -> str:
        """A label of the allow-list; "" where it is absent."""
        return dict(self.labels).get(name, "")

    @property
    def asks_for_gpus(self) -> bool:
        """Whether it requests accelerators of any vendor."""
        return any(is_gpu(resource) and amount > 0 for resource, amount in self.requests)

    @property
    def started_at(self) -> datetime | None:
        """The first start of any container, init containers included."""
        return min((c.first_started_at for c in self.containers if c.first_started_at), default=None)

    @property
    def last_finished_at(self) -> datetime | None:
        """The latest end of any run of any container."""
        return max((c.last_finished_at for c in self.containers if c.last_finished_at), default=None)

    @property
    def restarts(self) -> int:
        """Σ restarts of its containers."""
        return sum(container.restarts for container in self.containers)

    @property
    def in_back_off(self) -> bool:
        """Some container waits to be started again after it ended."""
        return any(container.state == "waiting" and container.in_back_off for container in self.containers)

    @property
    def is_terminal(self) -> bool:
        """Phase Succeeded or Failed: nothing of it will run again."""
        return self.phase in TERMINAL_PHASES

    @property
    def stopped_at(self) -> datetime | None:
        """Since when no container runs or will run again, from the containers alone; None while that is not
        so.

        A pod that was deleted in its back-off is not stopped by this: it ends when it is gone. The deletion
        timestamp is no end either.
        """
        leaving = self.deletion_seen_at is not None or self.gone_at is not None
        if any(container.state == "running" for container in self.containers):
            return None
        if not self.is_terminal and not leaving and not self._has_run_out():
            return None
        finished = self.last_finished_at
        held_past = any(c.in_back_off or c.end_unknown for c in self.containers)
        pending = any(c.state != "terminated" for c in self.containers if c.kind is not ContainerKind.INIT)
        if finished is not None and not held_past and (self.is_terminal or not pending):
            return finished
        # It held its devices beyond its last run, or never ran: over when it was seen to be over, unless a deletion
        # brought that about.
        seen = self.terminal_seen_at
        if seen is not None and (self.deletion_seen_at is None or seen < self.deletion_seen_at):
            return seen if finished is None else max(seen, finished)
        return None

    def _has_run_out(self) -> bool:
        """Every ordinary container ended and its restart policy does not start it again; sidecars ended
        too."""
        rest = [container for container in self.containers if container.kind is not ContainerKind.INIT]
        return bool(rest) and all(
            c.state == "terminated"
            and (
                c.kind is ContainerKind.SIDECAR
                or c.restart_policy == "Never"
                or (c.restart_policy == "OnFailure" and c.exit_code == 0)
            )
            for c in rest
        )

    @property
    def end(self) -> PodEnd | None:
        """When it stopped holding its devices; None while it holds them."""
        stopped = self.stopped_at
        if stopped is not None:
            seen = min((at for at in (self.terminal_seen_at, self.gone_at) if at is not None), default=None)
            # A node whose clock is far ahead would be paid for until its clock's time comes.
            stopped = seen if seen is not None and stopped > seen + CLOCK_TOLERANCE else stopped
            return PodEnd(stopped, stopped)
        if self.gone_at is None:
            return None
        if self.gone_inferred_after is None:
            return PodEnd(self.gone_at, self.gone_at)
        signs = (self.gone_inferred_after, self.scheduled_at, self.started_at, self.last_finished_at)
        return PodEnd(min(self.gone_at, max(sign for sign in signs if sign)), self.gone_at)


# --- merging ---


def merge(old: PodEvidence, new: PodEvidence) -> PodEvidence:
    """Both sights of one pod as one. Commutative, associative, idempotent. Raises ValueError for two uids."""
    if old.uid != new.uid:
        raise ValueError(f"{old.uid} and {new.uid} are two pods; evidence is merged by uid")
    latest, other = (new, old) if _rank(new) >= _rank(old) else (old, new)
    before = {container.name: container for container in other.containers}
    gone_at, inferred_after = _merge_gone(old, new)
    return replace(
        latest,
        containers=tuple(_merge_container(c, before.get(c.name)) for c in latest.containers),
        first_seen_at=min(old.first_seen_at, new.first_seen_at),
        last_seen_at=max(old.last_seen_at, new.last_seen_at),
        created_at=_earliest(old.created_at, new.created_at),
        scheduled_at=_earliest(old.scheduled_at, new.scheduled_at),
        terminal_seen_at=_earliest(old.terminal_seen_at, new.terminal_seen_at),
        deletion_seen_at=_earliest(old.deletion_seen_at, new.deletion_seen_at),
        gone_at=gone_at,
        gone_inferred_after=inferred_after,
    )


def merge_all(sights: Iterable[PodEvidence]) -> dict[str, PodEvidence]:
    """Evidence by uid from any number of sights in any order."""
    known: dict[str, PodEvidence] = {}
    for sight in sights:
        known[sight.uid] = merge(known[sight.uid], sight) if sight.uid in known else sight
    return known


def missing(pod: PodEvidence, *, relisted_at: datetime, last_proof: datetime) -> PodEvidence:
    """The pod was not in a list taken at `relisted_at`, and the last proof of it is `last_proof` (the end of
    the watch span before): it ended somewhere in between. An end that was seen, or is seen later, takes
    precedence."""
    proof = max(as_utc(last_proof), pod.last_seen_at)
    return merge(pod, replace(pod, gone_at=as_utc(relisted_at), gone_inferred_after=min(proof, as_utc(relisted_at))))


def _rank(pod: PodEvidence) -> tuple[int, str]:
    """Later state wins; equal versions hold equal state, and the text only settles what should not occur."""
    return pod.resource_version, repr(_state(pod))


def _state(pod: PodEvidence) -> tuple[Any, ...]:
    containers = tuple((c.name, c.kind, c.requests, c.state, c.reason, c.exit_code) for c in pod.containers)
    return (pod.phase, pod.node, pod.ready, pod.requests, containers, pod.annotations, pod.labels, pod.owner)


def _merge_container(latest: ContainerEvidence, other: ContainerEvidence | None) -> ContainerEvidence:
    if other is None:
        return latest
    return replace(
        latest,
        restarts=max(latest.restarts, other.restarts),
        first_started_at=_earliest(latest.first_started_at, other.first_started_at),
        last_finished_at=_latest(latest.last_finished_at, other.last_finished_at),
        back_off_after=_latest(latest.back_off_after, other.back_off_after),
    )


def _merge_gone(old: PodEvidence, new: PodEvidence) -> tuple[datetime | None, datetime | None]:
    """What was seen beats what was inferred; then the earlier sight, then the later proof."""
    known = [pod for pod in (old, new) if pod.gone_at is not None]
    if not known:
        return None, None
    best = min(
        known,
        key=lambda pod: (
            pod.gone_inferred_after is not None,
            pod.gone_at,
            -(pod.gone_inferred_after.timestamp() if pod.gone_inferred_after else 0.0),
        ),
    )
    return best.gone_at, best.gone_inferred_after


def _earliest(left: datetime | None, right: datetime | None) -> datetime | None:
    return right if left is None else left if right is None else min(left, right)


def _latest(left: datetime | None, right: datetime | None) -> datetime | None:
    return right if left is None else left if right is None else max(left, right)
