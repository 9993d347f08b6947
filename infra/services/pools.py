"""Node pools that are kept for one trust zone. The cluster itself is not asked and not changed: it is our own rule."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction

from infra.concerned import concerned_by
from infra.models import Node, NodePool
from infra.permissions import require_platform_admin
from infra.selectors.holders import held_on
from infra.services.capacity import pool_zone_changed
from infra.services.changes import lock_changes
from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow
from portal.kernel.problems import Conflict

LOCK_NODES = True
"""Tests switch it off to see the race that the lock prevents. Nothing else may."""

NAMED = 5


def pool_zone_set(*, pool: NodePool, zone_id: UUID | None, zone_name: str = "", actor: Actor) -> NodePool:
    """Keep a pool for the tenants of a zone, from now on; None: it is everybody's again.

    Nothing is moved. The idle time of its cards is the zone's tenant's from now on where that tenant is alone in it.

    Args:
        zone_name: for the audit.

    Raises:
        Conflict: somebody outside the zone holds cards there (each is named). Forbidden: no platform-admin.
    """
    name = f"{pool.cluster.slug}/{pool.name}"
    require_platform_admin(actor, "pool_zone_set", object_kind="pool", object_name=name)
    with transaction.atomic():
        # As the watcher does: the cluster's changes first, then its nodes. Who reserves takes nodes alone.
        lock_changes(pool.cluster_id)
        nodes = Node.objects.filter(pool=pool, gone_at__isnull=True).order_by("pk")
        if LOCK_NODES:
            nodes = nodes.select_for_update(of=("self",))
        ids = [node.pk for node in nodes]
        row = NodePool.objects.select_for_update(of=("self",), no_key=True).select_related("cluster").get(pk=pool.pk)
        if row.zone_id == zone_id:
            return row
        others = [one for one in held_on(ids) if one.zone_id != zone_id] if zone_id is not None else []
        if others:
            told = list(dict.fromkeys(str(one) for one in others))
            more = f", and {len(told) - NAMED} more" if len(told) > NAMED else ""
            raise Conflict(
                f"Pool {row.name} on cluster {row.cluster.slug} can't be kept for {zone_name or 'the zone'}: others "
                f"hold cards there: {'; '.join(told[:NAMED])}{more}. Move or end what they run there first."
            )
        before, row.zone_id = row.zone_id, zone_id
        row.save(update_fields=["zone_id"])
        pool_zone_changed(ids, cluster_id=row.cluster_id, zone_id=zone_id, at=utcnow())
        audit.record(
            "pool_zone_set", actor=actor, tenant_id=None, object_kind="pool", object_id=row.pk, object_name=name,
            before={"zone": str(before or "")}, after={"zone": str(zone_id or ""), "name": zone_name},
        )  # fmt: skip
        workqueue.mark_many(concerned_by(row.cluster_id))
        return row
