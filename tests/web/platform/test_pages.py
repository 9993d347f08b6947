"""The platform's pages: who may open them, what they show, what they change."""

from __future__ import annotations

import pytest
from django.test import Client

from infra.models import Cluster, NamespaceClaim, Site
from portal.accounts.models import User
from portal.kernel import workqueue
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_FINANCE, PLATFORM_VIEWER
from portal.kernel.ids import uuid7
from portal.kernel.models import AuditEvent, WorkItem
from portal.kernel.scoping import system_scope
from tenants.models import GPUQuota, Member, Tenant, Zone
from tests.support.fleet import make_cluster, make_node, make_pool, make_type
from tests.support.tenants import make_tenant

pytestmark = pytest.mark.django_db

PAGES = [
    "/platform/",
    "/platform/clusters/",
    "/platform/clusters/alpha/",
    "/platform/tenants/",
    "/platform/tenants/ml-team/",
    "/platform/namespaces/",
    "/platform/work/",
    "/platform/audit/",
]
ADMIN_PAGES = ["/platform/clusters/connect", "/platform/manifests/"]


@pytest.fixture
def fleet() -> Tenant:
    tenant = make_tenant()
    make_node(make_pool(cluster=make_cluster("alpha")), cards=2, name="alpha-0")
    return tenant


def browser(role: str) -> Client:
    client = Client()
    client.force_login(User.objects.create_user(f"a-{role or 'person'}", platform_role=role))
    return client


@pytest.mark.parametrize("page", PAGES)
def test_platform_roles_read_and_others_find_nothing(page: str, fleet: Tenant):
    for role in (PLATFORM_ADMIN, PLATFORM_VIEWER, PLATFORM_FINANCE):
        expected = 403 if page == "/platform/audit/" and role == PLATFORM_FINANCE else 200
        assert browser(role).get(page).status_code == expected, role
    assert browser("").get(page).status_code == 404


@pytest.mark.parametrize("page", ADMIN_PAGES)
def test_forms_of_the_platform_are_for_its_admins(page: str, fleet: Tenant):
    assert browser(PLATFORM_ADMIN).get(page).status_code == 200
    assert browser(PLATFORM_VIEWER).get(page).status_code == 403


@pytest.mark.parametrize(
    "address",
    [
        "/platform/tenants/create",
        "/platform/tenants/ml-team/quota",
        "/platform/tenants/ml-team/state",
        "/platform/clusters/alpha/pause",
        "/platform/clusters/alpha/abandon",
        "/platform/namespaces/",
    ],
)
def test_readers_can_change_nothing(address: str, fleet: Tenant):
    assert browser(PLATFORM_VIEWER).post(address).status_code in (403, 422)
    assert browser(PLATFORM_ADMIN).get(address).status_code in (200, 405), "no GET writes"
    assert not Cluster.objects.get(slug="alpha").paused


def test_the_overview_puts_what_needs_attention_first(fleet: Tenant):
    Cluster.objects.update(paused=True)
    page = browser(PLATFORM_VIEWER).get("/platform/").content.decode()
    assert "alpha is paused: nothing is written to it." in page
    assert page.index("Needs attention") < page.index("Pools")


def test_a_tenant_from_nothing_to_quota_and_owner(fleet: Tenant):
    admin = browser(PLATFORM_ADMIN)
    gpu_type, site = make_type(), Site.objects.first()
    assert site is not None
    assert admin.post("/platform/zones/create", {"zone-slug": "clinical", "zone-name": ""}).status_code == 303
    answer = admin.post(
        "/platform/tenants/create",
        {"slug": "radiology", "zone": "clinical", "sites": [site.slug], "cost_code": "CC-1"},
    )
    assert (answer.status_code, answer["Location"]) == (303, "/platform/tenants/radiology/")
    User.objects.create_user("chief")
    answer = admin.post("/platform/tenants/radiology/members", {"username": "Chief", "role": "owner"})
    assert answer.status_code == 303
    answer = admin.post(
        "/platform/tenants/radiology/quota", {"gpu_type": gpu_type.slug, "limit": "2.5", "guaranteed": "1"}
    )
    assert answer.status_code == 303
    tenant = Tenant.objects.get(slug="radiology")
    assert Member.objects.get(tenant=tenant).user.username == "chief"
    with system_scope("test"):
        quota = GPUQuota.objects.get(tenant=tenant)
        assert (quota.limit, quota.guaranteed) == (2_500_000, 1_000_000)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"slug": "idle"}, "reserved"),
        ({"slug": "ml-team"}, "There is a tenant ml-team already."),
        ({"slug": "Big Team"}, "valid"),
        ({"slug": "fine", "zone": "none"}, "choice"),
    ],
)
def test_bad_tenants_are_named_at_the_field(data: dict[str, str], message: str, fleet: Tenant):
    zone = Zone.objects.first()
    assert zone is not None
    answer = browser(PLATFORM_ADMIN).post("/platform/tenants/create", {"zone": zone.slug, **data})
    assert answer.status_code == 422
    assert message in answer.content.decode()


def test_quota_figures_are_refused_with_the_form_kept(fleet: Tenant):
    admin, gpu_type = browser(PLATFORM_ADMIN), make_type()
    body = {"gpu_type": gpu_type.slug, "limit": "1", "guaranteed": "2"}
    answer = admin.post("/platform/tenants/ml-team/quota", body)
    assert answer.status_code == 422
    page = answer.content.decode()
    assert "Guaranteed can&#x27;t be more than the limit." in page
    assert 'value="2"' in page


def test_suspending_a_tenant_and_back(fleet: Tenant):
    admin = browser(PLATFORM_ADMIN)
    for state in ("suspended", "active"):
        assert admin.post("/platform/tenants/ml-team/state", {"state": state}).status_code == 303
        assert Tenant.objects.get(slug="ml-team").state == state
    assert admin.post("/platform/tenants/ml-team/state", {"state": "gone"}).status_code == 422


def test_a_namespace_is_given_to_a_tenant_and_taken_back(fleet: Tenant):
    admin = browser(PLATFORM_ADMIN)
    body = {"cluster": "alpha", "namespace": "theirs", "tenant": "ml-team", "valid_from": "2026-01-01 00:00"}
    assert admin.post("/platform/namespaces/", body).status_code == 303
    claim = NamespaceClaim.objects.get(namespace="theirs")
    assert claim.tenant_id == fleet.pk
    again = admin.post("/platform/namespaces/", {**body, "valid_from": "2026-02-01 00:00"})
    assert again.status_code == 422
    assert "is claimed from" in again.content.decode()
    assert admin.post(f"/platform/namespaces/{claim.pk}/end").status_code == 303
    claim.refresh_from_db()
    assert claim.valid_to is not None


def test_pausing_a_cluster_is_audited(fleet: Tenant):
    admin = browser(PLATFORM_ADMIN)
    assert admin.post("/platform/clusters/alpha/pause").status_code == 303
    assert Cluster.objects.get(slug="alpha").paused
    assert admin.post("/platform/clusters/alpha/resume").status_code == 303
    with system_scope("test"):
        verbs = set(AuditEvent.objects.filter(object_name="alpha").values_list("verb", flat=True))
    assert verbs >= {"cluster_pause", "cluster_resume"}


def test_giving_a_cluster_up_needs_its_name_and_a_reason(fleet: Tenant):
    admin = browser(PLATFORM_ADMIN)
    answer = admin.post("/platform/clusters/alpha/abandon", {"confirm": "beta", "reason": "burnt down last night"})
    assert answer.status_code == 422
    answer = admin.post("/platform/clusters/alpha/abandon", {"confirm": "alpha", "reason": "x"})
    assert answer.status_code == 422
    assert Cluster.objects.get(slug="alpha").abandoned_at is None
    answer = admin.post("/platform/clusters/alpha/abandon", {"confirm": "alpha", "reason": "burnt down last night"})
    assert answer.status_code == 303
    assert Cluster.objects.get(slug="alpha").abandoned_at is not None


def test_a_kubeconfig_that_runs_code_is_refused_and_not_shown_back_in_an_error(fleet: Tenant):
    admin, site = browser(PLATFORM_ADMIN), Site.objects.first()
    assert site is not None
    kubeconfig = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority-data: AAAA}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {exec: {command: /bin/sh, apiVersion: client.authentication.k8s.io/v1}}}]
"""
    body = {"slug": "evil", "site": site.slug, "mode": "observe", "kubeconfig": kubeconfig}
    answer = admin.post("/platform/clusters/connect", body)
    assert answer.status_code == 422
    assert "exec" in answer.content.decode()
    assert not Cluster.objects.filter(slug="evil").exists()


def test_a_stuck_item_is_shown_and_can_be_looked_at_again(fleet: Tenant):
    object_id = uuid7()
    with system_scope("test"):
        workqueue.mark("replica", object_id)
        WorkItem.objects.filter(object_id=object_id).update(
            stalled_at="2026-01-01T00:00Z", last_error="the cluster says no", next_attempt_at="2100-01-01T00:00Z"
        )
    admin = browser(PLATFORM_ADMIN)
    assert "the cluster says no" in admin.get("/platform/work/").content.decode()
    item = WorkItem.objects.get(object_id=object_id)
    assert admin.post(f"/platform/work/{item.pk}/retry").status_code == 303
    item.refresh_from_db()
    assert item.next_attempt_at is not None
    assert item.next_attempt_at.year < 2100


def test_the_audit_shows_who_read_platform_pages_only_on_demand(fleet: Tenant):
    client = browser(PLATFORM_ADMIN)
    client.get("/platform/")
    assert "platform overview" not in client.get("/platform/audit/").content.decode()
    shown = client.get("/platform/audit/?reads=1").content.decode()
    assert "platform overview" in shown
    assert "checked" in shown.split('name="reads"')[1].split(">")[0]
