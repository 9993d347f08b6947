"""Quota requests, the parts that can be moved, and the moves. Call these inside a scope."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from infra.models import Cluster
from tenants.models import AllotmentMove, QuotaRequest, Tenant, TenantNamespace

State = QuotaRequest.State
SHOWN_MOVES = 20


def requests_of(tenant: Tenant) -> QuerySet[QuotaRequest]:
    """A tenant's requests, the newest first."""
    return (
        QuotaRequest.objects.filter(tenant=tenant).select_related("gpu_type", "tenant").order_by("-created_at", "-id")
    )


def request_of(tenant: Tenant, request_id: UUID) -> QuotaRequest | None:
    """One of them."""
    return requests_of(tenant).filter(pk=request_id).first()


def requests_open() -> QuerySet[QuotaRequest]:
    """What waits for a decision, the oldest first: the platform's inbox."""
    rows = QuotaRequest.objects.filter(state=State.SUBMITTED).select_related("gpu_type", "tenant")
    return rows.order_by("submitted_at", "id")


def requests_decided() -> QuerySet[QuotaRequest]:
    """What was decided, or came to an end by itself; the latest first."""
    rows = QuotaRequest.objects.exclude(state__in=(State.DRAFT, State.SUBMITTED)).select_related("gpu_type", "tenant")
    return rows.order_by("-created_at", "-id")


def request_visible(request_id: UUID) -> QuotaRequest | None:
    """A request as the platform sees it: drafts are their tenant's own."""
    rows = QuotaRequest.objects.exclude(state=State.DRAFT).select_related("gpu_type", "tenant")
    return rows.filter(pk=request_id).first()


@dataclass(frozen=True)
class Place:
    """A namespace that cards can be handed over to, and its name on pages: ``cluster/namespace``."""

    cluster: Cluster
    namespace: str

    def __str__(self) -> str:
        return f"{self.cluster.slug}/{self.namespace}"


def places_of(tenant: Tenant) -> list[Place]:
    """The tenant's namespaces on managed clusters."""
    rows = TenantNamespace.objects.filter(
        tenant=tenant, deleting_at__isnull=True, cluster__mode=Cluster.Mode.MANAGE, cluster__abandoned_at__isnull=True
    ).select_related("cluster")
    return [Place(row.cluster, row.name) for row in rows.order_by("cluster__slug", "name")]


def moves_of(tenant: Tenant) -> QuerySet[AllotmentMove]:
    """A tenant's moves, the newest first."""
    return (
        AllotmentMove.objects.filter(tenant=tenant)
        .select_related("quota__gpu_type", "source__cluster", "goal__cluster")
        .order_by("-created_at", "-id")
    )
