"""The facts that a cluster's Kueue is told, from the ledger; and which queue a replica goes through."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from infra.models import Cluster, GPUType, Node, NodePool, Reservation
from infra.models.hardware import SharingMode
from infra.pod_devices import GPU, mig_resource
from infra.quantity import parse_quantity
from infra.shares import CARD
from tenants.bundle import is_gpu_resource
from tenants.kueue import LOCAL_QUEUE, TenantFacts, TypeFacts, node_labels, split
from tenants.models import ClusterQueueing, QuotaAllotment, TenantNamespace


def queueing_of(cluster: Cluster) -> ClusterQueueing | None:
    """The cluster's row, where somebody has switched Kueue on or off."""
    return ClusterQueueing.objects.filter(cluster=cluster).first()


def queueing_lines() -> list[tuple[Cluster, ClusterQueueing | None]]:
    """Every managed cluster with its row."""
    clusters = Cluster.objects.filter(mode=Cluster.Mode.MANAGE, abandoned_at__isnull=True).order_by("slug")
    rows = {row.cluster_id: row for row in ClusterQueueing.objects.filter(cluster__in=clusters)}
    return [(cluster, rows.get(cluster.pk)) for cluster in clusters]


def type_facts(cluster_id: UUID) -> list[TypeFacts]:
    """The GPU types of a cluster's nodes, with what they offer."""
    offered: dict[GPUType, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    nodes = Node.objects.filter(cluster_id=cluster_id, gone_at__isnull=True, pool__gpu_type__isnull=False)
    for node in nodes.select_related("pool__gpu_type"):
        gpu_type = node.pool.gpu_type if node.pool is not None else None
        if gpu_type is None:
            continue
        for name, amount in node.allocatable.items():
            if is_gpu_resource(name):
                offered[gpu_type][name] += int(parse_quantity(amount))
    return [TypeFacts(one.slug, one.product, dict(offered[one])) for one in sorted(offered, key=lambda one: one.slug)]


def tenant_facts(cluster_id: UUID) -> list[TenantFacts]:
    """The tenants with a prepared namespace on the cluster, by slug, with the parts of their quotas there.

    Call it in a system scope.
    """
    spaces: dict[UUID, list[TenantNamespace]] = defaultdict(list)
    rows = TenantNamespace.objects.filter(cluster_id=cluster_id, deleting_at__isnull=True, observed_generation__gt=0)
    for row in rows.select_related("tenant__zone").order_by("tenant__slug", "name"):
        spaces[row.tenant_id].append(row)
    counts = _counts(cluster_id)
    facts = []
    for tenant_id, namespaces in spaces.items():
        guaranteed = _guaranteed_here(tenant_id, cluster_id)
        parts = {
            slug: {
                name: split(amount, guaranteed.get(slug, 0) // CARD if name == GPU else 0)
                for name, amount in sorted(resources.items())
            }
            for slug, resources in sorted(counts[tenant_id].items())
        }
        tenant = namespaces[0].tenant
        facts.append(TenantFacts(tenant.slug, tenant.zone.slug, [row.name for row in namespaces], parts))
    return sorted(facts, key=lambda one: one.slug)


def _counts(cluster_id: UUID) -> dict[UUID, dict[str, dict[str, int]]]:
    """Tenant → type → GPU resource → how many of it the parts there come to, as the ResourceQuotas count them."""
    counts: dict[UUID, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    reserved: dict[tuple[UUID, str, UUID], int] = defaultdict(int)
    for row in Reservation.objects.filter(cluster_id=cluster_id, released_at__isnull=True).select_related(
        "node", "gpu_type"
    ):
        reserved[row.tenant_id, row.namespace, row.gpu_type_id] += row.share
        of_type = counts[row.tenant_id][row.gpu_type.slug]
        if row.profile:
            of_type[GPU if row.node.mig_profile else mig_resource(row.profile)] += row.slices
        else:
            of_type[GPU] += 1 if row.sharing == SharingMode.HAMI else row.cards
    for part in QuotaAllotment.objects.filter(cluster_id=cluster_id).select_related("quota__gpu_type"):
        beyond = part.target - reserved[part.tenant_id, part.namespace, part.quota.gpu_type_id]
        counts[part.tenant_id][part.quota.gpu_type.slug][GPU] += max(0, beyond) // CARD
    return counts


def _guaranteed_here(tenant_id: UUID, cluster_id: UUID) -> dict[str, int]:
    """Type → how much of the tenant's guarantee lies on this cluster (millionths): the guarantee is laid over the
    parts in the order of the clusters' names, so that all clusters together have it once."""
    parts = QuotaAllotment.objects.filter(tenant_id=tenant_id).select_related("quota__gpu_type", "cluster")
    left: dict[str, int] = {}
    here: dict[str, int] = defaultdict(int)
    for part in parts.order_by("cluster__slug", "namespace"):
        slug = part.quota.gpu_type.slug
        share = min(part.target, left.setdefault(slug, part.quota.guaranteed))
        left[slug] -= share
        if part.cluster_id == cluster_id:
            here[slug] += share
    return here


def queue_for(cluster: Cluster, namespace: str, pools: set[str]) -> dict[str, Any] | None:
    """What is kept with a placement whose pods go through a LocalQueue: its name, and by pool the labels of the
    flavor's nodes. None where the namespace has no LocalQueue (yet)."""
    row = queueing_of(cluster)
    if row is None or not row.enabled or namespace not in row.queues:
        return None
    products = dict(
        NodePool.objects.filter(cluster=cluster, name__in=pools, gpu_type__isnull=False).values_list(
            "name", "gpu_type__product"
        )
    )
    return {"name": LOCAL_QUEUE, "selectors": {pool: node_labels(product) for pool, product in products.items()}}


def queue_in_force(placement: Mapping[str, Any], cluster: Cluster) -> Mapping[str, Any] | None:
    """The queue that a replica was placed with, as long as the cluster's Kueue is switched on."""
    queue: Mapping[str, Any] | None = placement.get("queue")
    if queue is None:
        return None
    row = queueing_of(cluster)
    return queue if row is not None and row.enabled else None
