"""When a pod held its devices, in which phase, and on whose account. Pure: no Django.

From being bound to its node a pod holds what it asked for. Until the first container starts that is
*starting*: the platform carries it for at most ten minutes a pod (a setting), then whoever runs the pod. Then
*held*, until no container runs or will run again. While its node is *lost* nobody's clock runs: the card is
unavailable. Where only the absence of a pod was seen, the time after the last proof of it is *unattributed*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from billing.metering.holdings import Holding
from infra.evidence import PodEvidence
from portal.kernel.clock import Interval, clip, intersect, split_at, subtract, union


class Phase(StrEnum):
    """What the pod was doing with the card."""

    STARTING = "starting"
    HELD = "held"
    LOST = "lost"
    UNATTRIBUTED = "unattributed"

    @property
    def is_certain(self) -> bool:
        """Whether the pod was there for sure."""
        return self is not Phase.UNATTRIBUTED


class Bucket(StrEnum):
    """Where a card's time goes; the six together are its time in service. Values of
    `billing.models.Bucket`."""

    TENANTS = "tenants"
    IDLE = "idle"
    STARTING = "starting"
    OVERHEAD = "overhead"
    UNAVAILABLE = "unavailable"
    UNATTRIBUTED = "unattributed"


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of the metering. `starting_limit`: how long the platform carries a pod that has not started
    yet."""

    starting_limit: timedelta = timedelta(minutes=10)
    system_namespaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Claim:
    """The pod's namespace was that tenant's from `start` until `end` (None: still is)."""

    tenant: str
    start: datetime
    end: datetime | None = None
    cost_code: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else has to be known to date a pod's holding.

    `until`: the watermark: nothing later is known for certain, so nothing later is metered.
    `since`: when watching of the cluster began; a pod is metered from then, however old it is.
    `lost`: intervals in which its node was lost, each from the Lease's last renewal until Ready again.
    `waits`: intervals in which the platform itself kept pods from starting.
    `claims`: who owned its namespace; time outside of all of them is unattributed.
    """

    until: datetime
    since: datetime | None = None
    lost: tuple[Interval, ...] = ()
    waits: tuple[Interval, ...] = ()
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch in one phase, one bucket, on one account ("" where nobody's)."""

    interval: Interval
    phase: Phase
    bucket: Bucket
    tenant: str = ""
    cost_code: str = ""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A pod's segments in order, without gap or overlap.

    `open`: it still holds its devices at the watermark. `inferred`: its end was concluded, not seen.
    `first_day`: it was bound before watching began. `clock_skew`: the cluster's clocks contradict each other,
    and an end before the start was taken for the start.
    """

    segments: tuple[Segment, ...] = ()
    bound_at: datetime | None = None
    running_at: datetime | None = None
    open: bool = False
    inferred: bool = False
    first_day: bool = False
    clock_skew: bool = False


@dataclass(frozen=True, slots=True)
class Allocation:
    """One device of one pod through the pod's life. Key: (pod uid, resource, ordinal) within a cluster."""

    pod_uid: str
    namespace: str
    pod: str
    node: str
    holding: Holding
    life: Lifetime

    @property
    def key(self) -> tuple[str, str, int]:
        return self.pod_uid, self.holding.resource, self.holding.ordinal


def allocations(
    pod: PodEvidence, held: Iterable[Holding], around: Surroundings, rules: Rules = Rules()
) -> tuple[Allocation, ...]:
    """The pod's devices with their segments; empty for a pod that never was bound."""
    life = lifetime(pod, around, rules)
    if not life.segments:
        return ()
    return tuple(Allocation(pod.uid, pod.namespace, pod.name, pod.node, holding, life) for holding in held)


def lifetime(pod: PodEvidence, around: Surroundings, rules: Rules = Rules()) -> Lifetime:
    """The segments of a pod up to the watermark. Depends on the evidence alone, not on the order it came
    in."""
    bound = _bound_at(pod)
    if bound is None:
        return Lifetime()
    end = pod.end
    begin = max(bound, around.since) if around.since else bound
    skewed = end is not None and end.at < bound
    proved = min(around.until, end.proved if end else around.until)
    at = min(around.until, end.at if end else around.until)
    life = Lifetime(
        bound_at=bound,
        running_at=pod.started_at,
        open=end is None or end.at > around.until,
        inferred=end is not None and end.inferred and around.until > end.proved,
        first_day=around.since is not None and bound < around.since,
        clock_skew=skewed,
    )
    if begin >= at:
        return life
    parts = _phases(pod, begin, max(begin, proved), at, around)
    return replace(life, segments=_join(segment for part in parts for segment in _account(pod, part, around, rules)))


def _bound_at(pod: PodEvidence) -> datetime | None:
    """From PodScheduled, however early a container says that it started (the node's clock may be far behind);
    without the condition what else proves it."""
    if pod.scheduled_at is not None:
        return pod.scheduled_at
    if pod.started_at is not None:
        return max(pod.started_at, pod.created_at) if pod.created_at else pod.started_at
    return pod.first_seen_at if pod.node else None


@dataclass(frozen=True, slots=True)
class _Part:
    interval: Interval
    phase: Phase
    carried: bool = False  # by the platform


def _phases(pod: PodEvidence, begin: datetime, proved: datetime, at: datetime, around: Surroundings) -> Iterable[_Part]:
    started = min(max(pod.started_at or proved, begin), proved)
    lost = around.lost
    for part in subtract(Interval(begin, started), lost):
        yield from _starting(part, around.waits)
    for phase, whole in ((Phase.HELD, Interval(started, proved)), (Phase.UNATTRIBUTED, Interval(proved, at))):
        for part in subtract(whole, lost):
            yield _Part(part, phase)
    for part in intersect([Interval(begin, at)], lost):
        yield _Part(part, Phase.LOST)


def _starting(part: Interval, waits: Sequence[Interval]) -> Iterable[_Part]:
    for piece in split_at(part, [edge for wait in waits for edge in (wait.start, wait.end)]):
        yield _Part(piece, Phase.STARTING, carried=any(piece.overlaps(wait) for wait in waits))


def _account(pod: PodEvidence, part: _Part, around: Surroundings, rules: Rules) -> Iterable[Segment]:
    """The part cut at the limit of starting and where the namespace changes hands, each piece with its
    bucket."""
    if part.phase is Phase.LOST:
        yield Segment(part.interval, Phase.LOST, Bucket.UNAVAILABLE)
        return
    cuts = [instant for claim in around.claims for instant in (claim.start, claim.end) if instant is not None]
    if part.phase is Phase.STARTING and not part.carried:
        cuts.append(_carried_until(pod, part, around, rules))
    for interval in split_at(part.interval, cuts):
        claim = _claim_at(around.claims, interval.start)
        tenant, cost_code = (claim.tenant, claim.cost_code) if claim else ("", "")
        if part.phase is Phase.UNATTRIBUTED:
            yield Segment(interval, part.phase, Bucket.UNATTRIBUTED, tenant, cost_code)
        elif claim is None and pod.namespace in rules.system_namespaces:
            # No claim stands on one: while one stood it was no system namespace, whatever it has become since.
            yield Segment(interval, part.phase, Bucket.OVERHEAD)
        elif part.phase is Phase.STARTING and (
            part.carried or interval.start < _carried_until(pod, part, around, rules)
        ):
            yield Segment(interval, part.phase, Bucket.STARTING, tenant, cost_code)
        elif claim is None:
            yield Segment(interval, part.phase, Bucket.UNATTRIBUTED)
        else:
            yield Segment(interval, part.phase, Bucket.TENANTS, tenant, cost_code)


def _carried_until(pod: PodEvidence, part: _Part, around: Surroundings, rules: Rules) -> datetime:
    """When, within this part of starting, the platform has carried the pod for as long as it does.

    Time on a lost node and waits that the platform caused do not count against the limit; time before
    watching began does.
    """
    bound = _bound_at(pod)
    assert bound is not None  # a part of starting has a beginning
    if part.interval.start <= bound:
        return bound + rules.starting_limit
    spent = sum(
        (
            piece.end - piece.start
            for piece in subtract(Interval(bound, part.interval.start), around.lost + around.waits)
        ),
        timedelta(),
    )
    return part.interval.start + max(timedelta(), rules.starting_limit - spent)


def _claim_at(claims: Sequence[Claim], instant: datetime) -> Claim | None:
    """The claim in force; of several (a mistake that the registry refuses) the one that began last."""
    standing = [c for c in claims if c.start <= instant and (c.end is None or instant < c.end)]
    return max(standing, key=lambda claim: claim.start, default=None)


def _join(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Sorted, and neighbours of the same account and phase made one."""
    joined: list[Segment] = []
    for segment in sorted(segments, key=lambda one: one.interval):
        last = joined[-1] if joined else None
        if last and last.interval.end == segment.interval.start and replace(last, interval=segment.interval) == segment:
            joined[-1] = replace(last, interval=Interval(last.interval.start, segment.interval.end))
        else:
            joined.append(segment)
    return tuple(joined)


def lost_intervals(unknown: Iterable[tuple[datetime, datetime | None]], until: datetime) -> tuple[Interval, ...]:
    """Times at which a node was lost, from pairs (Lease's last renewal, Ready again or None while it is
    lost)."""
    spans = (
        Interval(renewed, max(renewed, min(ready or until, until))) for renewed, ready in unknown if renewed < until
    )
    return tuple(union(spans))


def held_ms(allocation: Allocation, window: Interval, bucket: Bucket = Bucket.TENANTS) -> int:
    """Milliseconds within the window that count in that bucket."""
    parts = (clip(segment.interval, window) for segment in allocation.life.segments if segment.bucket is bucket)
    return sum(part.ms for part in parts if part is not None)
