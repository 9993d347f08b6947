"""Tenants, members, quotas and allotments: the changes, their refusals, their audit."""

from __future__ import annotations

from uuid import uuid4

import pytest

from infra.models import Cluster
from portal.kernel.models import AuditEvent
from portal.kernel.problems import Conflict, Forbidden, Invalid, NotFound
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.models import GPUQuota, Member, QuotaAllotment, Tenant, TenantNamespace, TenantSite
from tenants.selectors.quota import quota_lines
from tenants.services.allotments import (
    QuotaExceeded,
    allotment_require,
    allotments_confirmed,
    allotments_settle,
    cards,
    quota_locked,
)
from tenants.services.members import member_remove, member_set
from tenants.services.quotas import quota_set
from tenants.services.tenants import tenant_create, tenant_set_state, tenant_update
from tenants.services.zones import zone_create
from tests.tenants.factories import ADMIN, CARD, make_gpu_type, make_member, make_site, make_tenant, make_user

pytestmark = pytest.mark.django_db


def events(verb: str) -> list[AuditEvent]:
    with system_scope("test"):
        return list(AuditEvent.objects.filter(verb=verb))


def make_cluster(slug: str = "east") -> Cluster:
    return Cluster.objects.create(
        slug=slug,
        name=slug,
        site=make_site(),
        mode=Cluster.Mode.MANAGE,
        api_server="https://127.0.0.1:1",
        kubeconfig_ciphertext=b"none",
        identity=f"identity-{slug}",
    )


# --- tenants -----------------------------------------------------------------------------------------------------


def test_a_tenant_is_made_with_its_sites_and_the_change_is_audited():
    zone = zone_create(slug="research", name="", actor=ADMIN)
    tenant = tenant_create(slug="ml-team", name="", zone=zone, sites=[make_site()], actor=ADMIN)
    assert tenant.namespace == "t-ml-team"
    (event,) = events("tenant_create")
    assert (event.tenant_id, event.after["sites"]) == (tenant.pk, ["frankfurt"])


@pytest.mark.parametrize("slug", ["", "Ml", "9lives", "a_b", "-a", "a-", "a" * 41, "idle", "ümlaut", "a b"])
def test_slugs_that_could_not_name_a_namespace_are_refused_with_a_pointer(slug):
    zone = zone_create(slug="research", name="", actor=ADMIN)
    with pytest.raises(Invalid) as caught:
        tenant_create(slug=slug, name="", zone=zone, sites=[], actor=ADMIN)
    assert caught.value.errors[0]["pointer"] == "/slug"
    assert not Tenant.objects.exists()


def test_a_slug_is_taken_once():
    tenant = make_tenant()
    with pytest.raises(Conflict, match="ml-team"):
        tenant_create(slug="ml-team", name="", zone=tenant.zone, sites=[], actor=ADMIN)


def test_only_a_platform_admin_makes_tenants():
    tenant = make_tenant()
    with pytest.raises(Forbidden):
        tenant_create(slug="x", name="", zone=tenant.zone, sites=[], actor=make_member(tenant, "owner", "owner"))


def test_an_update_changes_what_is_given_and_nothing_else():
    tenant = make_tenant(sites=("frankfurt", "helsinki"))
    tenant_update(tenant=tenant, actor=ADMIN, sites=[make_site("helsinki")])
    tenant.refresh_from_db()
    assert tenant.name == "ml-team"
    assert list(TenantSite.objects.values_list("site__slug", flat=True)) == ["helsinki"]
    (event,) = events("tenant_update")
    assert event.before["sites"] == ["frankfurt", "helsinki"]
    tenant_update(tenant=tenant, actor=ADMIN, name="ml-team")
    assert len(events("tenant_update")) == 1


def test_a_required_cost_code_needs_a_default():
    with pytest.raises(Invalid):
        tenant_update(tenant=make_tenant(), actor=ADMIN, cost_code_required=True)


def test_states_are_a_closed_list():
    with pytest.raises(Invalid):
        tenant_set_state(tenant=make_tenant(), state="gone", actor=ADMIN)


# --- members -----------------------------------------------------------------------------------------------------


def test_the_last_owner_stays():
    tenant = make_tenant()
    owner = make_member(tenant, "owner", Member.Role.OWNER)
    with pytest.raises(Conflict, match="owner"):
        member_set(tenant=tenant, username="owner", role="viewer", actor=owner)
    with pytest.raises(Conflict, match="owner"):
        member_remove(tenant=tenant, username="owner", actor=owner)
    make_user("second")
    member_set(tenant=tenant, username="second", role="owner", actor=owner)
    member_remove(tenant=tenant, username="owner", actor=owner)
    assert list(Member.objects.values_list("user__username", flat=True)) == ["second"]


def test_members_are_users_that_exist():
    tenant = make_tenant()
    owner = make_member(tenant, "owner", Member.Role.OWNER)
    with pytest.raises(Invalid) as caught:
        member_set(tenant=tenant, username="nobody", role="viewer", actor=owner)
    assert caught.value.errors[0]["pointer"] == "/username"
    with pytest.raises(NotFound):
        member_remove(tenant=tenant, username="nobody", actor=owner)


# --- quotas ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "guaranteed"), [(-1, 0), (10**13, 0), (1, 2), (0, -1)])
def test_quota_figures_are_checked(limit, guaranteed):
    with pytest.raises(Invalid):
        quota_set(tenant=make_tenant(), gpu_type=make_gpu_type(), limit=limit, guaranteed=guaranteed, actor=ADMIN)


def test_zero_is_a_quota_of_zero():
    tenant, gpu_type = make_tenant(), make_gpu_type()
    quota_set(tenant=tenant, gpu_type=gpu_type, limit=0, actor=ADMIN)
    with tenant_scope(tenant.pk):
        (line,) = quota_lines(tenant)
        assert (line.quota.limit, line.left, line.admitted) == (0, 0, 0)


def test_a_quota_that_did_not_change_leaves_no_trace():
    tenant, gpu_type = make_tenant(), make_gpu_type()
    for _ in range(2):
        quota_set(tenant=tenant, gpu_type=gpu_type, limit=8 * CARD, actor=ADMIN)
    assert len(events("quota_set")) == 1


@pytest.mark.parametrize(
    ("millionths", "text"), [(0, "0"), (CARD, "1"), (8 * CARD, "8"), (250_000, "0.25"), (1_142_857, "1.142857")]
)
def test_cards_are_written_as_people_write_them(millionths, text):
    assert cards(millionths) == text


# --- allotments --------------------------------------------------------------------------------------------------


@pytest.fixture
def quota():
    tenant, gpu_type = make_tenant(), make_gpu_type()
    quota_set(tenant=tenant, gpu_type=gpu_type, limit=8 * CARD, actor=ADMIN)
    with system_scope("test"):
        return quota_locked(tenant.pk, [gpu_type.pk])[gpu_type.pk]


def test_the_parts_on_all_clusters_together_stay_within_the_limit(quota: GPUQuota):
    east, west = make_cluster("east"), make_cluster("west")
    with system_scope("test"):
        allotment_require(quota=quota, cluster=east, namespace="t-ml-team", needed=5 * CARD)
        allotment_require(quota=quota, cluster=west, namespace="t-ml-team", needed=3 * CARD)
        with pytest.raises(QuotaExceeded) as caught:
            allotment_require(quota=quota, cluster=west, namespace="t-ml-team", needed=4 * CARD)
    assert str(caught.value) == ("Quota of h100-80gb is full: 8 of 8 cards are taken, 1 more asked for, 0 left.")


def test_growing_a_part_bumps_the_namespace_so_that_its_quota_is_raised_first(quota: GPUQuota):
    east = make_cluster()
    with system_scope("test"):
        row = TenantNamespace.objects.create(tenant=quota.tenant, cluster=east, name="t-ml-team")
        allotment_require(quota=quota, cluster=east, namespace="t-ml-team", needed=CARD)
        row.refresh_from_db()
        assert row.generation == 2
        # Also where the part is large enough: the ResourceQuota counts by resource, and it may be another one now.
        allotment_require(quota=quota, cluster=east, namespace="t-ml-team", needed=CARD)
        row.refresh_from_db()
        assert row.generation == 3


def test_a_freed_part_counts_until_the_cluster_has_confirmed_the_lower_figure(quota: GPUQuota):
    east, west = make_cluster("east"), make_cluster("west")
    with system_scope("test"):
        part = allotment_require(quota=quota, cluster=east, namespace="t-ml-team", needed=8 * CARD)
        allotments_settle(tenant_id=quota.tenant_id, cluster_id=east.pk)
        part.refresh_from_db()
        assert (part.target, part.amount) == (0, 8 * CARD)
        with pytest.raises(QuotaExceeded):
            allotment_require(quota=quota, cluster=west, namespace="t-ml-team", needed=CARD)
        assert allotments_confirmed(
            tenant_id=quota.tenant_id, cluster_id=east.pk, namespace="t-ml-team", targets={part.pk: 0}
        )
        allotment_require(quota=quota, cluster=west, namespace="t-ml-team", needed=CARD)


def test_a_confirmation_of_the_past_does_not_undo_a_part_that_grew_again(quota: GPUQuota):
    east = make_cluster()
    with system_scope("test"):
        part = allotment_require(quota=quota, cluster=east, namespace="t-ml-team", needed=6 * CARD)
        allotments_settle(tenant_id=quota.tenant_id, cluster_id=east.pk)
        allotment_require(quota=quota, cluster=east, namespace="t-ml-team", needed=4 * CARD)
        allotments_confirmed(tenant_id=quota.tenant_id, cluster_id=east.pk, namespace="t-ml-team", targets={part.pk: 0})
        part.refresh_from_db()
        assert (part.target, part.amount) == (4 * CARD, 4 * CARD)


def test_a_foreign_tenants_rows_are_not_there(quota: GPUQuota):
    with tenant_scope(make_tenant("team-vision").pk):
        assert not GPUQuota.objects.filter(pk=quota.pk).exists()
        assert not QuotaAllotment.objects.exists()
    with pytest.raises(Exception, match="scope"):
        GPUQuota.objects.filter(pk=uuid4()).exists()
