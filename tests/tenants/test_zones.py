"""Zones, pools kept for them, moves between them: the changes, their refusals, their audit, and the races."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from infra.models import CapacitySpan, NamespaceClaim, Node, NodePool, Reservation
from infra.selectors.snapshot import fleet_snapshot
from infra.services.capacity import InService, capacity_set
from infra.services.changes import lock_changes
from portal.kernel.clock import utcnow
from portal.kernel.models import AuditEvent
from portal.kernel.problems import Conflict, Forbidden, Invalid
from portal.kernel.scoping import system_scope
from tenants.models import Tenant, Zone
from tenants.selectors.zones import zone_views
from tenants.services.zones import pool_keep, tenant_set_zone, zone_create, zone_delete, zone_update
from tests.support.fleet import make_cluster, make_node, make_pod, make_pool
from tests.support.tenants import make_tenant
from tests.tenants.factories import ADMIN, make_member

pytestmark = pytest.mark.django_db


def verbs() -> list[str]:
    with system_scope("test"):
        return list(AuditEvent.objects.order_by("id").values_list("verb", flat=True))


def hold(tenant: Tenant, node: Node, **what: object) -> Reservation:
    """A promise to the tenant; whole cards unless told."""
    assert node.pool is not None
    values: dict[str, object] = what or {"cards": 1}
    return Reservation.objects.create(
        cluster=node.cluster, pool=node.pool, node=node, gpu_type=node.pool.gpu_type, sharing=node.pool.sharing,
        tenant_id=tenant.pk, zone_id=tenant.zone_id, namespace=tenant.namespace, deployment_id=uuid4(),
        replica_id=uuid4(), member="m", share=1, **values,
    )  # fmt: skip


def claim(tenant: Tenant, node: Node, namespace: str) -> None:
    NamespaceClaim.objects.create(
        cluster=node.cluster, namespace=namespace, tenant_id=tenant.pk, valid_from=utcnow(), created_by="test"
    )


def test_a_zone_is_renamed_and_an_empty_one_deleted() -> None:
    zone = zone_create(slug="research", name="", actor=ADMIN)
    assert zone_update(zone=zone, name=" Basic  research ", actor=ADMIN).name == "Basic research"
    with pytest.raises(Invalid):
        zone_update(zone=zone, name=" ", actor=ADMIN)
    zone_delete(zone=zone, actor=ADMIN)
    assert not Zone.objects.filter(slug="research").exists()
    assert verbs() == ["zone_create", "zone_update", "zone_delete"]


def test_a_zone_with_somebody_or_something_in_it_stays_and_the_refusal_names_them() -> None:
    tenant = make_tenant("ml-team", zone="research")
    pool = make_pool(cluster=make_cluster("alpha"), name="h100")
    pool_keep(pool=pool, zone=tenant.zone, actor=ADMIN)
    with pytest.raises(Conflict, match=r"tenants in it: ml-team; pools kept for it: alpha/h100"):
        zone_delete(zone=tenant.zone, actor=ADMIN)


def test_only_a_platform_admin_changes_zones() -> None:
    tenant = make_tenant()
    owner = make_member(tenant, "owner", "owner")
    for change in (
        lambda: zone_create(slug="x-zone", name="", actor=owner),
        lambda: zone_update(zone=tenant.zone, name="x", actor=owner),
        lambda: zone_delete(zone=tenant.zone, actor=owner),
        lambda: pool_keep(pool=make_pool(), zone=tenant.zone, actor=owner),
        lambda: tenant_set_zone(tenant=tenant, zone=tenant.zone, actor=owner),
    ):
        with pytest.raises(Forbidden):
            change()


def test_a_pool_is_kept_for_a_zone_and_its_capacity_says_so_from_then_on() -> None:
    tenant = make_tenant()
    pool = make_pool(cluster=make_cluster("alpha"))
    node = make_node(pool)
    with system_scope("test"):
        changes = lock_changes(pool.cluster_id)
        capacity_set(node, InService(pool.gpu_type_id, "whole", None, 8), at=utcnow(), changes=changes)
        changes.save()
    pool_keep(pool=pool, zone=tenant.zone, actor=ADMIN)
    assert CapacitySpan.objects.get(ended_at__isnull=True).zone_id == tenant.zone_id
    (cluster,) = fleet_snapshot().clusters
    assert cluster.pools[0].zone == str(tenant.zone_id)
    pool_keep(pool=pool, zone=None, actor=ADMIN)
    assert NodePool.objects.get().zone_id is None
    assert CapacitySpan.objects.get(ended_at__isnull=True).zone_id is None
    assert verbs() == ["pool_zone_set", "pool_zone_set"]


@pytest.mark.parametrize("how", ["promised", "seen", "nobody's"])
def test_a_pool_is_not_kept_while_others_hold_cards_there(how: str) -> None:
    ours, theirs = make_tenant("ml-team"), make_tenant("team-vision")
    pool = make_pool(cluster=make_cluster("alpha"))
    node = make_node(pool)
    hold(ours, node)
    if how == "promised":
        hold(theirs, node)
        name = "t-team-vision"
    else:
        make_pod(node, namespace="their-space")
        name = "their-space"
        if how == "seen":
            claim(theirs, node, name)
    with pytest.raises(Conflict, match=rf"others hold cards there: {name} on node node-0"):
        pool_keep(pool=pool, zone=ours.zone, actor=ADMIN)
    assert NodePool.objects.get().zone_id is None


def test_of_the_zones_own_holders_none_is_in_the_way() -> None:
    ours, beside = make_tenant("ml-team", zone="research"), make_tenant("ml-platform", zone="research")
    pool = make_pool("hami", cluster=make_cluster("alpha"))
    node = make_node(pool, cards=1)
    hold(ours, node, device_uuid="GPU-node-0-0", memory_mib=1000, cores=10)
    claim(beside, node, "theirs")
    make_pod(node, namespace="theirs", hami=[("GPU-node-0-0", 1000, 10)])
    pool_keep(pool=pool, zone=ours.zone, actor=ADMIN)
    with system_scope("test"):
        (view,) = zone_views()
    assert not view.dedicated
    assert [pool.name for pool in view.pools] == ["pool-hami"]
    assert [(one.card, one.tenants) for one in view.sharing] == [("GPU-node-0-0", ("ml-platform", "ml-team"))]


def test_a_tenant_moves_with_what_it_holds_alone() -> None:
    tenant, zone = make_tenant("ml-team", zone="research"), make_tenant("elsewhere").zone
    beside = make_tenant("team-vision", zone="research")
    whole = make_node(make_pool(cluster=make_cluster("alpha")))
    shares = make_node(make_pool("hami", cluster=whole.cluster), name="node-1", cards=2)
    hold(tenant, whole)
    hold(beside, whole)  # whole cards of one node are not shared
    hold(tenant, shares, device_uuid="GPU-node-1-0", memory_mib=1000, cores=10)
    hold(beside, shares, device_uuid="GPU-node-1-1", memory_mib=1000, cores=10)
    moved = tenant_set_zone(tenant=tenant, zone=zone, actor=ADMIN)
    assert moved.zone_id == zone.pk
    assert set(Reservation.objects.filter(tenant_id=tenant.pk).values_list("zone_id", flat=True)) == {zone.pk}
    assert set(Reservation.objects.filter(tenant_id=beside.pk).values_list("zone_id", flat=True)) == {beside.zone_id}


@pytest.mark.parametrize("how", ["share promised", "share seen", "share of an unknown card", "slices"])
def test_a_tenant_that_shares_a_card_stays_and_the_refusal_names_with_whom(how: str) -> None:
    tenant, beside = make_tenant("ml-team", zone="research"), make_tenant("team-vision", zone="research")
    zone = make_tenant("elsewhere").zone
    if how == "slices":
        node = make_node(make_pool("mig"))
        hold(tenant, node, profile="1g.10gb", slices=1)
        hold(beside, node, profile="2g.20gb", slices=1)
    else:
        node = make_node(make_pool("hami"), cards=1)
        hold(tenant, node, device_uuid="GPU-node-0-0", memory_mib=1000, cores=10)
        if how == "share promised":
            hold(beside, node, device_uuid="GPU-node-0-0", memory_mib=1000, cores=10)
        else:
            claim(beside, node, "t-team-vision")
            if how == "share seen":
                make_pod(node, namespace="t-team-vision", hami=[("GPU-node-0-0", 1000, 10)])
            else:
                make_pod(node, namespace="t-team-vision", requests={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"})
    with pytest.raises(Conflict, match=r"shares cards with others of zone research: t-team-vision on node node-0"):
        tenant_set_zone(tenant=tenant, zone=zone, actor=ADMIN)
    assert Tenant.objects.get(pk=tenant.pk).zone_id == beside.zone_id


def test_a_tenant_in_a_kept_pool_stays_unless_the_pool_is_its_new_zones() -> None:
    tenant, zone = make_tenant("ml-team"), make_tenant("elsewhere").zone
    pool = make_pool(cluster=make_cluster("alpha"), name="h100", zone_id=tenant.zone_id)
    hold(tenant, make_node(pool))
    with pytest.raises(Conflict, match=r"kept for another zone than zone-elsewhere: alpha/h100"):
        tenant_set_zone(tenant=tenant, zone=zone, actor=ADMIN)
    pool_keep(pool=pool, zone=None, actor=ADMIN)
    tenant_set_zone(tenant=tenant, zone=zone, actor=ADMIN)
    pool_keep(pool=pool, zone=zone, actor=ADMIN)
    assert UUID(str(NodePool.objects.get().zone_id)) == zone.pk
