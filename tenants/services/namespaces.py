"""The tenant's namespace on a managed cluster: wanted here, made by the reconciler ``namespace``."""

from __future__ import annotations

from infra.models import Cluster, NamespaceClaim
from infra.services.claims import namespace_claim_set
from portal.kernel import workqueue
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow
from portal.kernel.problems import Conflict
from portal.kernel.scoping import system_scope
from tenants.models import Tenant, TenantNamespace


def namespace_ensure(*, tenant: Tenant, cluster: Cluster, actor: Actor) -> TenantNamespace:
    """The row of the tenant's namespace on ``cluster``; made, claimed for the tenant and marked where it is new.

    Raises:
        Conflict: the cluster is only observed (nothing may be written to it).
    """
    if cluster.mode != Cluster.Mode.MANAGE:
        raise Conflict(f"Cluster {cluster.slug} is in mode observe: the portal makes no namespace there.")
    with system_scope("namespace"):
        row, made = TenantNamespace.objects.get_or_create(tenant=tenant, cluster=cluster, name=tenant.namespace)
        if made and not _claimed(cluster, row.name, tenant):
            namespace_claim_set(
                cluster=cluster,
                namespace=row.name,
                tenant_id=tenant.pk,
                valid_from=utcnow(),
                cost_code=tenant.cost_code,
                actor=actor,
            )
        if made:
            workqueue.mark("namespace", row.pk, cluster_id=cluster.pk, tenant_id=tenant.pk)
        return row


def _claimed(cluster: Cluster, namespace: str, tenant: Tenant) -> bool:
    return NamespaceClaim.objects.filter(
        cluster=cluster, namespace=namespace, tenant_id=tenant.pk, valid_to__isnull=True
    ).exists()
