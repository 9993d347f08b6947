"""Acting on a plan: each new replica in one short transaction, quota and devices checked again under their locks.

Order of locks for everybody: the deployment's row, the tenant's, the cluster's changes, quota rows (by id), the
namespace's, nodes (by id), replicas, and work items last. Each function runs inside the caller's fenced transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from infra.models import Cluster, GPUType
from infra.placement import Placement
from infra.services.reservations import Holder, lines_for, reserve
from portal.kernel import workqueue
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow
from portal.kernel.ids import uuid7
from tenants.models import GPUQuota, ModelDeployment, ModelReplica, QuotaAllotment, Tenant
from tenants.placements import placement_to_json
from tenants.selectors.queueing import queue_for
from tenants.selectors.quota import quota_taken
from tenants.services.allotments import (
    QuotaExceeded,
    allotment_require,
    allotments_settle,
    quota_locked,
)
from tenants.services.events import event_add
from tenants.services.namespaces import namespace_ensure
from tenants.services.profile_quotas import profiles_admit
from tenants.stored import manifest_of, replica_spec

LOCK_QUOTA = True
"""Tests switch it off to see the race that the lock prevents. Nothing else may."""

PLACER = Actor.system("placement")


class Stale(Exception):
    """The deployment was changed since the plan was made: plan again."""


def deployment_current(deployment: ModelDeployment) -> ModelDeployment:
    """The row, locked until the transaction ends, if it is still what the plan was made for.

    Raises:
        Stale: its generation moved on.
    """
    rows = ModelDeployment.objects.select_for_update(of=("self",), no_key=True).select_related("tenant")
    row = rows.get(pk=deployment.pk)
    if row.generation != deployment.generation:
        raise Stale(f"Deployment {row.name} was changed while it was being placed.")
    return row


def replica_place(deployment: ModelDeployment, placement: Placement) -> ModelReplica:
    """Make one replica of what the plan says: admit it, promise it its devices, have it applied.

    Raises:
        Stale: the deployment was changed, or its tenant was suspended.
        QuotaExceeded: the tenant's quota does not hold it (any more).
        NoCapacity: the devices are not free any more.
    """
    row = deployment_current(deployment)
    # Locked, so that the zone and state that this goes by are still the tenant's when it commits.
    tenant = row.tenant = _hold_tenant(row.tenant_id)
    if tenant.state != Tenant.State.ACTIVE or tenant.zone_id != deployment.tenant.zone_id:
        raise Stale(f"Tenant {tenant.slug} was suspended or moved to another zone meanwhile.")
    cluster = Cluster.objects.select_related("site").get(slug=placement.cluster)
    lines = lines_for(placement)
    needed: dict[UUID, int] = defaultdict(int)
    instances: dict[tuple[UUID, str], int] = defaultdict(int)
    for line in lines:
        needed[line.gpu_type_id] += line.share
        if line.profile:
            instances[line.gpu_type_id, line.profile] += line.slices
    namespace_ensure(tenant=tenant, cluster=cluster, actor=PLACER)
    _admit(tenant, cluster, needed, instances)
    replica = ModelReplica(
        id=uuid7(),
        tenant=tenant,
        deployment=row,
        index=placement.index,
        cluster=cluster,
        placement=placement_to_json(placement) | _queue(cluster, tenant, placement),
        spec=replica_spec(manifest_of(row)),
        generation=row.generation,
        message=f"Has its place on {cluster.slug}: {', '.join(placement.nodes)}.",
    )
    reserve(
        holder=Holder(
            tenant_id=tenant.pk,
            zone_id=tenant.zone_id,
            namespace=tenant.namespace,
            deployment_id=row.pk,
            replica_id=replica.pk,
        ),
        lines=lines,
    )
    replica.save(force_insert=True)
    event_add(row, "Placed", replica.message, replica_index=replica.index)
    workqueue.mark("replica", replica.pk, cluster_id=cluster.pk, tenant_id=tenant.pk)
    return replica


def _queue(cluster: Cluster, tenant: Tenant, placement: Placement) -> dict[str, Any]:
    """The LocalQueue that the replica's pods go through, where the namespace has one."""
    queue = queue_for(cluster, tenant.namespace, {engine.pool for engine in placement.engines})
    return {} if queue is None else {"queue": queue}


def _hold_tenant(tenant_id: UUID) -> Tenant:
    """The tenant, whose zone and state stay as they are until the transaction ends.

    Shared: placements of one tenant don't wait for each other here, only for a change of the tenant itself.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM tenants_tenant WHERE id = %s FOR SHARE", [tenant_id])
    return Tenant.objects.get(pk=tenant_id)


def _admit(tenant: Tenant, cluster: Cluster, needed: dict[UUID, int], instances: dict[tuple[UUID, str], int]) -> None:
    """Check the quotas under their locks, and grow the parts on this cluster before anything is written to it."""
    locked = quota_locked(tenant.pk, needed) if LOCK_QUOTA else _unlocked(tenant.pk, needed)
    taken = quota_taken(tenant.pk)
    for gpu_type_id, share in sorted(needed.items()):
        quota = locked.get(gpu_type_id)
        if quota is None:
            slug = GPUType.objects.values_list("slug", flat=True).get(pk=gpu_type_id)
            raise QuotaExceeded(gpu_type=slug, limit=0, admitted=0, asked=share)
        place = (cluster.pk, tenant.namespace, gpu_type_id)
        before = taken.total(gpu_type_id)
        if before + share > quota.limit:
            raise QuotaExceeded(gpu_type=quota.gpu_type.slug, limit=quota.limit, admitted=before, asked=share)
        profiles_admit(quota, {profile: count for (key, profile), count in instances.items() if key == gpu_type_id})
        allotment_require(quota=quota, cluster=cluster, namespace=tenant.namespace, needed=taken.target(*place) + share)


def _unlocked(tenant_id: UUID, needed: dict[UUID, int]) -> dict[UUID, GPUQuota]:
    rows = GPUQuota.objects.filter(tenant_id=tenant_id, gpu_type_id__in=list(needed)).select_related("gpu_type")
    return {row.gpu_type_id: row for row in rows}


def parts_settle(tenant_id: UUID) -> None:
    """Lower the parts of the tenant's quotas to what is held on each cluster (pods may have ended since they grew)."""
    parts = QuotaAllotment.objects.filter(tenant_id=tenant_id)
    quota_locked(tenant_id, set(parts.values_list("quota__gpu_type_id", flat=True)))
    for cluster_id in sorted(set(parts.values_list("cluster_id", flat=True))):
        allotments_settle(tenant_id=tenant_id, cluster_id=cluster_id)


def replicas_update(deployment: ModelDeployment, indexes: Sequence[int]) -> None:
    """Give these replicas the deployment's spec where they are. Raises Stale."""
    row = deployment_current(deployment)
    spec = replica_spec(manifest_of(row))
    for replica in _live(row, indexes):
        replica.spec = spec
        replica.generation = row.generation
        replica.phase = "Updating"
        replica.message = "Gets the new spec."
        replica.save(update_fields=["spec", "generation", "phase", "message"])
        event_add(row, "Updating", f"Replica {replica.index} gets the new spec.", replica_index=replica.index)
        _mark(replica)


def replicas_end(deployment: ModelDeployment, sentences: dict[int, str], reason: str) -> None:
    """Have these replicas deleted (index → why, in a sentence). What they hold stays theirs until they are gone."""
    row = deployment_current(deployment)
    for replica in _live(row, list(sentences)):
        replica.deleting_at = utcnow()
        replica.phase = "Deleting"
        replica.message = sentences[replica.index]
        replica.save(update_fields=["deleting_at", "phase", "message"])
        event_add(row, reason, sentences[replica.index], replica_index=replica.index)
        _mark(replica)


def deployment_status(row: ModelDeployment, values: dict[str, Any], event: tuple[str, str] | None) -> None:
    """Write what of the status differs, with a step on the timeline. ``row``: as :func:`deployment_current` gave it."""
    changed = [name for name, value in values.items() if getattr(row, name) != value]
    for name in changed:
        setattr(row, name, values[name])
    if changed:
        row.save(update_fields=changed)
    if event is not None:
        event_add(row, *event)


def deployment_ended(deployment: ModelDeployment) -> None:
    """Every replica is gone: so is the deployment. Raises Stale."""
    row = deployment_current(deployment)
    row.deleted_at = utcnow()
    row.phase, row.waiting, row.waiting_since, row.ready_replicas = "Deleted", "", None, 0
    row.observed_generation = row.generation
    row.save(update_fields=["deleted_at", "phase", "waiting", "waiting_since", "ready_replicas", "observed_generation"])
    event_add(row, "Deleted", "Every object of it is gone from every cluster.")


def _live(row: ModelDeployment, indexes: Sequence[int]) -> list[ModelReplica]:
    rows = ModelReplica.objects.select_for_update(of=("self",), no_key=True).filter(
        tenant_id=row.tenant_id,
        deployment=row,
        index__in=indexes,
        deleting_at__isnull=True,
        deleted_at__isnull=True,
    )
    return list(rows.order_by("id"))


def _mark(replica: ModelReplica) -> None:
    workqueue.mark("replica", replica.pk, cluster_id=replica.cluster_id, tenant_id=replica.tenant_id)
