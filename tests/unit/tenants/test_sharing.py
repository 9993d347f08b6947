"""Shares with figures of their own, limits of namespaces, quotas on MIG profiles, and what a ResourceQuota says."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from infra.models import NamespaceClaim, Node, NodePool, Reservation
from infra.services.reservations import Holder, Line, NoCapacity, reserve
from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.clock import utcnow
from portal.kernel.ids import uuid7
from portal.kernel.models import AuditEvent, WorkItem
from portal.kernel.problems import Conflict, Forbidden, Invalid
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import run_item
from tenants.bundle import BundleFacts, GpuLimits, HamiLimits, namespace_bundle
from tenants.models import GPUQuota, ModelDeployment, QuotaAllotment, Tenant, TenantNamespace
from tenants.selectors.namespaces import gpu_limits
from tenants.selectors.profiles import parts_rows, profiles_offered
from tenants.services.deployments import deployment_apply
from tenants.services.previews import deployment_preview
from tenants.services.profile_quotas import quota_profiles_set
from tenants.services.sharing import tenant_sharing_set
from tests.support.fleet import make_cluster, make_node, make_pod, make_pool, make_type
from tests.support.tenants import CARD, TESTER, give_quota, make_tenant
from tests.unit.tenants.manifests import manifest_data

pytestmark = pytest.mark.django_db(transaction=True)

ADMIN = Actor(kind="user", name="platform-admin", platform_role=PLATFORM_ADMIN)
MEMBER = Actor(kind="user", name="ml-developer", user_id=uuid7())
FREE = {"memory": "20Gi", "cores": 25}
SMALL, LARGE = "1g.10gb", "3g.40gb"


def placed(tenant: Tenant, name: str, **share: Any) -> ModelDeployment:
    deployment = deployment_apply(tenant=tenant, manifest=manifest_data(name, share=share), actor=TESTER).deployment
    run_item(WorkItem.objects.get(kind="deployment", object_id=deployment.pk).pk)
    with system_scope("test"):
        return ModelDeployment.objects.get(pk=deployment.pk)


HAS = "Has its place"
"""What is said of a replica until its pods are there."""


def slices(profile: str) -> int:
    return sum(Reservation.objects.filter(profile=profile, released_at__isnull=True).values_list("slices", flat=True))


# --- figures of its own


def test_free_figures_are_refused_until_they_are_allowed() -> None:
    tenant = make_tenant()
    make_node(make_pool("hami"), cards=1)
    give_quota(tenant, make_type(), 1)
    with pytest.raises(Invalid) as refused:
        deployment_apply(tenant=tenant, manifest=manifest_data(share=FREE), actor=TESTER)
    (error,) = refused.value.errors
    assert error["pointer"].endswith("/nodeSelector/devices/0/share")
    assert "eighth, quarter, half" in error["detail"]
    assert "platform-admin" in error["detail"]
    assert HAS in placed(tenant, "part", profile="eighth").waiting
    with pytest.raises(Forbidden):
        tenant_sharing_set(tenant=tenant, free_shares=True, actor=MEMBER)
    tenant = tenant_sharing_set(tenant=tenant, free_shares=True, actor=ADMIN)
    assert HAS in placed(tenant, "free", **FREE).waiting
    row = Reservation.objects.get(memory_mib=20 * 1024)
    assert (row.cores, row.share) == (25, 20 * 1024 * CARD // 81_559)
    with system_scope("test"):
        assert AuditEvent.objects.filter(verb="tenant_sharing_set", outcome="done").count() == 1


def test_eight_eighths_fill_a_card_of_an_odd_size() -> None:
    tenant = make_tenant()
    make_node(make_pool("hami"), cards=1)
    give_quota(tenant, make_type(), 1)
    for number in range(8):
        assert HAS in placed(tenant, f"d{number}", profile="eighth").waiting
    assert "short by 1" in placed(tenant, "ninth", profile="eighth").waiting


def test_a_share_that_no_pool_offers_says_what_each_offers() -> None:
    tenant, cluster = make_tenant(), make_cluster()
    make_node(make_pool("whole", cluster=cluster), name="w-0")
    make_node(make_pool("mig", cluster=cluster), name="m-0", profile=SMALL)
    give_quota(tenant, make_type(), 8)
    said = {
        one.pool: one.sentence
        for one in deployment_preview(
            tenant=tenant, manifest=manifest_data(share={"profile": LARGE}), actor=TESTER
        ).not_chosen
    }
    assert "hands out whole cards; request gpu wants MIG slices 3g.40gb" in said["pool-whole"]
    assert "cut into 1g.10gb; request gpu wants MIG slices 3g.40gb" in said["pool-mig"]
    assert profiles_offered([make_type().pk]) == [SMALL]


# --- limits of namespaces


def test_limits_are_checked_key_by_key_and_written_again() -> None:
    tenant, cluster = make_tenant(), make_cluster()
    with system_scope("test"):
        row = TenantNamespace.objects.create(tenant=tenant, cluster=cluster, name=tenant.namespace)
    with pytest.raises(Invalid) as refused:
        tenant_sharing_set(
            tenant=tenant, namespace_limits={"limits.nvidia.com/gpu": 8, "services.nodeports": 5}, actor=ADMIN
        )
    assert {error["pointer"] for error in refused.value.errors} == {
        "/namespace_limits/limits.nvidia.com~1gpu",
        "/namespace_limits/services.nodeports",
    }
    tenant = tenant_sharing_set(tenant=tenant, namespace_limits={"pods": 200, "requests.storage": "1Ti"}, actor=ADMIN)
    with system_scope("test"):
        row.refresh_from_db()
    assert row.generation == 2
    assert WorkItem.objects.filter(kind="namespace", object_id=row.pk).exists()
    facts = BundleFacts(tenant.slug, tenant.pk, row.pk, row.name, limits=tenant.namespace_limits)
    hard = next(one for one in namespace_bundle(facts) if one["kind"] == "ResourceQuota")["spec"]["hard"]
    assert hard == {
        "pods": "200", "requests.nvidia.com/gpu": "0", "requests.storage": "1Ti", "services.loadbalancers": "0",
        "services.nodeports": "0",
    }  # fmt: skip


# --- the ResourceQuota of shares


def held(tenant: Tenant, node: Node, member: str, **what: Any) -> None:
    """A promise to a replica of its own."""
    pool = node.pool
    assert pool is not None
    assert pool.gpu_type_id is not None
    holder = Holder(tenant.pk, tenant.zone_id, tenant.namespace, uuid4(), uuid4())
    lines = what.pop("lines", [what])
    common = {"node_id": node.pk, "pool_id": pool.pk, "gpu_type_id": pool.gpu_type_id, "sharing": pool.sharing}
    with system_scope("test"):
        reserve(holder=holder, lines=[Line(**common, member=member, **line) for line in lines])  # type: ignore[arg-type]


def limits_of(tenant: Tenant, pool: NodePool, target: int, *, fixed: bool = False) -> GpuLimits:
    with system_scope("test"):
        quota = GPUQuota.objects.select_related("gpu_type").get(tenant=tenant)
        part = QuotaAllotment(
            tenant=tenant, quota=quota, cluster=pool.cluster, namespace=tenant.namespace, amount=target, target=target,
            fixed=fixed,
        )  # fmt: skip
        row = TenantNamespace(tenant=tenant, cluster=pool.cluster, name=tenant.namespace)
        return gpu_limits(row, [part])


def test_hami_sums_over_cards_and_the_fence_over_pods() -> None:
    tenant, pool = make_tenant(), make_pool("hami")
    node = make_node(pool, cards=2)
    give_quota(tenant, make_type(), 2)
    assert limits_of(tenant, pool, 0) == GpuLimits({"nvidia.com/gpu": 0}, HamiLimits(0, 0, 0))
    part = {"memory_mib": 2048, "cores": 10, "share": 100_000}
    held(tenant, node, "e/Standalone/0/0/gpu", lines=[
        {"device_uuid": "GPU-node-0-0", **part}, {"device_uuid": "GPU-node-0-1", **part}])  # fmt: skip
    held(tenant, node, "e/Standalone/0/0/gpu", device_uuid="GPU-node-0-0", **part)
    limits = limits_of(tenant, pool, 300_000)
    assert limits.resources == {"nvidia.com/gpu": 3}
    assert limits.hami == HamiLimits(memory_mib=3 * 2048, cores=30, fence_mib=2 * 2048)


def test_what_was_handed_over_is_room_for_shares_too() -> None:
    tenant, pool = make_tenant(), make_pool("hami")
    make_node(pool, cards=2)
    give_quota(tenant, make_type(), 2)
    limits = limits_of(tenant, pool, 3 * CARD // 2, fixed=True)
    memory = 81_559 * 3 // 2
    assert limits == GpuLimits({"nvidia.com/gpu": 1}, HamiLimits(memory, 150, memory))


def test_a_part_that_was_handed_over_holds_the_named_slices() -> None:
    tenant, pool = make_tenant(), make_pool("mig")
    make_node(pool, profile=SMALL)
    give_quota(tenant, make_type(), 2)
    assert limits_of(tenant, pool, 2 * CARD, fixed=True).resources == {
        "nvidia.com/gpu": 2, "nvidia.com/mig-1g.10gb": 0,
    }  # fmt: skip
    quota_profiles_set(tenant=tenant, gpu_type=make_type(), profiles={SMALL: 3}, actor=ADMIN)
    assert limits_of(tenant, pool, 2 * CARD, fixed=True).resources == {
        "nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 3,
    }  # fmt: skip


def test_slices_that_others_made_leave_room_for_ours_where_a_slice_is_called_a_card() -> None:
    """Strategy single: the API server counts their slices as ``nvidia.com/gpu``, as it does ours."""
    tenant, pool = make_tenant(), make_pool("mig")
    node = make_node(pool, cards=1)
    Node.objects.filter(pk=node.pk).update(allocatable={"nvidia.com/gpu": "7"}, mig_profile=SMALL)
    node.cluster.claims.create(namespace=tenant.namespace, tenant_id=tenant.pk, valid_from=utcnow(), created_by="test")
    give_quota(tenant, make_type(), 2)
    held(tenant, node, "e/Standalone/0/0/gpu", profile=SMALL, slices=1, share=142_857)
    make_pod(node, namespace=tenant.namespace, requests={"nvidia.com/gpu": "2"})
    assert limits_of(tenant, pool, 3 * 142_857).resources == {"nvidia.com/gpu": 3}


# --- MIG profiles


@pytest.mark.parametrize(
    ("profiles", "said"),
    [
        ({"1g": 1}, "no MIG profile"),
        ({"8g.80gb": 1}, "more slices than a card"),
        ({SMALL: -1}, "number of instances"),
        ({SMALL: True}, "number of instances"),
        ({"1g.10gb+me": 1, "1g.10gb.me": 2}, "named twice"),
    ],
)
def test_profiles_that_are_none(profiles: dict[str, Any], said: str) -> None:
    tenant = make_tenant()
    give_quota(tenant, make_type(), 1)
    with pytest.raises(Invalid) as refused:
        quota_profiles_set(tenant=tenant, gpu_type=make_type(), profiles=profiles, actor=ADMIN)
    assert said in refused.value.errors[0]["detail"]


def test_profiles_need_a_quota_on_the_cards() -> None:
    with pytest.raises(Conflict, match="Set its cards first"):
        quota_profiles_set(tenant=make_tenant(), gpu_type=make_type(), profiles={SMALL: 1}, actor=ADMIN)
    with pytest.raises(Forbidden):
        quota_profiles_set(tenant=make_tenant("other"), gpu_type=make_type(), profiles={SMALL: 1}, actor=MEMBER)


def test_a_profile_s_limit_holds_beside_the_cards() -> None:
    tenant, cluster = make_tenant(), make_cluster()
    node = make_node(make_pool("mig", cluster=cluster), cards=1, profile=SMALL, slices=4)
    Node.objects.filter(pk=node.pk).update(allocatable=node.allocatable | {f"nvidia.com/mig-{LARGE}": "1"})
    give_quota(tenant, make_type(), 1)
    quota_profiles_set(tenant=tenant, gpu_type=make_type(), profiles={SMALL: 1, LARGE: 0}, actor=ADMIN)
    assert HAS in placed(tenant, "a", profile=SMALL).waiting
    second = placed(tenant, "b", profile=SMALL).waiting
    assert f"needs 1 MIG slices {SMALL}" in second
    assert "the quota has 0 left (short by 1)" in second
    assert f"needs 1 MIG slices {LARGE}" in placed(tenant, "c", profile=LARGE).waiting
    assert (slices(SMALL), slices(LARGE)) == (1, 0)
    quota_profiles_set(tenant=tenant, gpu_type=make_type(), profiles={SMALL: 0}, actor=ADMIN)
    with system_scope("test"):
        (row,) = parts_rows(tenant)
    (line,) = row.profiles
    assert (line.profile, line.held, line.limit, line.over_by) == (SMALL, 1, 0, 1)
    assert HAS in placed(tenant, "d", profile=LARGE).waiting, "a profile that is not named is limited by cards alone"


def test_the_last_slice_of_a_node_goes_to_one_of_two_asks() -> None:
    """The ledger counts each profile by itself."""
    tenant = make_tenant()
    node = make_node(make_pool("mig"), cards=1, profile=SMALL, slices=4)
    Node.objects.filter(pk=node.pk).update(allocatable=node.allocatable | {f"nvidia.com/mig-{LARGE}": "1"})
    for number in range(4):
        held(tenant, node, f"e/Standalone/0/{number}/gpu", profile=SMALL, slices=1, share=142_857)
    with pytest.raises(NoCapacity, match=f"0 MIG slices {SMALL} free"):
        held(tenant, node, "e/Standalone/0/9/gpu", profile=SMALL, slices=1, share=142_857)
    held(tenant, node, "e/Standalone/0/8/gpu", profile=LARGE, slices=1, share=428_571)
    with pytest.raises(NoCapacity, match=f"0 MIG slices {LARGE} free"):
        held(tenant, node, "e/Standalone/0/9/gpu", profile=LARGE, slices=1, share=428_571)


def test_what_others_made_is_counted_and_open_cores_are_told() -> None:
    tenant = make_tenant()
    node = make_node(make_pool("hami"), cards=1)
    NamespaceClaim.objects.create(
        cluster=node.cluster, namespace="team-a", tenant_id=tenant.pk, valid_from=utcnow(), created_by="test"
    )
    asked = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"}
    make_pod(node, requests=asked, hami=[("GPU-node-0-0", 4096, 0)])
    with system_scope("test"):
        (row,) = parts_rows(tenant)
    assert (row.held.shares, row.held.memory_mib, row.held.cores, row.held.uncapped) == (1, 4096, 0, 1)
