"""Waking deployments that wait for a place, when something was freed, raised or added."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from portal.kernel import workqueue
from portal.kernel.scoping import system_scope
from tenants.models import ModelDeployment, ModelReplica, TenantNamespace

WAKE_LIMIT = 500
"""How many are woken at a time; the others are looked at by themselves within a minute or so."""


def deployments_wake(*, tenant_id: UUID | None = None, also: Iterable[workqueue.Mark] = ()) -> int:
    """Mark waiting deployments, the oldest first; of one tenant (its quota changed), or of all (capacity came free).

    Call it inside a system scope and the transaction that freed something. Returns how many were marked.

    Args:
        also: marks of the same transaction. All in one go: two transactions that each had marked a deployment and then
            the rest would wait for each other.
    """
    waiting = _waiting(tenant_id)
    # Work items are worked on by the time they became due, then by their id, which is as old as the deployment:
    # marked in one transaction, the oldest deployment is the first to ask again. The cause is "spec", because a
    # back-off must not hold up who waits for exactly this.
    workqueue.mark_many([*also, *waiting])
    return len(waiting)


def concerned_by_cluster(cluster_id: UUID) -> list[workqueue.Mark]:
    """Who is to look again after something of a cluster changed; see :mod:`infra.concerned`.

    Those that wait for a place anywhere; those that have replicas on the cluster, if it was given up; its namespaces.
    """
    with system_scope("wake"):
        lost = ModelReplica.objects.filter(
            cluster_id=cluster_id, cluster__abandoned_at__isnull=False, deleted_at__isnull=True
        )
        spaces = TenantNamespace.objects.filter(cluster_id=cluster_id, cluster__abandoned_at__isnull=False)
        return [
            *_waiting(None),
            *(workqueue.Mark("deployment", pk, tenant_id=owner) for pk, owner in
              lost.values_list("deployment_id", "tenant_id")),
            *(workqueue.Mark("namespace", pk, cluster_id, owner) for pk, owner in
              spaces.values_list("pk", "tenant_id")),
        ]  # fmt: skip


def _waiting(tenant_id: UUID | None) -> list[workqueue.Mark]:
    waiting = ModelDeployment.objects.filter(waiting_since__isnull=False, deleted_at__isnull=True)
    if tenant_id is not None:
        waiting = waiting.filter(tenant_id=tenant_id)
    rows = waiting.order_by("created_at", "id").values_list("pk", "tenant_id")[:WAKE_LIMIT]
    return [workqueue.Mark("deployment", pk, tenant_id=owner) for pk, owner in rows]
