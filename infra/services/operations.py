"""The one switch that stops all writing to all clusters, and back."""

from __future__ import annotations

from django.db import transaction

from infra.concerned import concerned_by
from infra.models import WriteStop
from infra.permissions import require_platform_admin
from infra.selectors.clusters import cluster_list
from infra.services.clusters import SHORTEST_REASON, WORK_KIND
from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.models import WorkItem
from portal.kernel.problems import Conflict, Invalid

_KIND, _NAME = "write-stop", "all clusters"


def writes_stop(*, reason: str, actor: Actor) -> WriteStop:
    """From the commit on no write leaves for any cluster: each asks for this row first. Reading and metering go on.

    Args:
        reason: at least ten characters; everybody on the platform's pages reads it.

    Raises:
        Invalid: no reason. Conflict: it is stopped already (by whom and why is said). Forbidden: no platform-admin.
    """
    require_platform_admin(actor, "writes_stop", object_kind=_KIND, object_name=_NAME)
    reason = " ".join(reason.split())
    if len(reason) < SHORTEST_REASON:
        raise Invalid.field("/reason", f"Say in at least {SHORTEST_REASON} characters why all writing is stopped.")
    if len(reason) > 500:
        raise Invalid.field("/reason", "Say it in at most 500 characters.")
    with transaction.atomic():
        row, made = WriteStop.objects.get_or_create(
            singleton=True, defaults={"stopped_by": actor.label[:200], "reason": reason}
        )
        if not made:
            raise Conflict(f"All writing is stopped already, by {row.stopped_by}: {row.reason}")
        row.refresh_from_db()
        _record("writes_stop", actor, {"reason": reason})
        return row


def writes_resume(*, actor: Actor) -> None:
    """Write again. Whatever waits for a cluster is looked at now, whatever its back-off says.

    Raises:
        Conflict: writing is not stopped by this switch. Forbidden: no platform-admin.
    """
    require_platform_admin(actor, "writes_resume", object_kind=_KIND, object_name=_NAME)
    with transaction.atomic():
        row = WriteStop.objects.select_for_update().first()
        if row is None:
            raise Conflict("Writing is not stopped by this switch. AIF_STOP_WRITES is a setting of the processes.")
        before = {"stopped_by": row.stopped_by, "reason": row.reason, "stopped_at": row.stopped_at.isoformat()}
        row.delete()
        _record("writes_resume", actor, None, before)
        waiting = WorkItem.objects.filter(cluster_id__isnull=False, next_attempt_at__isnull=False)
        marks = [
            workqueue.Mark(kind, object_id, cluster_id, tenant_id)
            for kind, object_id, cluster_id, tenant_id in waiting.values_list(
                "kind", "object_id", "cluster_id", "tenant_id"
            )
        ]
        for cluster in cluster_list().filter(mode="manage", paused=False):
            marks += [workqueue.Mark(WORK_KIND, cluster.pk, cluster.pk), *concerned_by(cluster.pk)]
        workqueue.mark_many(marks)


def _record(verb: str, actor: Actor, after: dict[str, str] | None, before: dict[str, str] | None = None) -> None:
    audit.record(
        verb,
        actor=actor,
        tenant_id=None,
        object_kind=_KIND,
        object_id=None,
        object_name=_NAME,
        before=before,
        after=after,
    )
