"""Switching a cluster's Kueue on and off."""

from __future__ import annotations

from infra.models import Cluster
from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.problems import Conflict
from portal.kernel.scoping import system_scope
from tenants.models import ClusterQueueing, ModelReplica
from tenants.permissions import Perm, require

KIND = "kueue"


def queueing_switch(*, cluster: Cluster, enabled: bool, actor: Actor) -> ClusterQueueing:
    """Have what tenants run on a cluster queued by its Kueue, or no longer.

    What is placed from then on goes through the queue; what runs keeps running as it is. Switched off, pods that went
    through the queue are made anew without it, then the queues are drained and removed.

    Raises:
        Conflict: the cluster is only observed, or was given up.
    """
    require(actor, Perm.FLEET_WRITE)
    if cluster.mode != Cluster.Mode.MANAGE or cluster.abandoned_at is not None:
        raise Conflict(f"Cluster {cluster.slug} is not managed by the portal: nothing is written to it.")
    with system_scope("queueing_switch"):
        ClusterQueueing.objects.get_or_create(cluster=cluster)
        row = ClusterQueueing.objects.select_for_update().get(cluster=cluster)
        if row.enabled == enabled:
            return row
        row.enabled = enabled
        row.draining = not enabled
        row.generation += 1
        row.save(update_fields=["enabled", "draining", "generation"])
        audit.record(
            "queueing_switch",
            actor=actor,
            tenant_id=None,
            object_kind="cluster",
            object_id=cluster.pk,
            object_name=cluster.slug,
            before={"kueue": not enabled},
            after={"kueue": enabled},
        )
        marks = [workqueue.Mark(KIND, cluster.pk, cluster_id=cluster.pk)]
        replicas = ModelReplica.objects.filter(cluster=cluster, deleted_at__isnull=True, placement__has_key="queue")
        marks += [
            workqueue.Mark("replica", pk, cluster_id=cluster.pk, tenant_id=tenant_id)
            for pk, tenant_id in replicas.values_list("pk", "tenant_id")
        ]
        workqueue.mark_many(marks)
        return row


def queueing_mark(cluster: Cluster) -> None:
    """Have the figures of a cluster's queues looked at again, where it has any. In a system scope."""
    if ClusterQueueing.objects.filter(cluster=cluster, enabled=True).exists():
        workqueue.mark(KIND, cluster.pk, cluster_id=cluster.pk)
