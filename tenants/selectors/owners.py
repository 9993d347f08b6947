"""What the fleet asks about tenants: whose replica a pod is, and which trust zone a tenant is in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from infra.owners import Owned
from tenants.models import ModelReplica, Tenant


def replica_owners(cluster_id: UUID, claims: Collection[tuple[str, UUID]]) -> Mapping[tuple[str, UUID], Owned]:
    """See :class:`infra.owners.ReplicaOwners`. One query, inside a system scope."""
    rows = ModelReplica.objects.filter(cluster_id=cluster_id, pk__in={replica for _, replica in claims})
    known = {
        row.pk: (row.tenant.namespace, Owned(row.tenant_id, row.deployment_id))
        for row in rows.select_related("tenant").only("tenant__slug", "deployment_id")
    }
    return {
        (namespace, replica): known[replica][1]
        for namespace, replica in claims
        if replica in known and known[replica][0] == namespace
    }


def zones_of_tenants(tenant_ids: Collection[UUID]) -> Mapping[UUID, UUID]:
    """See :class:`infra.owners.ZoneOfTenants`. One query."""
    return dict(Tenant.objects.filter(pk__in=tenant_ids).values_list("pk", "zone_id"))


def tenants_by_slug(slugs: Collection[str]) -> Mapping[str, UUID]:
    """See :class:`infra.owners.TenantsBySlug`. One query."""
    return dict(Tenant.objects.filter(slug__in=slugs).values_list("slug", "pk"))
