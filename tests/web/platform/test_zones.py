"""The pages about zones, about what a tenant may run, and about what keeps tenants apart on a cluster."""

from __future__ import annotations

import pytest
from django.test import Client

from infra.models import Cluster, NodePool
from portal.accounts.models import User
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_VIEWER
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from tenants.models import Tenant, TenantNamespace, Zone
from tenants.services.deployments import deployment_apply
from tests.support.fleet import ISOLATION, make_cluster, make_node, make_pool
from tests.support.tenants import TESTER, make_tenant
from tests.unit.tenants.manifests import manifest_data

pytestmark = pytest.mark.django_db

PAGES = ["/platform/zones/", "/platform/clusters/alpha/isolation", "/platform/tenants/ml-team/"]
CHANGES = [
    "/platform/zones/keep",
    "/platform/zones/zone-ml-team/rename",
    "/platform/zones/zone-ml-team/delete",
    "/platform/tenants/ml-team/rules",
    "/platform/clusters/alpha/isolation/ask",
    "/platform/clusters/alpha/isolation/say",
    "/platform/clusters/alpha/isolation/take-down",
]


@pytest.fixture
def tenant() -> Tenant:
    tenant = make_tenant()
    make_node(make_pool(cluster=make_cluster("alpha", isolation=ISOLATION, isolation_said={}), name="h100"), cards=2)
    return tenant


def browser(role: str) -> Client:
    client = Client()
    client.force_login(User.objects.create_user(f"a-{role or 'person'}", platform_role=role))
    return client


@pytest.mark.parametrize("page", PAGES)
def test_platform_roles_read_and_others_find_nothing(page: str, tenant: Tenant):
    assert browser(PLATFORM_VIEWER).get(page).status_code == 200
    assert browser("").get(page).status_code == 404


@pytest.mark.parametrize("address", CHANGES)
def test_readers_can_change_nothing(address: str, tenant: Tenant):
    assert browser(PLATFORM_VIEWER).post(address).status_code == 403
    assert browser(PLATFORM_ADMIN).get(address).status_code == 405, "no GET writes"


def test_zones_say_who_is_alone_and_what_is_kept(tenant: Tenant):
    client = browser(PLATFORM_ADMIN)
    pool = NodePool.objects.get()
    answer = client.post("/platform/zones/keep", {"pool": str(pool.pk), "zone": "zone-ml-team"}, follow=True)
    text = answer.content.decode()
    assert "Pool h100 on alpha is kept for zone-ml-team now." in text
    assert "dedicated" in text
    assert "What of them lies idle is charged to ml-team." in text
    make_tenant("ml-platform", zone="zone-ml-team")
    text = client.get("/platform/zones/").content.decode()
    assert "2 tenants share" in text
    assert "lies idle is overhead" in text
    refused = client.post("/platform/zones/zone-ml-team/delete")
    assert refused.status_code == 409
    assert "pools kept for it: alpha/h100" in refused.content.decode()
    client.post("/platform/zones/keep", {"pool": str(pool.pk), "zone": ""})
    assert NodePool.objects.get().zone_id is None


def test_a_zone_is_renamed_and_an_empty_one_deleted(tenant: Tenant):
    client = browser(PLATFORM_ADMIN)
    assert client.post("/platform/zones/create", {"zone-slug": "spare", "zone-name": ""}).status_code == 303
    client.post("/platform/zones/spare/rename", {"name": "Spare zone"})
    assert Zone.objects.get(slug="spare").name == "Spare zone"
    refused = client.post("/platform/zones/spare/rename", {"name": ""})
    assert (refused.status_code, "This field is required." in refused.content.decode()) == (422, True)
    pool = str(NodePool.objects.get().pk)
    client.post("/platform/zones/keep", {"pool": pool, "zone": "spare"})
    assert "no tenant is in the zone" in client.get("/platform/zones/").content.decode()
    client.post("/platform/zones/keep", {"pool": pool, "zone": ""})
    assert client.post("/platform/zones/spare/delete").status_code == 303
    assert not Zone.objects.filter(slug="spare").exists()


def test_rules_of_a_tenant_are_set_and_its_namespaces_and_broken_deployments_told(tenant: Tenant):
    client = browser(PLATFORM_ADMIN)
    with system_scope("test"):
        TenantNamespace.objects.create(tenant=tenant, cluster=Cluster.objects.get(), name="t-ml-team")
        deployment_apply(tenant=tenant, manifest=manifest_data(tenant=tenant.slug), actor=TESTER)
        WorkItem.objects.all().delete()
    body = {
        "only_these": "on",
        "image_registries": "ghcr.io/team/\nregistry.example.com:5000",
        "pin_image_digests": "on",
    }
    answer = client.post("/platform/tenants/ml-team/rules", body, follow=True)
    assert "These deployments break the new rules: qwen3-8b." in answer.content.decode()
    tenant.refresh_from_db()
    assert tenant.image_registries == ["ghcr.io/team", "registry.example.com:5000"]
    assert (tenant.pin_image_digests, tenant.allow_remote_code) == (True, False)
    assert WorkItem.objects.filter(kind="namespace").exists()
    for bad in ("https://ghcr.io", "vllm", "ghcr.io/Team", "ghcr.io/team:v1"):
        refused = client.post("/platform/tenants/ml-team/rules", {"only_these": "on", "image_registries": bad})
        assert refused.status_code == 422, bad
        assert "is no registry" in refused.content.decode()
    forgotten = client.post("/platform/tenants/ml-team/rules", {"image_registries": "ghcr.io"})
    assert forgotten.status_code == 422
    client.post("/platform/tenants/ml-team/rules", {"allow_remote_code": "on"})
    tenant.refresh_from_db()
    assert (tenant.image_registries, tenant.allow_remote_code) == (None, True)


def test_what_a_cluster_lacks_is_shown_declared_and_taken_back(tenant: Tenant):
    client, page = browser(PLATFORM_ADMIN), "/platform/clusters/alpha/isolation"
    assert "can&#x27;t be asked of the API server" in client.get(page).content.decode()
    say = {"piece": "network-policies", "how": "declared", "text": "tried with two pods"}
    text = client.post(f"{page}/say", say, follow=True).content.decode()
    assert "a-platform-admin answers for it: tried with two pods" in text
    assert "Every piece is there." in text
    assert client.post(f"{page}/say", say | {"piece": "pod-security"}).status_code == 422
    client.post(f"{page}/say", say | {"text": ""})
    assert not Cluster.objects.get().isolation_said["declared"]
    assert client.post(f"{page}/ask").status_code == 303
    assert WorkItem.objects.filter(kind="isolation").exists()
    assert client.post(f"{page}/take-down").status_code == 303
    assert not Cluster.objects.get().isolation_wanted
    assert "were taken down" in client.get(page).content.decode()
    client.post(f"{page}/put-up")
    assert Cluster.objects.get().isolation_wanted
