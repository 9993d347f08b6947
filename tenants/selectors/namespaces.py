"""What a tenant's namespace on a cluster shall look like, from the ledger."""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID

from infra.models import Node, Reservation
from infra.models.hardware import SharingMode
from infra.pod_devices import GPU, MIG_PREFIX
from infra.shares import CARD
from tenants.bundle import is_gpu_resource
from tenants.models import QuotaAllotment, TenantNamespace


def gpu_resources_offered(cluster_id: UUID) -> set[str]:
    """The names of the GPU resources that any node of the cluster offers."""
    rows = Node.objects.filter(cluster_id=cluster_id, gone_at__isnull=True).values_list("allocatable", flat=True)
    return {name for allocatable in rows for name in allocatable if is_gpu_resource(name)}


def gpu_resources_allowed(namespace: TenantNamespace, parts: list[QuotaAllotment]) -> dict[str, int]:
    """How much of each offered GPU resource the namespace may request: what is reserved, and what else was allotted.

    Call it with the quota rows locked, so that reservations and ``parts`` are of one moment.
    """
    allowed: dict[str, int] = defaultdict(int, dict.fromkeys(gpu_resources_offered(namespace.cluster_id), 0))
    shares: dict[UUID, int] = defaultdict(int)
    for row in Reservation.objects.filter(
        tenant_id=namespace.tenant_id,
        cluster_id=namespace.cluster_id,
        namespace=namespace.name,
        released_at__isnull=True,
    ).select_related("node"):
        shares[row.gpu_type_id] += row.share
        if row.profile and row.node.mig_profile:  # the device plugin's strategy "single" calls slices cards
            allowed[GPU] += row.slices
        elif row.profile:
            allowed[f"{MIG_PREFIX}{row.profile}"] += row.slices
        elif row.sharing == SharingMode.HAMI:
            allowed[GPU] += 1
        else:
            allowed[GPU] += row.cards
    for part in parts:
        # What was allotted beyond our reservations is for pods that somebody else makes there: whole cards only.
        allowed[GPU] += max(0, part.target - shares[part.quota.gpu_type_id]) // CARD
    return dict(allowed)
