"""The platform's pages about parts of cards, the deploy form's shares, and the same over REST."""

from __future__ import annotations

from html import unescape

import pytest
from django.test import Client

from infra.models import NodePool
from portal.accounts.models import User
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_VIEWER
from portal.kernel.scoping import system_scope
from tenants.models import GPUQuota, Member, Tenant
from tests.support.fleet import make_cluster, make_node, make_pool, make_type
from tests.support.tenants import give_quota, make_tenant

pytestmark = pytest.mark.django_db

PAGE = "/platform/tenants/ml-team/"
API = "/api/v1/tenants/ml-team"
JSON = "application/json"


@pytest.fixture
def tenant() -> Tenant:
    tenant, cluster = make_tenant(), make_cluster("alpha")
    make_node(make_pool("hami", cluster=cluster, name="shared"), cards=1, scale=1.8)
    make_node(make_pool("mig", cluster=cluster, name="cut"), name="node-1", cards=1)
    give_quota(tenant, make_type(), 2)
    Member.objects.create(tenant=tenant, user=User.objects.create_user("owner-1"), role="owner")
    return tenant


def browser(role: str = "", name: str = "") -> Client:
    client = Client()
    user = User.objects.get(username=name) if name else User.objects.create_user(f"a-{role}", platform_role=role)
    client.force_login(user)
    return client


def text_of(answer: object) -> str:
    return unescape(answer.content.decode())  # type: ignore[attr-defined]


def test_shares_and_limits_on_the_page(tenant: Tenant) -> None:
    admin = browser(PLATFORM_ADMIN)
    text = text_of(admin.get(PAGE))
    assert "figures of its own are refused" in text
    assert "eighth" in text
    assert "12.5" in text
    sent = {"free_shares": "on", "namespace_limits": "pods: 200\nlimits.nvidia.com/gpu: 8"}
    refused = admin.post(PAGE + "sharing", sent)
    assert refused.status_code == 422
    assert "limits.nvidia.com/gpu is stored and never enforced" in text_of(refused)
    refused = admin.post(PAGE + "sharing", {"namespace_limits": "pods 200"})
    assert "is no line such as pods: 200" in text_of(refused)
    sent["namespace_limits"] = "pods: 200"
    assert admin.post(PAGE + "sharing", sent).status_code == 303
    tenant.refresh_from_db()
    assert (tenant.free_shares, tenant.namespace_limits) == (True, {"pods": "200"})
    assert "pods: 200" in text_of(admin.get(PAGE))
    assert browser(PLATFORM_VIEWER).post(PAGE + "sharing", sent).status_code == 403


def test_profiles_on_the_page_and_on_the_team_s_own(tenant: Tenant) -> None:
    admin, slug = browser(PLATFORM_ADMIN), make_type().slug
    refused = admin.post(PAGE + "profiles", {"gpu_type": slug, "profiles": "9x: 1"})
    assert refused.status_code == 422
    assert "no MIG profile" in text_of(refused)
    assert admin.post(PAGE + "profiles", {"gpu_type": slug, "profiles": "1g.10gb: 8"}).status_code == 303
    with system_scope("test"):
        assert GPUQuota.objects.get().profiles == {"1g.10gb": 8}
    assert "MIG slices 1g.10gb" in text_of(browser(name="owner-1").get("/t/ml-team/quota/"))


def test_the_form_offers_what_may_be_asked_for(tenant: Tenant) -> None:
    owner = browser(name="owner-1")
    page = text_of(owner.get("/t/ml-team/deploy/"))
    assert page.index("an eighth of a card") < page.index("a quarter of a card") < page.index("a half of a card")
    assert "MIG slices 1g.10gb" in page
    assert "share_memory" not in page
    Tenant.objects.update(free_shares=True)
    page = text_of(owner.get("/t/ml-team/deploy/"))
    assert "memory and cores of its own" in page
    sent = {
        "name": "chat", "image": "vllm/vllm-openai:v0.23.0", "replicas": "1", "cards": "1", "share": "own",
        "engine": "engine", "mode": "form", "share_memory": "", "share_cores": "25", "action": "preview",
    }  # fmt: skip
    assert "State the memory of each share" in text_of(owner.post("/t/ml-team/deploy/", sent))
    answer = owner.post("/t/ml-team/deploy/", sent | {"share_memory": "20Gi", "action": "yaml"})
    text = text_of(answer)
    assert "memory: 20Gi" in text
    assert "cores: 25" in text


def test_over_rest(tenant: Tenant) -> None:
    admin, owner, slug = browser(PLATFORM_ADMIN), browser(name="owner-1"), make_type().slug
    assert [one["name"] for one in owner.get("/api/v1/share-profiles").json()][:3] == ["eighth", "quarter", "half"]
    assert owner.patch(f"{API}/sharing", {"free_shares": True}, JSON).status_code == 403
    wrong = admin.patch(f"{API}/sharing", {"namespace_limits": {"nvidia.com/gpu": "1"}}, JSON)
    assert wrong.status_code == 422
    assert wrong.json()["errors"][0]["pointer"] == "/namespace_limits/nvidia.com~1gpu"
    shown = admin.patch(f"{API}/sharing", {"free_shares": True}, JSON).json()
    assert shown == {"free_shares": True, "namespace_limits": {}}
    assert owner.get(f"{API}/sharing").json() == shown
    put = admin.put(f"{API}/quotas/{slug}/profiles", {"profiles": {"1g.10gb": 8}}, JSON)
    assert (put.status_code, put.json()) == (200, {"profiles": {"1g.10gb": 8}})
    assert owner.put(f"{API}/quotas/{slug}/profiles", {"profiles": {}}, JSON).status_code == 403
    (row,) = owner.get(f"{API}/parts").json()
    assert row["profiles"] == [{"profile": "1g.10gb", "held": 0, "limit": 8, "over_by": 0}]


def test_what_a_pool_hands_out(tenant: Tenant) -> None:
    admin = browser(PLATFORM_ADMIN)
    where = "/platform/clusters/alpha/"
    assert "Memory that shared hands out" in text_of(admin.get(where))
    refused = admin.post(f"{where}pools/shared/overcommit", {"percent": "5"})
    assert refused.status_code == 422
    assert "from 100" in text_of(refused)
    assert 'name="percent" inputmode="numeric" value="5"' in text_of(refused), "what was typed stays"
    assert "no whole number" in text_of(admin.post(f"{where}pools/shared/overcommit", {"percent": "a lot"}))
    assert "only HAMi" in text_of(admin.post(f"{where}pools/cut/overcommit", {"percent": "180"}))
    assert admin.post(f"{where}pools/shared/overcommit", {"percent": "180"}).status_code == 303
    assert "1.8× its memory" in text_of(admin.get(where))
    api = "/api/v1/clusters/alpha/pools/shared/overcommit"
    assert admin.get(api).json() == {"declared": 180, "in_force": 180, "overcommitted": True}
    assert admin.put(api, {"percent": None}, JSON).json() == {"declared": None, "in_force": 100, "overcommitted": False}
    assert NodePool.objects.get(name="shared").overcommit_percent is None
