"""What a batch of pods does to the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings

from infra.evidence import PodEvidence, merge, merge_all, missing
from infra.holdings import dump_holds, held_by
from infra.models import Cluster, PodObservation
from infra.names import LABEL_REPLICA, is_ours
from infra.owners import Owned, replica_owners
from infra.pod_reading import dump_evidence, load_evidence
from infra.services.changes import Changes
from infra.services.owner_links import fill_workload, links_read
from portal.kernel.workqueue import Mark

# Seeing the same again moves these; it is no change that anybody has to act on.
_SIGHT_ONLY = frozenset({"last_seen_at", "resource_version"})
_FIELDS = (
    "namespace",
    "name",
    "node_name",
    "phase",
    "ready",
    "deployment_id",
    "replica_id",
    "evidence",
    "holds",
    "scheduled_at",
    "started_at",
    "ended_at",
    "gone_at",
    "gone_inferred_after",
    "resource_version",
    "workload_kind",
    "workload_name",
    "workload_known",
    "queue",
    "label_cost_code",
    "first_seen_at",
    "changed_seq",
)


def concerns_us(pod: PodEvidence) -> bool:
    """Whether the pod is kept: it asks for accelerators, or it is one of ours."""
    return pod.asks_for_gpus or is_ours(dict(pod.labels)) or claimed_replica(pod) is not None


def cost_code_labels() -> frozenset[str]:
    """The pod label that says a cost code, where one was configured."""
    return frozenset(filter(None, [settings.AIF_COST_CODE_LABEL]))


def claimed_replica(pod: PodEvidence) -> UUID | None:
    """The replica that the pod's label names. Anybody may write a label: see :mod:`infra.owners`."""
    try:
        return UUID(pod.label(LABEL_REPLICA))
    except ValueError:
        return None


def store_pods(
    cluster: Cluster,
    sights: Iterable[PodEvidence],
    changes: Changes,
    *,
    listed: frozenset[str] | None = None,
    listed_at: datetime | None = None,
    last_proof: datetime | None = None,
    source: str = "watch",
) -> set[Mark]:
    """Merge sights into the cluster's rows; the answer is what must be looked at because of it.

    Args:
        changes: the cluster's locked counter.
        listed: uids of a complete list taken at ``listed_at``; rows of pods that were there at ``last_proof`` (None:
            when they were last seen) and are not in it have ended in between.
        source: of rows that are new.
    """
    news = merge_all(sights)
    wanted = PodObservation.objects.filter(cluster=cluster)
    if listed is None:
        wanted = wanted.filter(uid__in=list(news))
    else:
        wanted = wanted.filter(gone_at__isnull=True) | wanted.filter(uid__in=list(news))
    rows = {row.uid: row for row in wanted.order_by("uid").select_for_update()}
    merged: dict[str, PodEvidence] = {}
    for uid, sight in news.items():
        merged[uid] = merge(load_evidence(rows[uid].evidence), sight) if uid in rows else sight
    if listed is not None and listed_at is not None:
        for uid, row in rows.items():
            if uid not in listed and uid not in news and row.gone_at is None:
                known = load_evidence(row.evidence)
                merged[uid] = missing(known, relisted_at=listed_at, last_proof=last_proof or known.last_seen_at)
    return _write(cluster, rows, merged, changes, source)


def _write(
    cluster: Cluster,
    rows: Mapping[str, PodObservation],
    merged: Mapping[str, PodEvidence],
    changes: Changes,
    source: str,
) -> set[Mark]:
    links = links_read(cluster.pk, {pod.owner.uid for pod in merged.values() if pod.owner})
    owned = replica_owners(
        cluster.pk,
        {(pod.namespace, replica) for pod in merged.values() if (replica := claimed_replica(pod)) is not None},
    )
    fresh: list[PodObservation] = []
    stale: list[PodObservation] = []
    marks: set[Mark] = set()
    for uid in sorted(merged):
        pod, row = merged[uid], rows.get(uid)
        evidence = dump_evidence(pod)
        if row is None:
            row = PodObservation(cluster=cluster, uid=uid, source=source)
            fresh.append(row)
        elif row.evidence == evidence:
            continue
        else:
            stale.append(row)
        if row.changed_seq == 0 or _said(row.evidence) != _said(evidence):
            row.changed_seq = changes.draw()
            marks.add(Mark("metering", cluster.pk, cause="watch"))
        _fill(row, pod, evidence, owned)
        fill_workload(row, pod, links)
        if row.replica_id is not None and row.changed_seq > changes.value:
            tenant_id = owned[pod.namespace, row.replica_id].tenant_id
            marks.add(Mark("replica", row.replica_id, cluster.pk, tenant_id, "watch"))
    PodObservation.objects.bulk_create(fresh, batch_size=500)
    PodObservation.objects.bulk_update(stale, _FIELDS, batch_size=200)
    return marks


def _said(evidence: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in evidence.items() if key not in _SIGHT_ONLY}


def _fill(
    row: PodObservation,
    pod: PodEvidence,
    evidence: dict[str, Any],
    owned: Mapping[tuple[str, UUID], Owned],
) -> None:
    replica = claimed_replica(pod)
    owner = owned.get((pod.namespace, replica)) if replica else None
    end = pod.end
    row.namespace, row.name, row.node_name = pod.namespace, pod.name, pod.node
    row.phase, row.ready = pod.phase[:12], pod.ready
    row.replica_id = replica if owner else None
    row.deployment_id = owner.deployment_id if owner else None
    row.evidence, row.holds = evidence, dump_holds(held_by(pod))
    row.scheduled_at, row.started_at = pod.scheduled_at, pod.started_at
    row.ended_at = end.proved if end else None
    row.gone_at, row.gone_inferred_after = pod.gone_at, pod.gone_inferred_after
    row.resource_version, row.first_seen_at = str(pod.resource_version), pod.first_seen_at
    row.label_cost_code = pod.label(settings.AIF_COST_CODE_LABEL) if settings.AIF_COST_CODE_LABEL else ""


def live_pods(cluster_id: UUID) -> Sequence[tuple[str, str, str]]:
    """(namespace, name, uid) of the pods that are thought to be there."""
    return list(
        PodObservation.objects.filter(cluster_id=cluster_id, gone_at__isnull=True).values_list(
            "namespace", "name", "uid"
        )
    )
