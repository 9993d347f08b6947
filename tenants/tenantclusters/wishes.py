"""A tenant cluster's row, with what it was given, as what a provisioner is asked for."""

from __future__ import annotations

from django.conf import settings

from infra.adapters.vcluster import ClusterFacts, full_quota
from infra.kube.apply import Owner
from portal.kernel.clock import format_rfc3339
from tenants.models import QuotaAllotment, TenantCluster, TenantNamespace
from tenants.selectors.namespaces import gpu_limits
from tenants.tenantclusters.profile import control_plane_image, sign_in_for
from tenants.tenantclusters.provisioner import OWNER_KIND, Wish


def wish_of(row: TenantCluster, namespace: TenantNamespace | None, parts: list[QuotaAllotment]) -> Wish:
    """What is wanted now.

    Args:
        row: with its tenant and cluster.
        namespace: its namespace on the host; ``None``: that is gone already, so only names matter.
        parts: the parts of quotas on that namespace, of the same moment.
    """
    gpus = {} if namespace is None else gpu_limits(namespace, parts).resources
    sign_in = sign_in_for(row.audience)
    facts = ClusterFacts(
        name=row.name,
        namespace=row.namespace,
        endpoint=row.endpoint,
        kubernetes_version=row.kubernetes_version,
        image=control_plane_image(row.chart_version),
        quota=full_quota(
            settings.AIF_TENANT_CLUSTER_QUOTA, {f"requests.{name}": str(amount) for name, amount in gpus.items()}
        ),
        authentication=sign_in is not None,
        node_labels=settings.AIF_TENANT_CLUSTER_NODE_LABELS,
        tolerations=settings.AIF_TENANT_CLUSTER_TOLERATIONS,
        ingress_class=settings.AIF_TENANT_CLUSTER_INGRESS_CLASS,
        extra=settings.AIF_TENANT_CLUSTER_VALUES,
    )
    return Wish(
        owner=Owner(OWNER_KIND, row.pk, row.tenant_id, row.generation),
        cluster=row.cluster,
        facts=facts,
        chart=row.chart_version,
        sign_in=sign_in,
        retry_at="" if row.retry_at is None else format_rfc3339(row.retry_at),
        paused=row.desired == TenantCluster.Desired.PAUSED,
    )
