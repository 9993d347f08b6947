"""Pages and REST of quotas: what figures are made of, requests and their inbox, moves, the platform's sums."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from infra.models import Cluster, Node
from portal.accounts.models import User
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import run_item
from tenants.models import AllotmentMove, GPUQuota, Member, QuotaRequest, Tenant, TenantNamespace
from tenants.selectors.capacity import borrowed_by_others
from tests.support.fleet import make_pod, make_type
from tests.support.tenants import CARD, give_quota, make_tenant
from tests.web.tenants.conftest import apply, text_of

pytestmark = pytest.mark.django_db

QUOTA = "/t/ml-team/quota/"
REQUESTS = "/t/ml-team/quota/requests/"
API = "/api/v1/tenants/ml-team"


@pytest.fixture
def admin(db: None) -> Client:
    """A platform-admin's browser."""
    client = Client()
    client.force_login(User.objects.create_user("chief", platform_role=PLATFORM_ADMIN))
    return client


@pytest.fixture
def spaces(tenant: Tenant) -> list[str]:
    """Namespaces that cards can be handed over to."""
    with system_scope("test"):
        for cluster in Cluster.objects.order_by("slug"):
            TenantNamespace.objects.create(tenant=tenant, cluster=cluster, name="vc-ml-team")
    return ["alpha/vc-ml-team", "beta/vc-ml-team"]


def words(answer: Any) -> str:
    """A page's text without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text_of(answer)))


def form(**more: str) -> dict[str, str]:
    return {"gpu_type": make_type().slug, "limit": "8", "guaranteed": "2", "reason": "A larger model."} | more


def asked() -> QuotaRequest:
    with system_scope("test"):
        return QuotaRequest.objects.select_related("tenant").get()


def place(tenant: Tenant, **more: Any) -> None:
    row = apply(tenant, **more)
    run_item(WorkItem.objects.get(kind="deployment", object_id=row.pk).pk)


def test_figures_link_to_what_they_are_made_of(owner: Client, tenant: Tenant) -> None:
    place(tenant)
    page = owner.get(QUOTA)
    text = words(page)
    assert "Reserved by deployments 1 + handed over to namespaces 0 + pods that no reservation stands for 0" in text
    assert "= admitted 1 card" in text
    assert 'href="/t/ml-team/deployments/qwen3-8b/"' in page.content.decode()


def test_over_by_says_who_holds_most(owner: Client, tenant: Tenant) -> None:
    place(tenant, replicas=2)
    give_quota(tenant, make_type(), 1)
    text = words(owner.get(QUOTA))
    assert "Over by 1 card." in text
    assert "Most is held by qwen3-8b (1 on alpha)" in text


def test_from_the_teams_form_to_the_inbox_and_back(owner: Client, admin: Client, tenant: Tenant) -> None:
    answer = owner.post(REQUESTS, form(submit="yes"))
    row = asked()
    assert (answer.status_code, answer["Location"]) == (303, f"{REQUESTS}{row.pk}/")
    assert "submitted" in words(owner.get(answer["Location"]))
    inbox = "/platform/quotas/requests/"
    assert "Waiting for a decision: 1" in words(admin.get(inbox))
    one = f"{inbox}{row.pk}/"
    assert "ml-team asks for 8 cards" in words(admin.get(one))
    refused = admin.post(f"{one}decide", {"decision": "deny", "comment": ""})
    assert (refused.status_code, "Say why it is denied" in words(refused)) == (422, True)
    assert admin.post(f"{one}decide", {"decision": "comment", "comment": "Until when?"}).status_code == 303
    assert owner.post(f"{REQUESTS}{row.pk}/comment", {"text": "For good."}).status_code == 303
    assert admin.post(f"{one}decide", {"decision": "approve", "comment": ""}).status_code == 303
    with system_scope("test"):
        assert GPUQuota.objects.get(tenant=tenant).limit == 8 * CARD
    text = words(owner.get(f"{REQUESTS}{row.pk}/"))
    assert "approved" in text
    assert text.index("Until when?") < text.index("For good.")
    assert "Waiting for a decision: 0" in words(admin.get(inbox))


def test_a_time_that_is_none_is_refused_with_one_that_is(owner: Client) -> None:
    refused = owner.post(REQUESTS, form(until="24.12.2026"))
    assert (refused.status_code, "Write it as 2026-12-01 08:00." in words(refused)) == (422, True)
    assert 'value="24.12.2026"' in text_of(refused)


def test_one_entry_of_the_menu_is_where_one_is(admin: Client) -> None:
    for page in ("/platform/quotas/", "/platform/quotas/requests/"):
        assert text_of(admin.get(page)).count('aria-current="page"') == 1


def test_a_draft_is_the_teams_own_and_can_be_changed(owner: Client, admin: Client) -> None:
    owner.post(REQUESTS, form())
    row = asked()
    assert "It is a draft. Hand it in when it is ready." in words(owner.get(f"{REQUESTS}{row.pk}/"))
    assert row.state == "draft"
    assert admin.get(f"/platform/quotas/requests/{row.pk}/").status_code == 404
    assert owner.post(f"{REQUESTS}{row.pk}/change", form(limit="1")).status_code == 422  # 2 are guaranteed of 1
    assert owner.post(f"{REQUESTS}{row.pk}/change", form(limit="6")).status_code == 303
    assert owner.post(f"{REQUESTS}{row.pk}/submit").status_code == 303
    assert (asked().state, asked().limit) == ("submitted", 6 * CARD)
    assert owner.post(f"{REQUESTS}{row.pk}/withdraw").status_code == 303
    assert owner.post(f"{REQUESTS}{row.pk}/withdraw").status_code == 409
    assert owner.post(f"{REQUESTS}{row.pk}/explode").status_code == 404


def test_who_asked_sees_no_button_and_gets_a_refusal(owner: Client, people: dict[str, User], tenant: Tenant) -> None:
    both = User.objects.create_user("both", platform_role=PLATFORM_ADMIN)
    Member.objects.create(tenant=tenant, user=both, role="owner")
    client = Client()
    client.force_login(both)
    client.post(REQUESTS, form(submit="yes"))
    one = f"/platform/quotas/requests/{asked().pk}/"
    page = client.get(one)
    assert "for another platform-admin to decide" in words(page)
    assert "Approve" not in page.content.decode()
    assert client.post(f"{one}decide", {"decision": "approve"}).status_code == 403
    assert asked().state == "submitted"


@pytest.mark.parametrize(("role", "status"), [("developer", 403), ("viewer", 403), ("finance", 403), ("outsider", 404)])
def test_others_read_or_not_even_that(browser: Callable[[str], Client], owner: Client, role: str, status: int) -> None:
    owner.post(REQUESTS, form(submit="yes"))
    client, row = browser(role), asked()
    reads = 404 if role == "outsider" else 200
    for path in (QUOTA, REQUESTS, f"{REQUESTS}{row.pk}/"):
        assert client.get(path).status_code == reads
    for path in (REQUESTS, f"{REQUESTS}{row.pk}/withdraw", f"{REQUESTS}{row.pk}/comment", f"{QUOTA}move"):
        assert client.post(path, form()).status_code == status, path
    for path in ("/platform/quotas/", "/platform/quotas/requests/", "/platform/kueue/"):
        assert client.get(path).status_code == 404


def test_cards_are_handed_over_and_moved(owner: Client, tenant: Tenant, spaces: list[str]) -> None:
    def move(source: str, goal: str, amount: str) -> Any:
        return owner.post(
            f"{QUOTA}move", {"gpu_type": make_type().slug, "source": source, "goal": goal, "amount": amount}
        )

    assert move("", spaces[0], "1").status_code == 303
    assert f"Handed over: 1 card of {make_type().slug}." in words(owner.get(QUOTA))
    assert move("", spaces[0], "2").status_code == 303
    assert move("", spaces[1], "2").status_code == 422
    assert move(spaces[0], spaces[1], "2").status_code == 303
    assert move(spaces[0], spaces[1], "2").status_code == 422
    text = words(owner.get(QUOTA))
    assert "waits for the cluster" in text
    assert "2 of it leave" in text
    with system_scope("test"):
        assert AllotmentMove.objects.filter(state="pending").count() == 1


def test_guarantees_beyond_the_cards_are_named_with_the_numbers(admin: Client, tenant: Tenant) -> None:
    other = make_tenant("team-vision")
    give_quota(other, make_type(), 4)
    with system_scope("test"):
        GPUQuota.objects.update(guaranteed=2 * CARD)
    assert "too many are guaranteed" not in words(admin.get("/platform/quotas/"))  # 4 guaranteed, 4 cards
    with system_scope("test"):
        GPUQuota.objects.filter(tenant=other).update(guaranteed=4 * CARD)
    text = words(admin.get("/platform/quotas/"))
    assert "2 cards too many are guaranteed: 6 to all tenants together, and 4 are in service" in text
    (line,) = admin.get("/api/v1/quota-capacity").json()
    assert (line["in_service"], line["guaranteed"], line["promised_too_much"]) == ("4", "6", "2")


def test_what_goes_beyond_the_guarantee_is_borrowed(admin: Client, tenant: Tenant) -> None:
    with system_scope("test"):
        GPUQuota.objects.update(guaranteed=CARD)
    place(tenant, replicas=2)
    (line,) = admin.get("/api/v1/quota-capacity").json()
    assert (line["admitted"], line["borrowed"]) == ("2", "1")
    assert [(one["tenant"], one["borrowed"]) for one in line["tenants"]] == [("ml-team", "1")]


def test_who_borrows_without_a_quota_is_named_too(admin: Client, tenant: Tenant) -> None:
    """A namespace was given to a team that has no quota: its pods hold cards that others can't have."""
    other = make_tenant("team-vision")
    with system_scope("test"):
        cluster = Cluster.objects.get(slug="alpha")
        cluster.claims.create(namespace="team-a", tenant_id=other.pk, valid_from="2026-01-01T00:00Z", created_by="x")
        make_pod(Node.objects.filter(cluster=cluster).first(), requests={"nvidia.com/gpu": "3"})
        assert borrowed_by_others(make_type().pk, tenant.pk) == 3 * CARD
    (line,) = admin.get("/api/v1/quota-capacity").json()
    told = {one["tenant"]: (one["limit"], one["admitted"], one["borrowed"]) for one in line["tenants"]}
    assert (line["borrowed"], told["team-vision"]) == ("3", ("0", "3", "3"))
    assert "team-vision" in words(admin.get("/platform/quotas/"))


# --- REST ------------------------------------------------------------------------------------------------------------


def test_requests_over_rest(owner: Client, admin: Client, tenant: Tenant) -> None:
    json: Any = {"content_type": "application/json"}
    body = {"gpu_type": make_type().slug, "limit": "8", "reason": "A larger model."}
    made = owner.post(f"{API}/quota-requests", body, **json)
    assert (made.status_code, made.json()["state"]) == (201, "draft")
    one = f"{API}/quota-requests/{made.json()['id']}"
    assert owner.patch(one, {"guaranteed": "1.5"}, **json).json()["guaranteed"] == "1.5"
    assert admin.get("/api/v1/quota-requests").json()["results"] == []
    assert owner.post(f"{one}/submit", **json).json()["state"] == "submitted"
    assert [row["tenant"] for row in admin.get("/api/v1/quota-requests").json()["results"]] == ["ml-team"]
    assert owner.post(f"{one}/approve", {}, **json).status_code == 403
    assert admin.post(f"{one}/deny", {}, **json).status_code == 422
    assert owner.post(f"{one}/comments", {"text": "Soon?"}, **json).status_code == 201
    assert admin.post(f"{one}/approve", {"comment": "Yes."}, **json).json()["state"] == "approved"
    assert [row["text"] for row in owner.get(f"{one}/comments").json()["results"]] == ["Soon?", "Yes."]
    assert owner.post(f"{one}/withdraw", **json).status_code == 409
    assert admin.get("/api/v1/quota-requests?state=approved").json()["results"][0]["limit"] == "8"
    bad = owner.post(f"{API}/quota-requests", body | {"gpu_type": "none"}, **json)
    assert (bad.status_code, bad.json()["errors"][0]["pointer"]) == (422, "/gpu_type")


def test_moves_and_makings_over_rest(owner: Client, tenant: Tenant, spaces: list[str]) -> None:
    json: Any = {"content_type": "application/json"}
    body = {"gpu_type": make_type().slug, "amount": "2", "goal": {"cluster": "alpha", "namespace": "vc-ml-team"}}
    made = owner.post(f"{API}/allotment-moves", body, **json)
    assert (made.status_code, made.json()["state"], made.json()["source"]) == (202, "done", None)
    wrong = owner.post(f"{API}/allotment-moves", body | {"goal": {"cluster": "alpha", "namespace": "no"}}, **json)
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/goal")
    assert owner.post(f"{API}/allotment-moves", body | {"amount": "3"}, **json).status_code == 409
    place(tenant)
    makings = owner.get(f"{API}/quotas/{make_type().slug}/makings").json()
    assert (makings["reserved"], makings["handed_over"], makings["seen"]) == ("1", "2", "0")
    assert makings["deployments"][0]["deployment"] == "qwen3-8b"
    (line,) = owner.get(f"{API}/quotas").json()
    assert (line["admitted"], line["left"]) == ("3", "1")
    assert {part["namespace"]: part["handed"] for part in line["allotments"]}["vc-ml-team"] == "2"


def test_kueue_is_switched_by_page_and_rest(admin: Client, owner: Client, tenant: Tenant) -> None:
    assert admin.get("/api/v1/clusters/alpha/kueue").json()["enabled"] is False
    assert admin.post("/platform/kueue/alpha/switch", {"enabled": "yes"}).status_code == 303
    assert admin.get("/api/v1/clusters/alpha/kueue").json()["enabled"] is True
    assert "Switch off" in words(admin.get("/platform/kueue/"))
    answer = admin.put("/api/v1/clusters/alpha/kueue", {"enabled": False}, content_type="application/json")
    assert (answer.status_code, answer.json()["draining"]) == (202, True)
    assert owner.put("/api/v1/clusters/alpha/kueue", {"enabled": True}).status_code == 404


@pytest.mark.parametrize(
    "amount", ["1e4000", "1e40", "1e5000", 10**30, "NaN", "-1", "0.5", True, None, [], "1e-9", "\u0661e1"]
)
def test_no_number_of_cards_breaks_a_move_or_a_request(owner: Client, spaces: list[str], amount: Any) -> None:
    json: Any = {"content_type": "application/json"}
    spots = (
        {"goal": {"cluster": "alpha", "namespace": "vc-ml-team"}},
        {"source": {"cluster": "alpha", "namespace": "vc-ml-team"}},
    )
    for spot in spots:
        body = {"gpu_type": make_type().slug, "amount": amount} | spot
        assert owner.post(f"{API}/allotment-moves", body, **json).status_code in (400, 409, 422)
    body = {"gpu_type": make_type().slug, "limit": amount, "guaranteed": amount, "reason": "x"}
    asked = owner.post(f"{API}/quota-requests", body, **json).status_code
    assert asked == 201 if amount in ("0.5", "\u0661e1") else asked in (400, 422)
