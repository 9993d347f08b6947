"""Trust zones: made, renamed, deleted; pools kept for them; tenants moved between them.

Only tenants of one zone may share a card. Order of locks, as for placing: the tenant's row, nodes by id, pools,
reservations, work items last.
"""

from __future__ import annotations

from uuid import UUID

from django.db import connection

from infra.models import Node, NodePool, PodObservation, Reservation
from infra.selectors.holders import held_on, namespaces_of, shared_with
from infra.services.changes import lock_changes
from infra.services.pools import pool_zone_set
from portal.kernel import audit
from portal.kernel.actors import Actor
from portal.kernel.problems import Conflict, Invalid
from portal.kernel.scoping import system_scope
from tenants.models import Tenant, TenantCluster, Zone
from tenants.permissions import Perm, require
from tenants.selectors.zones import kept_for_others
from tenants.services.tenants import checked_slug
from tenants.services.waking import deployments_wake

LOCK_NODES = True
"""Tests switch it off to see the race that the lock prevents. Nothing else may."""


def zone_create(*, slug: str, name: str, actor: Actor) -> Zone:
    """Make a trust zone.

    Raises:
        Invalid: the slug can't be used. Conflict: it is taken.
    """
    require(actor, Perm.TENANT_MANAGE)
    slug = checked_slug(slug)
    with system_scope("zone_create"):
        if Zone.objects.filter(slug=slug).exists():
            raise Conflict(f"There is a zone {slug} already.")
        zone = Zone.objects.create(slug=slug, name=name or slug)
        _record("zone_create", zone, actor, after={"slug": slug, "name": zone.name})
        return zone


def zone_update(*, zone: Zone, name: str, actor: Actor) -> Zone:
    """Rename a zone; its slug stays what addresses and the audit say.

    Raises:
        Invalid: the name is empty or too long.
    """
    require(actor, Perm.TENANT_MANAGE)
    name = " ".join(name.split())
    if not name or len(name) > 120:
        raise Invalid.field("/name", "Give a name of at most 120 characters.")
    with system_scope("zone_update"):
        row = Zone.objects.select_for_update(no_key=True).get(pk=zone.pk)
        before, row.name = row.name, name
        if before != name:
            row.save(update_fields=["name"])
            _record("zone_update", row, actor, before={"name": before}, after={"name": name})
        return row


def zone_delete(*, zone: Zone, actor: Actor) -> None:
    """Delete a zone that nobody is in and no pool is kept for.

    Raises:
        Conflict: tenants are in it or pools are kept for it; they are named.
    """
    require(actor, Perm.TENANT_MANAGE)
    with system_scope("zone_delete"):
        # Alone: whoever puts a tenant into it, or keeps a pool for it, holds the row too.
        row = Zone.objects.select_for_update().get(pk=zone.pk)
        tenants = list(Tenant.objects.filter(zone=row).order_by("slug").values_list("slug", flat=True))
        pools = [f"{pool.cluster.slug}/{pool.name}" for pool in pools_kept(row.pk)]
        if tenants or pools:
            told = [f"tenants in it: {', '.join(tenants)}"] if tenants else []
            told += [f"pools kept for it: {', '.join(pools)}"] if pools else []
            raise Conflict(f"Zone {row.slug} is not empty ({'; '.join(told)}). Move or free them first.")
        _record("zone_delete", row, actor, before={"slug": row.slug, "name": row.name})
        row.delete()


def pools_kept(zone_id: UUID) -> list[NodePool]:
    """The pools that are kept for a zone, by cluster and name."""
    rows = NodePool.objects.filter(zone_id=zone_id).select_related("cluster")
    return list(rows.order_by("cluster__slug", "name"))


def pool_keep(*, pool: NodePool, zone: Zone | None, actor: Actor) -> NodePool:
    """Keep a pool for a zone's tenants, or (None) give it back to everybody; see :func:`infra.services.pools`.

    Raises:
        Conflict: others hold cards there or have a tenant cluster on its cluster, or the zone was deleted meanwhile.
    """
    require(actor, Perm.FLEET_WRITE)
    with system_scope("pool_keep"):
        if zone is not None:
            _hold_zone(zone)
        row = pool_zone_set(
            pool=pool, zone_id=zone.pk if zone else None, zone_name=zone.slug if zone else "", actor=actor
        )
        if zone is not None:
            # With the cluster's lock, which whoever asks for a tenant cluster there takes too.
            _refuse_tenant_clusters(row, zone)
        return row


def _refuse_tenant_clusters(pool: NodePool, zone: Zone) -> None:
    """The host's own scheduler places what runs in a tenant cluster, and knows nothing of kept pools."""
    rows = TenantCluster.objects.filter(cluster=pool.cluster_id, deleted_at__isnull=True).exclude(tenant__zone=zone)
    others = list(rows.order_by("tenant__slug").values_list("tenant__slug", flat=True))
    if others:
        raise Conflict(
            f"Pool {pool.name} on cluster {pool.cluster.slug} can't be kept for {zone.slug}: tenants of other zones "
            f"have tenant clusters there, whose pods the portal does not place: {', '.join(others)}. Delete those "
            "first, or keep a pool of another cluster."
        )


def tenant_set_zone(*, tenant: Tenant, zone: Zone, actor: Actor) -> Tenant:
    """Move a tenant to another trust zone, with what it runs: as long as it shares no card with anybody.

    Raises:
        Conflict: a card (or a node's MIG slices) that it holds is held by somebody else too, or it runs in a pool that
            is kept for another zone than the new one. All are named.
    """
    require(actor, Perm.TENANT_MANAGE)
    with system_scope("tenant_set_zone"):
        # Against FOR SHARE of whoever places something for it: nothing of it is being placed from here on.
        row = Tenant.objects.select_for_update(of=("self",), no_key=True).select_related("zone").get(pk=tenant.pk)
        if row.zone_id == zone.pk:
            return row
        _hold_zone(zone)
        hosts = TenantCluster.objects.filter(tenant=row, deleted_at__isnull=True).order_by("cluster_id")
        kept = [pool for host in hosts for pool in _kept_on(host.cluster_id, zone)]
        nodes = _its_nodes(row.pk)
        pools = list(dict.fromkeys([*kept, *_conflicting_pools(nodes, zone)]))
        if pools:
            raise Conflict(
                f"Tenant {row.slug} runs in pools, or has a tenant cluster beside pools, that are kept for another "
                f"zone than {zone.slug}: {', '.join(pools)}. Move what runs there first, or keep the pools for nobody."
            )
        shared = [str(one) for one in shared_with(row.pk, held_on([node.pk for node in nodes]))]
        if shared:
            raise Conflict(
                f"Tenant {row.slug} shares cards with others of zone {row.zone.slug}: {'; '.join(shared[:5])}. "
                "Across zones no card is shared: move or end what runs there first."
            )
        Reservation.objects.filter(tenant_id=row.pk, released_at__isnull=True).update(zone_id=zone.pk)
        before, row.zone = row.zone.slug, zone
        row.generation += 1
        row.save(update_fields=["zone", "generation"])
        audit.record(
            "tenant_set_zone",
            actor=actor,
            tenant_id=row.pk,
            object_kind="tenant",
            object_id=row.pk,
            object_name=row.slug,
            before={"zone": before},
            after={"zone": zone.slug},
        )
        deployments_wake()
        return row


def _kept_on(cluster_id: UUID, zone: Zone) -> list[str]:
    lock_changes(cluster_id)  # as whoever keeps a pool there, before any node
    return kept_for_others(cluster_id, zone.pk)


def _its_nodes(tenant_id: UUID) -> list[Node]:
    """The nodes on which it holds anything, locked by id: nobody reserves there, or keeps their pool, meanwhile."""
    reserved = Reservation.objects.filter(tenant_id=tenant_id, released_at__isnull=True)
    ids = set(reserved.values_list("node_id", flat=True))
    for cluster_id, namespaces in namespaces_of(tenant_id).items():
        names = PodObservation.objects.filter(
            cluster=cluster_id, namespace__in=namespaces, ended_at__isnull=True, gone_at__isnull=True
        ).values_list("node_name", flat=True)
        there = Node.objects.filter(cluster=cluster_id, name__in=set(names), gone_at__isnull=True)
        ids |= set(there.values_list("pk", flat=True))
    rows = Node.objects.filter(pk__in=ids).order_by("pk")
    return list(rows.select_for_update(of=("self",)) if LOCK_NODES else rows)


def _conflicting_pools(nodes: list[Node], zone: Zone) -> list[str]:
    # Asked after the nodes are locked: who keeps a pool locks its nodes first.
    pools = NodePool.objects.filter(pk__in={node.pool_id for node in nodes}, zone_id__isnull=False)
    rows = pools.exclude(zone_id=zone.pk).select_related("cluster").order_by("cluster__slug", "name")
    return [f"{pool.cluster.slug}/{pool.name}" for pool in rows]


def _hold_zone(zone: Zone) -> None:
    """The zone stays while we refer to it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM tenants_zone WHERE id = %s FOR KEY SHARE", [zone.pk])
        if cursor.fetchone() is None:
            raise Conflict(f"Zone {zone.slug} was deleted meanwhile.")


def _record(
    verb: str,
    zone: Zone,
    actor: Actor,
    *,
    before: dict[str, str] | None = None,
    after: dict[str, str] | None = None,
) -> None:
    audit.record(
        verb,
        actor=actor,
        tenant_id=None,
        object_kind="zone",
        object_id=zone.pk,
        object_name=zone.slug,
        before=before,
        after=after,
    )
