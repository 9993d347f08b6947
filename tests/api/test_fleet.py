"""The fleet over REST: roles, input, answers."""

from __future__ import annotations

import pytest
from django.test import Client

from infra.models import Cluster, GPUType, NamespaceClaim
from portal.accounts.models import User
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_VIEWER
from tenants.models import Tenant
from tests.support.fleet import make_cluster, make_node, make_pool, make_type
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
    make_node(make_pool(cluster=make_cluster("alpha")), cards=2, name="alpha-0")
    return tenant


READS = [
    "sites",
    "clusters",
    "clusters/alpha",
    "clusters/alpha/nodes",
    "clusters/alpha/pools",
    "gpu-types",
    "namespace-claims",
    "namespaces/unmapped",
]


@pytest.mark.parametrize("path", READS)
def test_platform_roles_read_others_find_nothing(path: str, tenant: Tenant):
    assert caller(PLATFORM_VIEWER).get(f"/api/v1/{path}").status_code == 200
    assert caller("").get(f"/api/v1/{path}").status_code == 404
    assert Client().get(f"/api/v1/{path}").status_code == 401


def test_a_reader_changes_nothing(tenant: Tenant):
    viewer = caller(PLATFORM_VIEWER)
    for path in ("sites", "clusters", "clusters/alpha/pause", "namespace-claims", "manifests"):
        assert viewer.post(f"/api/v1/{path}", {}, JSON).status_code == 403, path
    assert not Cluster.objects.get(slug="alpha").paused


def test_no_kubeconfig_comes_out(tenant: Tenant):
    body = caller(PLATFORM_ADMIN).get("/api/v1/clusters/alpha").json()
    assert not [key for key in body if "kubeconfig" in key or "cipher" in key]
    assert body["site"]
    assert body["mode"]


def test_lists_are_pages(tenant: Tenant):
    for number in range(3):
        make_cluster(f"more-{number}")
    admin = caller(PLATFORM_ADMIN)
    first = admin.get("/api/v1/clusters?page_size=2").json()
    second = admin.get(first["next"]).json()
    slugs = [row["slug"] for row in first["results"] + second["results"]]
    assert slugs == ["alpha", "more-0", "more-1", "more-2"]
    assert second["next"] is None


def test_a_site_is_made_once_and_renamed(tenant: Tenant):
    admin = caller(PLATFORM_ADMIN)
    made = admin.post("/api/v1/sites", {"slug": "oslo", "name": "Oslo"}, JSON)
    assert made.status_code == 201
    assert admin.post("/api/v1/sites", {"slug": "oslo"}, JSON).status_code in (409, 422)
    assert admin.patch("/api/v1/sites/oslo", {"name": "Oslo North"}, JSON).json()["name"] == "Oslo North"


def test_an_unknown_site_in_a_body_is_a_wrong_value_not_a_missing_page(tenant: Tenant):
    answer = caller(PLATFORM_ADMIN).patch("/api/v1/clusters/alpha", {"site": "nowhere"}, JSON)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/site"


def test_pausing_and_resuming(tenant: Tenant):
    admin = caller(PLATFORM_ADMIN)
    assert admin.post("/api/v1/clusters/alpha/pause").json()["paused"] is True
    assert admin.post("/api/v1/clusters/alpha/resume").json()["paused"] is False


def test_a_claim_is_set_and_ended(tenant: Tenant):
    admin = caller(PLATFORM_ADMIN)
    body = {"cluster": "alpha", "namespace": "x", "tenant_id": str(tenant.pk), "valid_from": "2026-01-01T00:00:00Z"}
    made = admin.post("/api/v1/namespace-claims", body, JSON)
    assert made.status_code == 201
    overlap = {**body, "valid_from": "2026-02-01T00:00:00Z"}
    assert admin.post("/api/v1/namespace-claims", overlap, JSON).status_code == 409
    end = f"/api/v1/namespace-claims/{made.json()['id']}/end"
    assert admin.post(end, {"valid_to": "2025-01-01T00:00:00Z"}, JSON).status_code == 422
    assert admin.post(end, {"valid_to": "2026-02-01T00:00:00Z"}, JSON).status_code == 200
    assert NamespaceClaim.objects.get(namespace="x").valid_to is not None


def test_an_inference_class_becomes_a_gpu_type(tenant: Tenant):
    manifest = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceClass",
        "metadata": {"name": "l40s"},
        "spec": {
            "devices": [
                {
                    "name": "gpu",
                    "driver": "gpu.nvidia.com",
                    "deviceClassName": "gpu.nvidia.com",
                    "count": 4,
                    "attributes": {"architecture": {"string": "Ada Lovelace"}},
                    "capacity": {"memory": {"value": "46068Mi"}},
                }
            ]
        },
    }
    admin = caller(PLATFORM_ADMIN)
    before = GPUType.objects.count()
    assert admin.post("/api/v1/manifests", manifest, JSON).status_code == 200
    assert GPUType.objects.filter(memory_mib=46068).exists()
    assert admin.post("/api/v1/manifests", manifest, JSON).status_code == 200
    assert GPUType.objects.count() == before + 1
    manifest["spec"] = {"devices": []}
    answer = admin.post("/api/v1/manifests", manifest, JSON)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith("/spec/devices")


def test_types_say_what_selectors_see(tenant: Tenant):
    make_type()
    (row,) = caller(PLATFORM_VIEWER).get("/api/v1/gpu-types").json()["results"]
    assert row["memory_mib"] > 0
    assert "memory" in row["capacity"]
