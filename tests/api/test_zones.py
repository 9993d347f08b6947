"""Zones, kept pools, a tenant's rules and a cluster's isolation over REST."""

from __future__ import annotations

import pytest
from django.test import Client

from infra.models import NodePool
from portal.accounts.models import User
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_VIEWER
from tenants.models import Member, Tenant
from tests.support.fleet import ISOLATION, make_cluster, make_node, make_pool
from tests.support.tenants import make_tenant

pytestmark = pytest.mark.django_db
JSON = "application/json"


def caller(role: str) -> Client:
    client = Client()
    client.force_login(User.objects.create_user(f"a-{role or 'person'}", platform_role=role))
    return client


@pytest.fixture
def tenant() -> Tenant:
    tenant = make_tenant()
    make_node(make_pool(cluster=make_cluster("alpha", isolation=ISOLATION, isolation_said={}), name="h100"), cards=2)
    return tenant


def test_a_zone(tenant: Tenant):
    client = caller(PLATFORM_ADMIN)
    kept = client.put("/api/v1/clusters/alpha/pools/h100/zone", {"zone": "zone-ml-team"}, JSON)
    assert kept.json() == {"cluster": "alpha", "pool": "h100", "zone": "zone-ml-team"}
    zone = client.get("/api/v1/zones/zone-ml-team").json()
    assert (zone["tenants"], zone["pools"], zone["dedicated"]) == (["ml-team"], ["alpha/h100"], True)
    assert client.patch("/api/v1/zones/zone-ml-team", {"name": "Their own"}, JSON).json()["name"] == "Their own"
    assert client.delete("/api/v1/zones/zone-ml-team").status_code == 409
    assert client.put("/api/v1/clusters/alpha/pools/h100/zone", {"zone": "nowhere"}, JSON).status_code == 422
    assert client.put("/api/v1/clusters/alpha/pools/l4/zone", {"zone": None}, JSON).status_code == 404
    assert client.put("/api/v1/clusters/alpha/pools/h100/zone", {"zone": None}, JSON).json()["zone"] is None
    assert client.post("/api/v1/zones", {"slug": "spare"}, JSON).status_code == 201
    assert client.delete("/api/v1/zones/spare").status_code == 204
    assert client.get("/api/v1/zones/spare").status_code == 404


def test_rules_of_a_tenant(tenant: Tenant):
    admin, member = caller(PLATFORM_ADMIN), caller("")
    Member.objects.create(tenant=tenant, user=User.objects.get(username="a-person"), role="owner")
    path = "/api/v1/tenants/ml-team/rules"
    wanted = {"image_registries": ["ghcr.io"], "pin_image_digests": True, "allow_remote_code": False}
    assert member.put(path, wanted, JSON).status_code == 403
    assert admin.put(path, wanted, JSON).json() == wanted | {"broken": []}
    assert member.get(path).json() == wanted
    refused = admin.put(path, wanted | {"image_registries": ["ghcr.io", "vllm"]}, JSON)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/image_registries/1"
    assert admin.put(path, wanted | {"image_registries": None}, JSON).json()["image_registries"] is None


def test_isolation_of_a_cluster(tenant: Tenant):
    admin, viewer = caller(PLATFORM_ADMIN), caller(PLATFORM_VIEWER)
    path = "/api/v1/clusters/alpha/isolation"
    body = viewer.get(path).json()
    assert body["isolated"] is False
    assert {piece["piece"]: piece["state"] for piece in body["pieces"]} == {
        "admission-policies": "yes", "pod-security": "yes", "resource-quota": "yes", "network-policies": "unknown",
    }  # fmt: skip
    said = {"how": "declared", "text": "tried with two pods"}
    assert viewer.put(f"{path}/pieces/network-policies", said, JSON).status_code == 403
    assert admin.put(f"{path}/pieces/network-policies", said, JSON).json()["isolated"] is True
    assert admin.put(f"{path}/pieces/pod-security", said, JSON).status_code == 422
    assert admin.post(path).status_code == 202
    assert admin.post(f"{path}/wanted", {"wanted": False}, JSON).json()["wanted"] is False
    assert NodePool.objects.count() == 1
