"""Reading deployments: one tenant's, a page at a time; each answer takes a fixed number of queries."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db.models import Count, Q

from portal.kernel.clock import as_utc
from portal.kernel.problems import BadRequest, NotFound
from tenants.models import DeploymentEvent, ModelDeployment, ModelReplica, Tenant

PAGE_SIZE = 50
LARGEST_PAGE = 200
PHASES = ("Pending", "Waiting", "Progressing", "Ready", "Degraded", "Failed", "Stopped", "Deleting")
"""Every phase of a deployment, in the order of its life."""
TROUBLED = ("Degraded", "Failed")


@dataclass(frozen=True)
class DeploymentRow:
    """A deployment with its live replicas (their clusters loaded), by index."""

    deployment: ModelDeployment
    replicas: tuple[ModelReplica, ...]

    @property
    def clusters(self) -> tuple[str, ...]:
        """Slugs of the clusters it runs on, each once."""
        return tuple(sorted({replica.cluster.slug for replica in self.replicas}))


@dataclass(frozen=True)
class DeploymentPage:
    """Some deployments, the newest first; ``next_cursor`` is "" on the last page."""

    rows: tuple[DeploymentRow, ...]
    next_cursor: str = ""


@dataclass(frozen=True)
class DeploymentDetail:
    """All that a deployment's page shows of it."""

    deployment: ModelDeployment
    replicas: tuple[ModelReplica, ...]
    events: tuple[DeploymentEvent, ...] = field(default=())


def deployments_page(
    *, tenant: Tenant, cursor: str = "", limit: int = PAGE_SIZE, search: str = "", phase: str = ""
) -> DeploymentPage:
    """A page of the tenant's deployments, inside an open scope. Two queries, however many there are.

    Args:
        cursor: ``next_cursor`` of the page before.
        search: part of the name.
        phase: exactly this phase.

    Raises:
        BadRequest: the cursor is none of ours.
    """
    limit = max(1, min(limit, LARGEST_PAGE))
    rows = ModelDeployment.objects.filter(tenant=tenant, deleted_at__isnull=True)
    if search:
        rows = rows.filter(name__icontains=search)
    if phase:
        rows = rows.filter(phase=phase)
    if cursor:
        created_at, pk = _decode(cursor)
        rows = rows.filter(created_at__lte=created_at).filter(Q(created_at__lt=created_at) | Q(pk__lt=pk))
    # The text as it came and the explanation are large, and no list shows them.
    found = list(rows.defer("source", "explanation", "spec").order_by("-created_at", "-id")[: limit + 1])
    more, found = len(found) > limit, found[:limit]
    replicas = _replicas_of(tenant, [row.pk for row in found])
    page = tuple(DeploymentRow(row, tuple(replicas.get(row.pk, ()))) for row in found)
    return DeploymentPage(page, _encode(found[-1]) if more else "")


def deployment_get(*, tenant: Tenant, name: str) -> ModelDeployment:
    """The live deployment of that name, inside an open scope.

    Raises:
        NotFound: there is none.
    """
    row = ModelDeployment.objects.filter(tenant=tenant, name=name, deleted_at__isnull=True).first()
    if row is None:
        raise NotFound(f"Tenant {tenant.slug} has no deployment {name}.")
    row.tenant = tenant
    return row


def deployment_detail(*, tenant: Tenant, name: str, events: int = 100) -> DeploymentDetail:
    """A deployment with its replicas and the latest steps of its timeline (newest first). Three queries."""
    deployment = deployment_get(tenant=tenant, name=name)
    replicas = _replicas_of(tenant, [deployment.pk]).get(deployment.pk, [])
    timeline = DeploymentEvent.objects.filter(tenant=tenant, deployment=deployment).order_by("-last_at", "-id")
    return DeploymentDetail(deployment, tuple(replicas), tuple(timeline[:events]))


def deployments_by_phase(*, tenant: Tenant) -> dict[str, int]:
    """How many deployments are in which phase. One query."""
    rows = ModelDeployment.objects.filter(tenant=tenant, deleted_at__isnull=True).order_by()
    return {row["phase"]: row["count"] for row in rows.values("phase").annotate(count=Count("id"))}


def deployments_in_trouble(*, tenant: Tenant, limit: int = 10) -> list[ModelDeployment]:
    """Deployments that wait for a place, or whose replicas fail: what a person should look at, the latest first."""
    rows = ModelDeployment.objects.filter(
        Q(waiting_since__isnull=False) | Q(phase__in=TROUBLED), tenant=tenant, deleted_at__isnull=True
    )
    return list(rows.defer("source", "spec", "explanation").order_by("-updated_at", "-id")[:limit])


def latest_events(*, tenant: Tenant, limit: int = 8) -> list[DeploymentEvent]:
    """The latest steps of all the tenant's deployments, the newest first. One query."""
    rows = DeploymentEvent.objects.filter(tenant=tenant).select_related("deployment").order_by("-last_at", "-id")
    return list(rows.defer("deployment__source", "deployment__spec", "deployment__explanation")[:limit])


def _replicas_of(tenant: Tenant, ids: Sequence[UUID]) -> dict[UUID, list[ModelReplica]]:
    rows = (
        ModelReplica.objects.filter(tenant=tenant, deployment_id__in=ids, deleted_at__isnull=True)
        .select_related("cluster")
        .defer("spec", "cluster__kubeconfig_ciphertext", "cluster__conditions")
        .order_by("deployment_id", "index")
    )
    out: dict[UUID, list[ModelReplica]] = {}
    for row in rows:
        out.setdefault(row.deployment_id, []).append(row)
    return out


def _encode(row: ModelDeployment) -> str:
    return base64.urlsafe_b64encode(f"{row.created_at.isoformat()} {row.pk}".encode()).decode().rstrip("=")


def _decode(cursor: str) -> tuple[datetime, UUID]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        moment, _, pk = text.partition(" ")
        return as_utc(datetime.fromisoformat(moment)), UUID(pk)
    except (ValueError, OverflowError, binascii.Error) as error:
        raise BadRequest("The cursor is not one that a page of this list gave. Start from the first page.") from error
