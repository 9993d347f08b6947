"""One tenant cluster in the demonstration: asked for here, made by the worker; a stand-in plays Flux and vCluster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from infra.models import Cluster, GPUType
from infra.selectors.isolation import cluster_lacks
from infra.services.isolation import WORK_KIND, isolation_check
from infra.shares import CARD
from portal.kernel.actors import Actor
from portal.kernel.models import WorkItem
from portal.kernel.problems import Problem
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import run_item
from tenants.models import Tenant, TenantCluster
from tenants.services.tenantclusters import tenant_cluster_request

TENANT, HOST, WORD, CARDS = "team-vision", "gpu-fra-1", "H100", 4
ISOLATION_SECONDS = 30


def tenant_cluster_ensure(
    tenants: Mapping[str, Tenant], clusters: Mapping[str, Cluster], pool: Mapping[str, Mapping[str, Any]], actor: Actor
) -> None:
    """Ask for the tenant cluster, once; what stands against it is printed, and the demonstration goes on without.

    Args:
        pool: the API servers that stand in for tenant clusters, by name, with their ``server``.
    """
    tenant, cluster = tenants[TENANT], clusters.get(HOST)
    if not pool or cluster is None or cluster.mode != Cluster.Mode.MANAGE:
        return
    with system_scope("demonstration"):
        if TenantCluster.objects.filter(tenant=tenant, cluster=cluster).exists():
            return
    gpu_type = GPUType.objects.filter(name__contains=WORD).order_by("slug").first()
    try:
        _isolate(cluster, actor)
        tenant_cluster_request(
            tenant=tenant,
            cluster=cluster,
            allotments={gpu_type.slug: CARDS * CARD} if gpu_type is not None else {},
            endpoint=next(iter(pool.values()))["server"],
            actor=actor,
        )
    except Problem as problem:
        print(f"No tenant cluster of {TENANT} on {HOST}: {problem.detail}")  # noqa: T201  # the command's output


def _isolate(cluster: Cluster, actor: Actor) -> None:
    """Have the cluster prove that it keeps tenants apart: no worker runs yet, and a request asks for it."""
    until = time.monotonic() + ISOLATION_SECONDS
    while cluster_lacks(cluster) and time.monotonic() < until:
        isolation_check(cluster=cluster, actor=actor)
        for item in WorkItem.objects.filter(kind=WORK_KIND, object_id=cluster.pk):
            run_item(item.pk)
        cluster.refresh_from_db()
        time.sleep(0.2)
