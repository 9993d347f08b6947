"""The timeline of a deployment: what happened, for people. Repeats count up instead of piling up."""

from __future__ import annotations

from django.db.models import F

from portal.kernel.clock import utcnow
from tenants.models import DeploymentEvent, ModelDeployment


def event_add(
    deployment: ModelDeployment,
    reason: str,
    message: str,
    *,
    replica_index: int | None = None,
    generation: int | None = None,
) -> None:
    """Add a step to the timeline, within the caller's scope and transaction.

    A step that says the same as the last one of that replica is counted, not added.
    """
    now = utcnow()
    last = (
        DeploymentEvent.objects.filter(
            tenant_id=deployment.tenant_id, deployment=deployment, replica_index=replica_index
        )
        .order_by("-last_at", "-id")
        .first()
    )
    if last is not None and (last.reason, last.message) == (reason, message):
        DeploymentEvent.objects.filter(pk=last.pk).update(last_at=now, count=F("count") + 1)
        return
    DeploymentEvent.objects.create(
        tenant_id=deployment.tenant_id,
        deployment=deployment,
        replica_index=replica_index,
        reason=reason[:60],
        message=message,
        generation=deployment.generation if generation is None else generation,
        first_at=now,
        last_at=now,
    )
