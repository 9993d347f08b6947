"""The slow comparison: what a cluster has against what our last applies recorded. Only differences are marked.

One LIST per kind and cluster (metadata only) and one query; nothing is written to the cluster, and nothing to the
queue where nothing differs. Repair is the reconciler's: it applies the whole object again.
"""

from __future__ import annotations

import logging
from uuid import UUID

from infra.kube.client import KubeClient
from infra.kube.errors import ApiMissing, KubeError
from infra.models import AppliedObject, Cluster
from infra.names import FIELD_MANAGER, MANAGED_BY, selector
from infra.selectors.inventory import differences
from infra.services.inventory import inventory_suspect
from portal.kernel import workqueue
from portal.kernel.scoping import system_scope
from portal.kernel.ticks import every
from portal.kernel.workqueue import Claimed, Done, Outcome, RetryAfter
from tenants.models import ModelReplica, TenantNamespace

logger = logging.getLogger(__name__)

EVERY_SECONDS = 600
UNLISTED = ("tenantcluster", "tenantclusteraccess")
"""Owners whose reconciler compares its own objects at each look: the portal may not list their kinds everywhere."""
KIND = "resync"


@every(EVERY_SECONDS, "tenants.resync")
def resync_all() -> None:
    """Have every cluster that we write to compared; each is one item of the queue, so they run side by side."""
    with system_scope("resync"):
        ids = Cluster.objects.filter(mode=Cluster.Mode.MANAGE, abandoned_at__isnull=True).values_list("pk", flat=True)
        workqueue.mark_many([workqueue.Mark(KIND, pk, cluster_id=pk, cause="resync") for pk in ids])
        lost = ModelReplica.objects.filter(
            cluster__abandoned_at__isnull=False, deleting_at__isnull=True, deleted_at__isnull=True
        )
        owners = set(lost.values_list("deployment_id", "tenant_id"))
        workqueue.mark_many([workqueue.Mark("deployment", pk, tenant_id=tenant) for pk, tenant in owners])


@workqueue.register(KIND, lease_seconds=300)
def reconcile(item: Claimed) -> Outcome:
    """Compare one cluster (``object_id`` is the cluster's)."""
    with system_scope("resync"):
        cluster = Cluster.objects.filter(pk=item.object_id, abandoned_at__isnull=True).first()
    if cluster is None:
        return Done()
    try:
        resync_cluster(cluster)
    except KubeError as error:
        # A silent cluster says nothing about its objects: nothing is marked.
        return RetryAfter(EVERY_SECONDS, error.sentence)
    return Done()


def resync_cluster(cluster: Cluster) -> int:
    """Mark the owners of objects that are not as we left them; how many objects that were.

    Raises:
        KubeError: the cluster can't be listed; nothing was marked of the kind that failed or of later ones.
    """
    client = KubeClient.for_cluster(cluster)
    client.require_identity()
    with system_scope("resync"):
        kinds = sorted(
            AppliedObject.objects.filter(cluster=cluster, deleted_at__isnull=True)
            .exclude(owner_kind__in=UNLISTED)
            .order_by()
            .values_list("api_version", "kind")
            .distinct()
        )
    found = 0
    for api_version, kind in kinds:
        try:
            listed = client.list_all(
                api_version, kind, label_selector=selector({MANAGED_BY: FIELD_MANAGER}), metadata_only=True
            )
        except ApiMissing:
            logger.warning("a kind that we applied is not served any more", extra={"kind": kind})
            continue
        with system_scope("resync"):
            rows = differences(cluster.pk, api_version, kind, listed.items)
            if rows:
                inventory_suspect(rows)
                _mark_owners(cluster, rows)
        found += len(rows)
    return found


def _mark_owners(cluster: Cluster, rows: list[AppliedObject]) -> None:
    owners: dict[str, set[UUID]] = {}
    for row in rows:
        owners.setdefault(row.owner_kind, set()).add(row.owner_id)
    replicas = ModelReplica.objects.filter(pk__in=owners.get("replica", ()), deleted_at__isnull=True)
    namespaces = TenantNamespace.objects.filter(pk__in=owners.get("namespace", ()))
    marks = [
        workqueue.Mark(kind, pk, cluster_id=cluster.pk, tenant_id=tenant_id, cause="resync")
        for kind, found in (("replica", replicas), ("namespace", namespaces))
        for pk, tenant_id in found.values_list("pk", "tenant_id")
    ]
    marks += [
        workqueue.Mark(kind, cluster.pk, cluster_id=cluster.pk, cause="resync")
        for kind in ("isolation", "kueue")
        if kind in owners
    ]
    workqueue.mark_many(marks)
