"""Trust zones, read: who is in them, which pools are kept for them, who shares cards with whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from infra.models import Cluster, Node, NodePool
from infra.models.hardware import SharingMode
from infra.selectors.holders import held_on
from tenants.models import Tenant, Zone


@dataclass(frozen=True)
class Sharing:
    """Two or more tenants on one card (of MIG: on one node): they trust each other by being in one zone."""

    cluster: str
    node: str
    card: str
    tenants: tuple[str, ...]


@dataclass
class ZoneView:
    """A zone as the platform sees it."""

    zone: Zone
    tenants: list[Tenant] = field(default_factory=list)
    pools: list[NodePool] = field(default_factory=list)
    sharing: list[Sharing] = field(default_factory=list)

    @property
    def dedicated(self) -> bool:
        """Whether its one tenant never shares a card with anybody."""
        return len(self.tenants) == 1

    @property
    def empty(self) -> bool:
        """Whether it may be deleted."""
        return not self.tenants and not self.pools


def kept_for_others(cluster_id: UUID, zone_id: UUID) -> list[str]:
    """The cluster's pools that are kept for another zone than this one, as ``cluster/pool``."""
    rows = NodePool.objects.filter(cluster_id=cluster_id, zone_id__isnull=False).exclude(zone_id=zone_id)
    return [f"{row.cluster.slug}/{row.name}" for row in rows.select_related("cluster").order_by("name")]


def zone_views(zones: Iterable[Zone] | None = None) -> list[ZoneView]:
    """The zones (all of them, by slug) with tenants, pools and sharing now. Inside a system scope."""
    rows = list(zones) if zones is not None else list(Zone.objects.order_by("slug"))
    views = {zone.pk: ZoneView(zone) for zone in rows}
    tenants = {tenant.pk: tenant for tenant in Tenant.objects.order_by("slug")}
    for tenant in tenants.values():
        if tenant.zone_id in views:
            views[tenant.zone_id].tenants.append(tenant)
    kept = NodePool.objects.filter(zone_id__in=views).select_related("cluster", "gpu_type")
    for pool in kept.order_by("cluster__slug", "name"):
        if pool.zone_id is not None:
            views[pool.zone_id].pools.append(pool)
    slugs = {pk: tenant.slug for pk, tenant in tenants.items()}
    on_card: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    zone_of: dict[tuple[str, str, str], UUID] = {}
    divided = Node.objects.filter(gone_at__isnull=True, pool__sharing__in=[SharingMode.HAMI, SharingMode.MIG])
    clusters = dict(Cluster.objects.values_list("pk", "slug"))
    nodes = dict(divided.values_list("pk", "cluster_id"))
    for one in held_on(list(nodes)):
        if one.tenant_id in slugs and (one.card or one.profile):
            key = (clusters[nodes[one.node_id]], one.node, one.card)
            on_card[key].add(slugs[one.tenant_id])
            zone_of[key] = tenants[one.tenant_id].zone_id
    for key, found in sorted(on_card.items()):
        view = views.get(zone_of[key])
        if len(found) > 1 and view is not None:
            view.sharing.append(Sharing(*key, tuple(sorted(found))))
    return list(views.values())
