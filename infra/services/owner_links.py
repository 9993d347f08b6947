"""Which workload a pod belongs to, as stored: from its evidence, and from what was read of its controller."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from uuid import UUID

from infra.evidence import Owner, PodEvidence
from infra.models import Cluster, OwnerSight, PodObservation
from infra.pod_reading import load_evidence
from infra.workloads import Known, Link, workload_of

WORKLOAD_FIELDS = ("workload_kind", "workload_name", "workload_known", "queue")


def links_read(cluster_id: UUID, uids: Collection[str]) -> dict[str, Link]:
    """Controller's uid → what was read of it, for those that were."""
    if not uids:
        return {}
    rows = OwnerSight.objects.filter(cluster_id=cluster_id, uid__in=uids)
    return {
        row.uid: Link(
            Owner(row.parent_kind, row.parent_name, "") if row.parent_kind else None,
            readable=row.state == OwnerSight.State.SEEN,
        )
        for row in rows
    }


def fill_workload(row: PodObservation, pod: PodEvidence, links: Mapping[str, Link]) -> None:
    """Put the workload of a pod into its row; nothing is saved."""
    found = workload_of(pod, links.get(pod.owner.uid) if pod.owner else None)
    row.workload_kind, row.workload_name = found.kind[:63], found.name[:253]
    row.workload_known, row.queue = found.known.value, found.queue[:253]


def owner_namespaces(cluster: Cluster, limit: int = 200) -> list[tuple[Owner, str]]:
    """(controller, namespace) of live pods whose controller was not read yet."""
    rows = PodObservation.objects.filter(
        cluster=cluster, workload_known=Known.OWNER_NOT_READ.value, gone_at__isnull=True
    ).order_by("first_seen_at")[: limit * 4]
    found: dict[str, tuple[Owner, str]] = {}
    for row in rows:
        owner = load_evidence(row.evidence).owner
        if owner is not None and owner.uid:
            found.setdefault(owner.uid, (owner, row.namespace))
    return list(found.values())[:limit]


def owner_links_store(cluster: Cluster, sights: Iterable[OwnerSight], *, at: datetime) -> int:
    """Store what was read of controllers, and set the workloads of their pods. Answers how many pods got one.

    No evidence changes, so nothing is metered again.
    """
    rows = list(sights)
    for row in rows:
        row.cluster, row.seen_at = cluster, at
    OwnerSight.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["cluster", "uid"],
        update_fields=["parent_kind", "parent_name", "state", "seen_at"],
    )  # fmt: skip
    links = links_read(cluster.pk, [row.uid for row in rows])
    pods = PodObservation.objects.filter(
        cluster=cluster,
        workload_known__in=[Known.OWNER_NOT_READ.value, Known.OWNER_NOT_READABLE.value],
        evidence__owner__uid__in=list(links),
    ).order_by("uid")
    stale = []
    for pod in pods.select_for_update():
        fill_workload(pod, load_evidence(pod.evidence), links)
        stale.append(pod)
    PodObservation.objects.bulk_update(stale, WORKLOAD_FIELDS, batch_size=200)
    return len(stale)
