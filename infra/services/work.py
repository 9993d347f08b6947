"""Items of the work queue, looked after by hand: for whoever is on call."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction

from infra.permissions import require_platform_admin
from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.models import WorkItem
from portal.kernel.problems import NotFound


def work_item_retry(*, item_id: UUID, actor: Actor) -> WorkItem:
    """Have an item looked at now, whatever its back-off says: its failures are counted from none again.

    A worker that holds it goes on; the item is then looked at once more when it has finished.

    Raises:
        NotFound: there is no such item. Forbidden: the actor is no platform-admin.
    """
    require_platform_admin(actor, "work_item_retry", object_kind="work item", object_name=str(item_id))
    with transaction.atomic():
        item = WorkItem.objects.filter(pk=item_id).first()
        if item is None:
            raise NotFound("There is no such item.")
        workqueue.mark(item.kind, item.object_id, cluster_id=item.cluster_id, tenant_id=item.tenant_id)
        audit.record(
            "work_item_retry",
            actor=actor,
            tenant_id=item.tenant_id,
            object_kind=item.kind,
            object_id=item.object_id,
            object_name="",
            before={"attempts": item.attempts, "last_error": item.last_error},
        )
        item.refresh_from_db()
        return item
