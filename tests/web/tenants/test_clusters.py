"""The pages and the REST addresses of tenant clusters: who sees and may what, and what is never shown twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from infra.models import Cluster
from portal.accounts.models import User
from portal.kernel import workqueue
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.clock import utcnow
from portal.kernel.conditions import Condition
from portal.kernel.models import AuditEvent
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.models import Robot, Tenant, TenantCluster
from tenants.services import tenantcluster_access
from tenants.services.tenantclusters import tenant_cluster_request
from tests.support.fleet import make_type
from tests.support.tenants import CARD, TESTER
from tests.web.tenants.conftest import text_of

pytestmark = pytest.mark.django_db

LIST, ONE = "/t/ml-team/clusters/", "/t/ml-team/clusters/alpha/"
API = "/api/v1/tenants/ml-team/clusters"
Browser = Callable[[str], Client]


@pytest.fixture(autouse=True)
def _set(settings: Any) -> None:
    settings.AIF_TENANT_CLUSTER_ENDPOINT = "https://{tenant}.{cluster}.k8s.example"
    settings.AIF_VCLUSTER_VERSIONS = ["1.34.0=0.34.7", "1.35.0=0.35.3"]
    settings.AIF_TENANT_CLUSTER_SELF_SERVICE = True
    settings.AIF_OIDC_ISSUER = "https://sso.example/realms/ai-factory"


@pytest.fixture
def row(tenant: Tenant) -> TenantCluster:
    """One that runs, over its quota inside."""
    made = tenant_cluster_request(
        tenant=tenant,
        cluster=Cluster.objects.get(slug="alpha"),
        allotments={make_type().slug: 2 * CARD},
        version="1.34.0",
        actor=TESTER,
    )
    refused = {"namespace": "research", "name": "infer", "sentence": "Over."}
    sentence = "2 pods wait (first research/infer). Over your quota on this cluster: 4 of 4 nvidia.com/gpu."
    with system_scope("test"):
        TenantCluster.objects.filter(pk=made.pk).update(
            phase="Ready",
            running_chart="0.34.7",
            ca_pem="-----BEGIN CERTIFICATE-----\n",
            inside_seen_at=utcnow(),
            inside={"nodes": 3, "refused_count": 1, "refused": [refused]},
            conditions=[
                Condition("Ready", "True", "Ready").as_json(),
                Condition("PodsTaken", "False", "OverQuota", sentence).as_json(),
            ],
        )
        return TenantCluster.objects.select_related("tenant", "cluster").get(pk=made.pk)


def robot(row: TenantCluster) -> Robot:
    with system_scope("test"):
        return Robot.objects.create(
            tenant=row.tenant, tenant_cluster=row, name="ci", ready_at=utcnow(), created_by="test"
        )


def now(row: TenantCluster) -> TenantCluster:
    with system_scope("test"):
        return TenantCluster.objects.get(pk=row.pk)


def test_an_owner_asks_for_one_with_cards(browser: Browser, tenant: Tenant):
    owner = browser("owner")
    slug = make_type().slug
    assert "Ask for a tenant cluster" in text_of(owner.get(LIST))
    data = {"cluster": "alpha", "version": "1.35.0", f"cards-{slug}": "9"}
    refused = owner.post(LIST, data)
    assert refused.status_code == 422
    assert "is full" in text_of(refused)
    done = owner.post(LIST, data | {f"cards-{slug}": "2"})
    assert (done.status_code, done["Location"]) == (303, ONE)
    page = text_of(owner.get(ONE))
    assert "https://ml-team.alpha.k8s.example" in page
    assert "2 cards of" in page
    assert owner.post(LIST, data).status_code == 422  # alpha can't be chosen any more


def test_where_the_platform_makes_them_owners_see_no_form(browser: Browser, tenant: Tenant, settings: Any):
    settings.AIF_TENANT_CLUSTER_SELF_SERVICE = False
    page = text_of(browser("owner").get(LIST))
    assert "a platform-admin makes them" in page
    assert "Ask for it" not in page
    assert browser("owner").post(LIST, {"cluster": "alpha", "version": "1.35.0"}).status_code == 403


def test_the_page_says_what_is_so(browser: Browser, row: TenantCluster):
    page = text_of(browser("viewer").get(ONE))
    assert "Over your quota on this cluster: 4 of 4" in page
    assert "The size of the pool, not yours" in page
    assert "Pods that the host refuses (1)" in page
    assert "Change it" not in page
    assert "Make a robot" not in page
    assert "Get the kubeconfig" in page
    assert "Get the kubeconfig" not in text_of(browser("finance").get(ONE))
    assert browser("outsider").get(ONE).status_code == 404


def test_pause_resume_upgrade_and_delete_by_name(browser: Browser, row: TenantCluster):
    owner = browser("owner")
    assert owner.post(f"{ONE}do/pause").status_code == 303
    assert now(row).desired == "paused"
    assert "Resume it first" in text_of(owner.post(f"{ONE}upgrade", {"version": "1.35.0"}))
    assert owner.post(f"{ONE}do/resume").status_code == 303
    assert owner.post(f"{ONE}do/explode").status_code == 404
    assert owner.post(f"{ONE}upgrade", {"version": "1.35.0"}).status_code == 303
    assert now(row).kubernetes_version == "1.35.0"
    assert browser("developer").post(f"{ONE}do/pause").status_code == 403
    wrong = owner.post(f"{ONE}delete", {"name": "other"})
    assert wrong.status_code == 422
    assert now(row).deleting_at is None
    assert owner.post(f"{ONE}delete", {"name": "ml-team"}).status_code == 303
    assert now(row).deleting_at is not None


@pytest.mark.parametrize(
    ("leftovers", "said"),
    [
        ([], "The tenant cluster on alpha is gone; nothing is left of it."),
        (["namespace vc-ml-team"], "is gone; its host was given up. Left there: namespace vc-ml-team."),
    ],
)
def test_whoever_watches_it_being_deleted_reads_that_it_is_gone(
    browser: Browser, row: TenantCluster, leftovers: list[str], said: str
):
    with system_scope("test"):
        TenantCluster.objects.filter(pk=row.pk).update(deleted_at=utcnow(), leftovers=leftovers)
    viewer = browser("viewer")
    answer = viewer.get(ONE)
    assert (answer.status_code, answer["Location"]) == (302, LIST)
    assert said in text_of(viewer.get(LIST))
    assert browser("outsider").get(ONE).status_code == 404
    assert viewer.get(ONE.replace("alpha", "never")).status_code == 404


def test_the_kubeconfig_is_a_file_without_a_secret_and_not_for_everybody(browser: Browser, row: TenantCluster):
    answer = browser("viewer").post(f"{ONE}kubeconfig")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/yaml")
    assert "oidc-login" in answer.content.decode()
    assert "no-store" in answer["Cache-Control"]
    assert browser("viewer").get(f"{ONE}kubeconfig").status_code == 405
    assert browser("finance").post(f"{ONE}kubeconfig").status_code == 403
    with tenant_scope(row.tenant_id):
        assert AuditEvent.objects.filter(verb="tenant_cluster_kubeconfig", outcome="done").count() == 1


def test_a_robots_token_is_shown_once_and_stored_nowhere(
    browser: Browser, row: TenantCluster, monkeypatch: pytest.MonkeyPatch
):
    owner, secret = browser("owner"), "a-token-that-nobody-keeps"
    assert owner.post(f"{ONE}robots", {"name": "ci 1", "role": "edit"}).status_code == 422
    robot(row)
    told = type("Told", (), {"expires_at": utcnow() + timedelta(minutes=10)})
    monkeypatch.setattr(tenantcluster_access, "_asked", lambda row, robot, life: secret)
    monkeypatch.setattr(tenantcluster_access, "service_account_token", lambda token: told)
    assert owner.post(f"{ONE}robots/ci/token", {"minutes": "1"}).status_code == 422
    refused = owner.post(f"{ONE}robots/ci/token", {"minutes": "1441"})
    assert refused.status_code == 422
    assert 'value="1441"' in text_of(refused), "what was typed stays"
    assert "less than or equal to 1440" in text_of(refused), "said in minutes, as it is asked for"
    answer = owner.post(f"{ONE}robots/ci/token", {"minutes": "10"})
    assert secret in text_of(answer)
    assert "no-store" in answer["Cache-Control"]
    assert secret not in text_of(owner.get(ONE))
    with system_scope("test"):
        stored = [*Robot.objects.values(), *AuditEvent.objects.values()]
    assert secret not in repr(stored)
    assert browser("developer").post(f"{ONE}robots/ci/token", {"minutes": "10"}).status_code == 403
    assert owner.post(f"{ONE}robots/ci/remove").status_code == 303
    with system_scope("test"):
        assert Robot.objects.get(name="ci").deleting_at is not None


def test_over_rest(browser: Browser, tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    owner, slug = browser("owner"), make_type().slug
    body = {"cluster": "alpha", "allotments": {slug: "2"}, "version": "1.34.0"}
    made = owner.post(API, body, content_type="application/json")
    assert made.status_code == 202, made.content
    assert (made.json()["phase"], made.json()["allotments"]) == ("Pending", {slug: "2"})
    assert owner.post(API, body, content_type="application/json").status_code == 409
    assert owner.post(API, body | {"cluster": "nowhere"}, content_type="application/json").status_code == 422
    assert [one["cluster"] for one in owner.get(API).json()["results"]] == ["alpha"]
    assert owner.post(f"{API}/alpha/pause").json()["desired"] == "paused"
    assert owner.post(f"{API}/alpha/resume").json()["desired"] == "running"
    assert owner.post(f"{API}/alpha/retry").status_code == 202
    wrong = owner.post(f"{API}/alpha/upgrade", {"version": "9.9.9"}, content_type="application/json")
    assert wrong.json()["errors"][0]["pointer"] == "/version"
    robots = f"{API}/alpha/robots"
    assert owner.post(robots, {"name": "ci"}, content_type="application/json").status_code == 202
    assert [one["name"] for one in owner.get(robots).json()["results"]] == ["ci"]
    kept = {"content_type": "application/json", "headers": {"Idempotency-Key": "again"}}
    assert owner.post(f"{robots}/ci/token", {}, **kept).status_code == 400
    assert owner.post(f"{robots}/ci/token", {}, content_type="application/json").status_code == 409  # not there yet
    assert owner.delete(f"{robots}/ci").status_code == 202
    assert owner.post(f"{API}/alpha/kubeconfig").status_code == 409
    assert owner.delete(f"{API}/alpha").json()["phase"] == "Deleting"
    assert browser("outsider").get(f"{API}/alpha").status_code == 404
    assert browser("viewer").post(f"{API}/alpha/pause").status_code == 403


def test_the_platform_sees_all_of_them(row: TenantCluster, browser: Browser):
    User.objects.create_user("admin", platform_role=PLATFORM_ADMIN)
    client = Client()
    client.force_login(User.objects.get(username="admin"))
    assert "ml-team" in text_of(client.get("/platform/tenant-clusters/"))
    workqueue.mark("tenantcluster", row.pk, cluster_id=row.cluster_id, tenant_id=row.tenant_id)
    assert "ml-team on alpha</td>" in text_of(client.get("/platform/work/")), "by its name, not by its id"
    assert [one["tenant"] for one in client.get("/api/v1/tenant-clusters").json()["results"]] == ["ml-team"]
    assert browser("owner").get("/platform/tenant-clusters/").status_code == 404
    assert browser("owner").get("/api/v1/tenant-clusters").status_code == 404
