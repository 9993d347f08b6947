"""Tenants, quotas and deployments over REST."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import yaml
from django.test import Client

from portal.accounts.models import User
from portal.accounts.services import token_create, user_actor
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.clock import utcnow
from portal.kernel.scoping import system_scope
from tenants.models import Member, ModelDeployment, Tenant
from tests.support.fleet import make_cluster, make_node, make_pool, make_type
from tests.support.tenants import give_quota, make_tenant
from tests.unit.tenants.manifests import manifest_data

pytestmark = pytest.mark.django_db
JSON = "application/json"
HERE = "/api/v1/tenants/ml-team"


@pytest.fixture
def tenant() -> Tenant:
    tenant = make_tenant()
    gpu_type = make_type()
    make_node(make_pool(cluster=make_cluster("alpha")), cards=2, name="alpha-0")
    give_quota(tenant, gpu_type, 2)
    return tenant


def member(tenant: Tenant, role: str) -> Client:
    user = User.objects.create_user(f"a-{role}")
    Member.objects.create(tenant=tenant, user=user, role=role)
    client = Client()
    client.force_login(user)
    return client


def admin() -> Client:
    client = Client()
    client.force_login(User.objects.create_user("an-admin", platform_role=PLATFORM_ADMIN))
    return client


def wish(**changes: Any) -> dict[str, Any]:
    data = manifest_data()
    data["spec"].update({"replicas": 2} | changes)
    return data


@pytest.mark.parametrize(
    ("role", "reads", "writes", "audits"),
    [("owner", 200, 202, 200), ("developer", 200, 202, 403), ("viewer", 200, 403, 403), ("finance", 200, 403, 403)],
)
def test_roles(tenant: Tenant, role: str, reads: int, writes: int, audits: int):
    client = member(tenant, role)
    for path in ("", "/members", "/quotas", "/deployments"):
        assert client.get(HERE + path).status_code == reads, path
    assert client.post(f"{HERE}/deployments", wish(), JSON).status_code == writes
    assert client.get(f"{HERE}/audit").status_code == audits
    assert client.put(f"{HERE}/quotas/h100", {"limit": "9"}, JSON).status_code == 403
    assert client.patch(HERE, {"name": "x"}, JSON).status_code == 403


def test_a_deployment_from_apply_to_delete(tenant: Tenant):
    client = member(tenant, "developer")
    applied = client.post(f"{HERE}/deployments", wish(), JSON)
    assert applied.status_code == 202
    assert applied.json()["outcome"] == "created"
    where = applied["Location"]
    again = client.post(f"{HERE}/deployments", wish(), JSON)
    assert (again.status_code, again.json()["outcome"]) == (200, "unchanged")
    got = client.get(where)
    assert got["ETag"] == applied["ETag"]
    assert got.json()["replicas"] == wish()["spec"]["replicas"]
    scaled = client.post(f"{where}/scale", {"replicas": 1}, JSON)
    assert (scaled.status_code, scaled.json()["replicas"], scaled.json()["generation"]) == (202, 1, 2)
    image = client.post(f"{where}/image", {"image": "vllm/vllm-openai:v0.24.0"}, JSON)
    assert image.status_code == 202
    text = client.get(f"{where}/manifest").content.decode()
    assert "v0.24.0" in text
    assert yaml.safe_load(text)["spec"]["replicas"] == 1
    events = client.get(f"{where}/events").json()["results"]
    assert len(events) >= 2
    gone = client.delete(where)
    assert gone.status_code == 202
    assert gone.json()["deleting_at"] is not None


def test_yaml_is_taken_and_faults_have_lines(tenant: Tenant):
    client = member(tenant, "developer")
    applied = client.post(f"{HERE}/deployments", yaml.safe_dump(wish()), "application/yaml")
    assert applied.status_code == 202
    broken = client.post(f"{HERE}/deployments", "kind: ModelDeployment\n  spec: [", "application/yaml")
    assert broken.status_code == 422
    assert "line" in str(broken.json())


def test_every_fault_of_a_manifest_is_told_at_once(tenant: Tenant):
    data = wish(replicas="many")
    data["spec"]["engines"][0]["nodeSelector"]["devices"][0]["selectors"][0]["cel"] = "device.memory > 5"
    answer = member(tenant, "developer").post(f"{HERE}/deployments", data, JSON)
    assert answer.status_code == 422
    pointers = [error["pointer"] for error in answer.json()["errors"]]
    assert any("replicas" in pointer for pointer in pointers), pointers
    assert any("cel" in pointer for pointer in pointers), pointers


def test_a_stale_change_is_refused(tenant: Tenant):
    client = member(tenant, "developer")
    applied = client.post(f"{HERE}/deployments", wish(), JSON)
    where, old = applied["Location"], applied["ETag"]
    assert client.post(f"{where}/scale", {"replicas": 1}, JSON, headers={"If-Match": old}).status_code == 202
    assert client.post(f"{where}/scale", {"replicas": 2}, JSON, headers={"If-Match": old}).status_code == 412


def test_admit_now_refuses_what_does_not_fit_and_stores_nothing(tenant: Tenant):
    client = member(tenant, "developer")
    answer = client.post(f"{HERE}/deployments?admit=now", wish(replicas=9), JSON)
    assert answer.status_code == 409
    assert answer.json()["reasons"]
    with system_scope("test"):
        assert not ModelDeployment.objects.exists()
    assert client.post(f"{HERE}/deployments?admit=later", wish(), JSON).status_code == 400


def test_preview_and_dry_run_store_nothing(tenant: Tenant):
    client = member(tenant, "developer")
    preview = client.post(f"{HERE}/preview", wish(replicas=1), JSON).json()
    assert preview["fits"] is True
    assert preview["places"][0]["cluster"] == "alpha"
    assert preview["cost"]["amount"] is None or isinstance(preview["cost"]["amount"], str)
    dry = client.post(f"{HERE}/deployments?dry_run=true", wish(), JSON)
    assert dry.status_code == 200
    assert "preview" in dry.json()
    with system_scope("test"):
        assert not ModelDeployment.objects.exists()


def test_one_idempotency_key_makes_one_change(tenant: Tenant):
    client = member(tenant, "developer")
    headers = {"Idempotency-Key": "once"}
    first = client.post(f"{HERE}/deployments", wish(), JSON, headers=headers)
    second = client.post(f"{HERE}/deployments", wish(), JSON, headers=headers)
    assert (first.status_code, second.status_code) == (202, 202)
    assert second["Idempotent-Replayed"] == "true"
    other = client.post(f"{HERE}/deployments", wish(replicas=3), JSON, headers=headers)
    assert other.status_code == 422


def test_an_admin_makes_a_tenant_and_its_quota(tenant: Tenant):
    client = admin()
    made = client.post("/api/v1/tenants", {"slug": "radiology", "zone": tenant.zone.slug, "sites": []}, JSON)
    assert made.status_code == 201
    assert made.json()["namespace"] == "t-radiology"
    bad = client.post("/api/v1/tenants", {"slug": "x1", "zone": tenant.zone.slug, "sites": ["nowhere"]}, JSON)
    assert bad.json()["errors"][0]["pointer"] == "/sites/0"
    slug = client.get("/api/v1/gpu-types").json()["results"][0]["slug"]
    quota = client.put(f"/api/v1/tenants/radiology/quotas/{slug}", {"limit": "1.5"}, JSON)
    assert quota.status_code == 200
    assert quota.json()["limit"] == "1.5"
    (line,) = client.get("/api/v1/tenants/radiology/quotas").json()
    assert (line["limit"], line["left"], line["admitted"]) == ("1.5", "1.5", "0")
    for limit in ("-1", "0.0000001", "many", 1.5, True, "1e40", "NaN"):
        answer = client.put(f"/api/v1/tenants/radiology/quotas/{slug}", {"limit": limit}, JSON)
        assert answer.status_code in (400, 422), limit


def test_members_over_rest(tenant: Tenant):
    owner = member(tenant, "owner")
    User.objects.create_user("new")
    assert owner.put(f"{HERE}/members/new", {"role": "viewer"}, JSON).json()["role"] == "viewer"
    assert owner.put(f"{HERE}/members/new", {"role": "king"}, JSON).status_code == 422
    assert owner.delete(f"{HERE}/members/new").status_code == 204
    assert owner.delete(f"{HERE}/members/a-owner").status_code == 409


def test_a_list_says_what_it_can_be_asked(tenant: Tenant):
    client = member(tenant, "viewer")
    for query in ("page_size=0", "page_size=many", "page_size=٣", "cursor=nonsense"):
        assert client.get(f"{HERE}/deployments?{query}").status_code == 400, query


def bearer(user: User, tenant: Tenant | None = None, name: str = "ci") -> Client:
    """A client with a token that may write; in one tenant only, if one is given."""
    _, text = token_create(
        user_id=user.pk,
        name=name,
        scopes=["read", "write"],
        expires_at=utcnow() + timedelta(days=1),
        actor=user_actor(user),
        tenant_id=tenant.pk if tenant else None,
    )
    return Client(headers={"Authorization": f"Bearer {text}"})


def test_an_answer_that_was_kept_is_not_given_to_who_has_left_the_team(tenant: Tenant):
    developer = member(tenant, "developer")
    key = {"Idempotency-Key": "deploy-1"}
    assert developer.post(f"{HERE}/deployments", wish(), JSON, headers=key).status_code == 202
    again = developer.post(f"{HERE}/deployments", wish(), JSON, headers=key)
    assert (again.status_code, again["Idempotent-Replayed"]) == (202, "true")
    Member.objects.all().delete()
    gone = developer.post(f"{HERE}/deployments", wish(), JSON, headers=key)
    assert gone.status_code == 404
    assert "Idempotent-Replayed" not in gone


def test_an_answer_that_was_kept_is_not_given_to_another_token_of_the_same_person(tenant: Tenant):
    """Else a token that may not make tokens could ask for the text of one that was made in the browser."""
    member(tenant, "owner")
    person = User.objects.get(username="a-owner")
    browser, ci = Client(), bearer(person, tenant)
    browser.force_login(person)
    body = {"name": "all", "scopes": ["write"], "expires_at": (utcnow() + timedelta(days=2)).isoformat()}
    key = {"Idempotency-Key": "token-1"}
    assert "token" in browser.post("/api/v1/tokens", body, JSON, headers=key).json()
    answer = ci.post("/api/v1/tokens", body, JSON, headers=key)
    assert answer.status_code == 403
    assert "token" not in answer.json()


def test_a_token_of_one_tenant_sees_and_ends_no_other_tokens(tenant: Tenant):
    member(tenant, "owner")
    person = User.objects.get(username="a-owner")
    bound, everywhere = bearer(person, tenant, "bound"), bearer(person, None, "everywhere")
    other = make_tenant("team-vision")
    Member.objects.create(tenant=other, user=person, role="owner")
    assert [row["name"] for row in bound.get("/api/v1/tokens").json()["results"]] == ["bound"]
    rows = {row["name"]: row["id"] for row in everywhere.get("/api/v1/tokens").json()["results"]}
    assert bound.delete(f"/api/v1/tokens/{rows['everywhere']}").status_code == 404
    assert bound.get("/api/v1/tenants/team-vision").status_code == 404
    assert everywhere.delete(f"/api/v1/tokens/{rows['bound']}").status_code == 204


@pytest.mark.parametrize("size", ["0", "201", "-1", "1e2", "0000000019999999", "1" * 5000, "²"])
def test_a_page_size_that_is_none(tenant: Tenant, size: str):
    answer = member(tenant, "viewer").get(f"{HERE}/deployments", {"page_size": size})
    assert answer.status_code == 400


@pytest.mark.parametrize("moment", ["2026-11-01T00:00:00", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_a_cursor_that_no_page_gave(tenant: Tenant, moment: str):
    cursor = base64.urlsafe_b64encode(f"{moment} {uuid4()}".encode()).decode().rstrip("=")
    answer = member(tenant, "viewer").get(f"{HERE}/deployments", {"cursor": cursor})
    assert answer.status_code == 400
