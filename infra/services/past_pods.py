"""Rebuilt pods as evidence rows of their own, apart from what was watched. In the caller's transaction.

A rebuilt pod's row has the source ``retroactive`` and the uid ``past:<uid>``: the watch finds and writes rows by the
uid alone, and never meets one. The row speaks of the time before the watch's begin only (metering ends it there). Of a
pod that the watch has seen, too, the Kubernetes API itself proves when it was bound and started: then its row holds the
watch's evidence, and history adds only what the API forgets (earlier starts of containers that were restarted). After
more of them than one the first is not known for certain, and the start's error reaches back to when the pod was bound.

``PodObservation.past``: ``{"pod": PastPod as JSON, "api": bool, "start_error_ms", "end_error_ms"}``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db.models import Q

from infra.evidence import PodEvidence
from infra.models import Cluster, PodObservation
from infra.models.evidence import EvidenceSource
from infra.pod_reading import dump_evidence, load_evidence
from infra.retroactive.lives import Life, life_of
from infra.retroactive.pods import PastPod, dump_pod, load_pod, merge
from infra.services.changes import Changes
from infra.services.owner_links import WORKLOAD_FIELDS, fill_workload
from portal.kernel.clock import epoch_ms, from_epoch_ms

PREFIX = "past:"
_SAME_POD = timedelta(seconds=1)
_FIELDS = (
    "namespace", "name", "node_name", "phase", "evidence", "past", "scheduled_at", "started_at", "ended_at", "gone_at",
    "gone_inferred_after", "first_seen_at", "deployment_id", "label_cost_code", "changed_seq", *WORKLOAD_FIELDS,
)  # fmt: skip


def past_uid(key: str) -> str:
    """The uid of a rebuilt pod's row, from the pod's uid (or what identifies it in its place)."""
    return PREFIX + (key if len(key) <= 58 and "/" not in key else hashlib.sha256(key.encode()).hexdigest()[:40])


def store_past_pods(
    cluster: Cluster,
    pods: Iterable[PastPod],
    changes: Changes,
    *,
    until: datetime,
    step: int,
    gaps: Sequence[tuple[int, int]],
    also_watched: bool = False,
    moved_from: datetime | None = None,
) -> list[PodObservation]:
    """Merge what a window told into the rows; the answer is all rows that were looked at.

    Args:
        until: the watch's begin.
        step, gaps: ms; see :func:`infra.retroactive.lives.life_of`.
        also_watched: take in all pods that were bound before the watch began, with what the API proves of them.
        moved_from: rebuilt time began here so far, and now begins earlier: what was there then is looked at again.
    """
    watched = _Watched(cluster, until)
    wanted: dict[str, PastPod | None] = {}
    for sight in pods:
        named = watched.named(sight)
        wanted[past_uid(named.key)] = named
    if also_watched:
        for uid in watched.uids():
            wanted.setdefault(past_uid(uid), None)
    rows = {row.uid: row for row in _rows(cluster, wanted, gaps, moved_from, step)}
    fresh: list[PodObservation] = []
    stale: list[PodObservation] = []
    for uid in sorted(wanted.keys() | rows.keys()):
        known = rows.get(uid)
        both = _merged(known, wanted.get(uid))
        own_uid = both.uid if both else uid.removeprefix(PREFIX)
        api = watched.evidence(own_uid)
        if both is None and api is None:
            continue
        past, evidence = _life(both, api, uid=uid, step=step, gaps=gaps)
        body = dump_evidence(evidence)
        crossing = known is not None and moved_from is not None and _holds(known, moved_from)
        if known is not None and known.evidence == body and known.past == past and not crossing:
            continue
        row = known or PodObservation(cluster=cluster, uid=uid, source=EvidenceSource.RETROACTIVE)
        (fresh if known is None else stale).append(row)
        rows[uid] = row
        row.changed_seq = changes.draw()
        row.past, row.evidence = past, body
        _fill(row, evidence, until)
        watched.tell(own_uid, row)
    PodObservation.objects.bulk_create(fresh, batch_size=500)
    PodObservation.objects.bulk_update(stale, _FIELDS, batch_size=200)
    return list(rows.values())


def _merged(row: PodObservation | None, pod: PastPod | None) -> PastPod | None:
    """What the row's history and the window's say together."""
    told = row.past.get("pod") if row is not None and row.past else None
    known = load_pod(told) if told else None
    return merge(known, pod) if known and pod else known or pod


def _rows(
    cluster: Cluster,
    wanted: Mapping[str, object],
    gaps: Sequence[tuple[int, int]],
    moved_from: datetime | None,
    step: int,
) -> Iterable[PodObservation]:
    """The rows of these pods; those that reach over the edge that moves; and those that first appear after a gap."""
    which = Q(uid__in=list(wanted))
    if moved_from is not None:
        which |= Q(scheduled_at__lt=moved_from, ended_at__gt=moved_from)
    for _, right in gaps:
        near = timedelta(milliseconds=2 * step)
        which |= Q(first_seen_at__gte=from_epoch_ms(right) - near, first_seen_at__lte=from_epoch_ms(right) + near)
    rows = PodObservation.objects.filter(which, cluster=cluster, source=EvidenceSource.RETROACTIVE)
    return rows.order_by("uid").select_for_update()


def _holds(row: PodObservation, instant: datetime) -> bool:
    return bool(row.scheduled_at and row.scheduled_at < instant and row.ended_at and row.ended_at > instant)


def _life(
    pod: PastPod | None, api: PodEvidence | None, *, uid: str, step: int, gaps: Sequence[tuple[int, int]]
) -> tuple[dict[str, object], PodEvidence]:
    if api is None:
        assert pod is not None
        life = life_of(pod, uid=uid, step=step, gaps=gaps)
    else:
        proved = _proved(api, pod, uid)
        life = Life(proved, _forgotten(proved), 0)
    return {
        "pod": dump_pod(pod) if pod else None,
        "api": api is not None,
        "start_error_ms": life.start_error_ms,
        "end_error_ms": life.end_error_ms,
    }, life.evidence


def _proved(api: PodEvidence, pod: PastPod | None, uid: str) -> PodEvidence:
    """What the API says, with the first start of containers that it has forgotten since."""
    starts = {one.name: one.started for one in pod.containers} if pod else {}
    containers = []
    for container in api.containers:
        told = starts.get(container.name)
        first = container.first_started_at
        if told is not None and first is not None:
            first = min(first, from_epoch_ms(told))
        containers.append(replace(container, first_started_at=first))
    return replace(api, uid=uid, containers=tuple(containers))


def _forgotten(pod: PodEvidence) -> int:
    """How much earlier (ms) the pod may have started than anybody says.

    The API tells the start of a container's present and last run, and history those that it happened to look at: after
    more restarts than one, which was the first is not known.
    """
    started, bound = pod.started_at, pod.scheduled_at
    if started is None or bound is None or all(container.restarts < 2 for container in pod.containers):
        return 0
    return max(0, epoch_ms(started) - epoch_ms(bound))


def _fill(row: PodObservation, pod: PodEvidence, until: datetime) -> None:
    """The columns for finding rows. Nothing of the past is there now, so it has always ended: at the watch's begin
    where it was still there then."""
    end = pod.end
    row.namespace, row.name, row.node_name = pod.namespace, pod.name, pod.node
    row.phase, row.ready = pod.phase[:12], False
    row.scheduled_at, row.started_at = pod.scheduled_at or pod.started_at or pod.first_seen_at, pod.started_at
    row.ended_at = min(end.proved, until) if end else until
    row.gone_at, row.gone_inferred_after = min(end.at, until) if end else until, pod.gone_inferred_after
    row.resource_version, row.first_seen_at = "", pod.first_seen_at
    fill_workload(row, pod, {})


class _Watched:
    """What the watch knows of pods that were bound before it began."""

    def __init__(self, cluster: Cluster, until: datetime) -> None:
        rows = (
            PodObservation.objects.filter(cluster=cluster, scheduled_at__lt=until)
            .exclude(source=EvidenceSource.RETROACTIVE)
            .exclude(node_name="")
        )
        self._rows = {row.uid: row for row in rows}
        self._names: dict[tuple[str, str], list[PodObservation]] = {}
        for row in self._rows.values():
            self._names.setdefault((row.namespace, row.name), []).append(row)

    def uids(self) -> Iterable[str]:
        """Of those pods."""
        return self._rows.keys()

    def evidence(self, uid: str) -> PodEvidence | None:
        """What was watched of the pod; None where it was never seen."""
        row = self._rows.get(uid)
        return load_evidence(row.evidence) if row else None

    def tell(self, uid: str, row: PodObservation) -> None:
        """Put into the row what the watch knows of the pod beside its evidence: its deployment, workload, cost code."""
        own = self._rows.get(uid)
        if own is not None:
            for name in ("deployment_id", "label_cost_code", *WORKLOAD_FIELDS):
                setattr(row, name, getattr(own, name))

    def named(self, pod: PastPod) -> PastPod:
        """A pod without a uid that is one that the watch knows: of its name, and made at the same time."""
        if pod.uid or pod.created is None:
            return pod
        for row in self._names.get((pod.namespace, pod.name), ()):
            made = load_evidence(row.evidence).created_at
            if made is not None and abs(made - from_epoch_ms(pod.created)) <= _SAME_POD:
                return replace(pod, uid=row.uid)
        return pod


def held(rows: Iterable[PodObservation], until: datetime) -> list[tuple[str, int, int]]:
    """(node, from, for certain until) of rebuilt pods, ms."""
    return [
        (row.node_name, epoch_ms(row.scheduled_at), epoch_ms(min(row.ended_at, until)))
        for row in rows
        if row.node_name and row.scheduled_at and row.ended_at and row.scheduled_at < row.ended_at
    ]
