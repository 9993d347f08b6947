"""Waking deployments that wait for a place, when something was freed, raised or added."""

from __future__ import annotations

from uuid import UUID

from portal.kernel import workqueue
from tenants.models import ModelDeployment

WAKE_LIMIT = 500
"""How many are woken at a time; the others are looked at by themselves within a minute or so."""


def deployments_wake(*, tenant_id: UUID | None = None) -> int:
    """Mark waiting deployments, the oldest first; of one tenant (its quota changed), or of all (capacity came free).

    Call it inside a system scope and the transaction that freed something. Returns how many were marked.
    """
    waiting = ModelDeployment.objects.filter(waiting_since__isnull=False, deleted_at__isnull=True)
    if tenant_id is not None:
        waiting = waiting.filter(tenant_id=tenant_id)
    rows = waiting.order_by("created_at", "id").values_list("pk", "tenant_id")[:WAKE_LIMIT]
    # Work items are worked on by the time they became due, then by their id, which is as old as the deployment:
    # marked in one transaction, the oldest deployment is the first to ask again. The cause is "spec", because a
    # back-off must not hold up who waits for exactly this.
    marks = [workqueue.Mark("deployment", pk, tenant_id=owner) for pk, owner in rows]
    workqueue.mark_many(marks)
    return len(marks)
