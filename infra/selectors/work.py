"""The work queue, read: what waits, what fails, narrowed by kind, cluster, tenant and state."""

from __future__ import annotations

from uuid import UUID

from django.db import models
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from portal.kernel.models import WorkItem


class WorkState(models.TextChoices):
    """How an item stands; one may be in several."""

    OPEN = "open", "all that wait or are worked on"
    FAILING = "failing", "failed at least once"
    STALLED = "stalled", "failed again and again"
    DUE = "due", "due now"
    LEASED = "leased", "worked on now"


_NOT_HELD = Q(lease_until__isnull=True) | Q(lease_until__lt=Now())
_OF_STATE = {
    WorkState.OPEN: Q(next_attempt_at__isnull=False) | Q(lease_until__isnull=False),
    WorkState.FAILING: Q(attempts__gt=0) & (Q(next_attempt_at__isnull=False) | Q(lease_until__isnull=False)),
    WorkState.STALLED: Q(stalled_at__isnull=False),
    WorkState.DUE: Q(next_attempt_at__lte=Now()) & _NOT_HELD,
    WorkState.LEASED: Q(lease_until__gte=Now()),
}


def work_items(
    *, state: str = WorkState.OPEN, kind: str = "", cluster_id: UUID | None = None, tenant_id: UUID | None = None
) -> QuerySet[WorkItem]:
    """Items, the most failures first, then the longest due."""
    rows = WorkItem.objects.filter(_OF_STATE[WorkState(state)])
    if kind:
        rows = rows.filter(kind=kind)
    if cluster_id is not None:
        rows = rows.filter(cluster_id=cluster_id)
    if tenant_id is not None:
        rows = rows.filter(tenant_id=tenant_id)
    return rows.order_by("-attempts", "next_attempt_at", "id")
