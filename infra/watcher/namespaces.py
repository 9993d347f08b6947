"""What a batch of namespaces does to the rows, and to the claims that follow labels and names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from infra.models import Cluster, NamespaceSight
from infra.namespace_reading import NamespaceFacts
from infra.services.changes import Changes
from infra.services.following import Follow
from infra.services.kept_labels import kept_labels
from portal.kernel.clock import format_rfc3339
from portal.kernel.workqueue import Mark


def store_namespaces(
    cluster: Cluster,
    sights: Iterable[NamespaceFacts],
    changes: Changes,
    *,
    listed: frozenset[str] | None = None,
    listed_at: datetime | None = None,
    last_proof: datetime | None = None,
) -> set[Mark]:
    """Bring the rows up to date, one sight after the other, and have the claims follow each of them.

    Args:
        changes: the cluster's locked counter.
        listed: uids of a complete list taken at ``listed_at``; what is not in it has gone since ``last_proof``.
    """
    kept = kept_labels()
    follow = Follow.of(cluster, changes)
    rows = {row.uid: row for row in NamespaceSight.objects.filter(cluster=cluster).select_for_update()}
    for sight in sights:
        row = rows.get(sight.uid)
        if row is None:
            row = rows[sight.uid] = NamespaceSight(
                cluster=cluster, uid=sight.uid, name=sight.name, created_at=sight.created_at,
                first_seen_at=sight.seen_at,
            )  # fmt: skip
        changed = _take(row, sight, kept)
        if changed is None:
            continue
        row.save()
        if changed:
            follow.namespace(row, at=sight.seen_at)
    if listed is not None and listed_at is not None:
        for row in rows.values():
            if row.uid not in listed and row.gone_at is None:
                row.gone_at, row.gone_inferred_after = listed_at, last_proof or row.first_seen_at
                row.save()
                follow.namespace(row, at=listed_at)
    return follow.marks()


def _take(row: NamespaceSight, sight: NamespaceFacts, kept: Sequence[str]) -> bool | None:
    """Put what was seen into the row; False where that changes but its version, None where it is older than the row."""
    fresh = row._state.adding
    if not fresh and sight.resource_version < int(row.resource_version or 0):
        return None
    before = (row.labels, row.labels_since, row.kept, row.gone_at)
    labels = {key: value for key, value in sight.labels if key in kept}
    since = {key: at for key, at in row.labels_since.items() if key in kept}
    for key in kept:
        if key in row.kept and row.labels.get(key) != labels.get(key):
            since[key] = format_rfc3339(sight.seen_at)
    row.labels, row.labels_since, row.kept = labels, since, list(kept)
    row.resource_version = str(sight.resource_version)
    if sight.deleted and row.gone_at is None:
        row.gone_at, row.gone_inferred_after = sight.seen_at, sight.unwatched_since
    return fresh or before != (row.labels, row.labels_since, row.kept, row.gone_at)


def live_namespaces(cluster_id: UUID) -> Sequence[tuple[str, str, str]]:
    """("", name, uid) of the namespaces that are thought to be there."""
    rows = NamespaceSight.objects.filter(cluster_id=cluster_id, gone_at__isnull=True)
    return [("", name, uid) for name, uid in rows.values_list("name", "uid")]
