"""What our credentials may do on a connected cluster: stored, and asked for again."""

from __future__ import annotations

from datetime import datetime

from infra.models import Cluster, PodObservation
from infra.permissions import require_platform_admin
from infra.rights import RightsReport
from infra.workloads import Known
from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.problems import Conflict
from portal.kernel.scoping import system_scope


def cluster_check_rights(*, cluster: Cluster, actor: Actor) -> Cluster:
    """Have the rights asked for at once: the cluster's probe does it and writes the condition ``RightsComplete``.

    Raises:
        Forbidden: the actor is no platform-admin. Conflict: the cluster was abandoned.
    """
    require_platform_admin(actor, "cluster_check_rights", object_kind="cluster", object_name=cluster.slug)
    with system_scope("rights of a cluster"):
        row = Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        if row.abandoned_at is not None:
            raise Conflict(f"Cluster {row.slug} was abandoned; its credentials are gone.")
        row.rights_checked_at = None
        row.save(update_fields=["rights_checked_at"])
        audit.record(
            "cluster_check_rights", actor=actor, tenant_id=None, object_kind="cluster", object_id=row.pk,
            object_name=row.slug,
        )  # fmt: skip
        workqueue.mark("cluster", row.pk, cluster_id=row.pk)
    return row


def rights_store(row: Cluster, report: RightsReport, *, at: datetime) -> None:
    """Put a report into a locked row, which the caller saves. Where the optional rights have come, what they are for is
    read now."""
    row.rights, row.rights_checked_at = report.dump(), at
    if not report.lacking:
        PodObservation.objects.filter(
            cluster=row, workload_known=Known.OWNER_NOT_READABLE.value, gone_at__isnull=True
        ).update(workload_known=Known.OWNER_NOT_READ.value)  # fmt: skip
