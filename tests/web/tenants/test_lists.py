"""The list of deployments, home, quota and audit: filters, pages, and what they cost the database."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from html import unescape
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from infra.models import NamespaceClaim, NodePool
from portal.kernel.scoping import system_scope
from tenants.models import DeploymentEvent, GPUQuota, Member, ModelDeployment, Tenant
from tenants.ports import MonthCost, cost_book, register_cost_book
from tenants.services.deployments import deployment_scale
from tests.support.fleet import make_node, make_pod
from tests.support.tenants import TESTER, make_tenant
from tests.web.tenants.conftest import apply, text_of

pytestmark = pytest.mark.django_db
LIST = "/t/ml-team/deployments/"


def fill(tenant: Tenant, number: int, start: int = 0, **values: object) -> None:
    """So many deployments as rows."""
    with system_scope("test"):
        ModelDeployment.objects.bulk_create(
            ModelDeployment(
                **{"tenant": tenant, "name": f"d{index:05}", "spec": {}, "created_by": "test", **values},
                created_at=datetime(2026, 11, 1, tzinfo=UTC),
            )
            for index in range(start, start + number)
        )


def queries_of(client: Client, path: str, **headers: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(path, headers=headers).status_code == 200
    return len(queries)


def test_ten_thousand_take_as_many_queries_as_a_hundred(owner: Client, tenant: Tenant) -> None:
    fill(tenant, 100)
    few = {path: queries_of(owner, path) for path in (LIST, "/t/ml-team/", f"{LIST}?q=d&phase=Pending")}
    fill(tenant, 9_900, 100)
    for path, number in few.items():
        assert queries_of(owner, path) == number, path
    assert few[LIST] <= 15
    assert queries_of(owner, LIST, **{"HX-Request": "true"}) <= 15


def test_as_many_teams_as_one_likes(owner: Client, people: dict, tenant: Tenant) -> None:
    one = queries_of(owner, LIST)
    for number in range(12):
        Member.objects.create(tenant=make_tenant(f"team-{number}"), user=people["owner"], role="viewer")
    assert queries_of(owner, LIST) == one


def test_every_row_comes_once_from_page_to_page(owner: Client, tenant: Tenant) -> None:
    fill(tenant, 120)
    names: list[str] = []
    query = ""
    for _ in range(3):
        page = unescape(text_of(owner.get(f"{LIST}{query}")))
        names += [part.split("</a>")[0].partition('href="')[2] for part in page.split('fw-normal"><a ')[1:]]
        query = page.split('" rel="next"')[0].rsplit(LIST, 1)[-1] if 'rel="next"' in page else ""
    assert query == ""
    assert len(names) == len(set(names)) == 120


def test_the_filter_is_in_the_address_and_works_for_both(owner: Client, tenant: Tenant) -> None:
    fill(tenant, 3)
    fill(tenant, 2, 100, phase="Failed")
    page = text_of(owner.get(LIST, {"phase": "Failed"}))
    assert "d00100" in page
    assert "d00001" not in page
    part = owner.get(LIST, {"q": "0010"}, headers={"HX-Request": "true"})
    assert text_of(part).strip().startswith('<div class="card" id="deployments">')
    assert "HX-Request" in part["Vary"]
    restored = owner.get(LIST, headers={"HX-Request": "true", "HX-History-Restore-Request": "true"})
    assert "<html" in text_of(restored)
    assert "No deployment matches" in text_of(owner.get(LIST, {"q": "nothing-like-it"}))
    file = text_of(owner.get("/t/ml-team/deployments.csv", {"phase": "Failed"}))
    assert file.count("\r\n") == 3


def test_bad_filters_and_cursors(owner: Client, tenant: Tenant) -> None:
    assert owner.get(LIST, {"phase": "Nonsense"}).status_code == 200
    assert owner.get(LIST, {"cursor": "nonsense"}).status_code == 400
    assert owner.get("/t/ml-team/audit/", {"cursor": "nonsense"}).status_code == 400
    assert owner.get(LIST, {"q": "\x00"}).status_code == 400


def test_the_file_holds_no_formula(owner: Client, tenant: Tenant) -> None:
    fill(tenant, 1, waiting="=1+1", cost_code="-2")
    file = text_of(owner.get("/t/ml-team/deployments.csv"))
    assert "'=1+1" in file
    assert "'-2" in file


def test_empty_pages_say_what_to_do(owner: Client, browser, tenant: Tenant) -> None:
    assert "Deploy a model" in text_of(owner.get(LIST))
    assert "/t/ml-team/deploy/" not in text_of(browser("viewer").get(LIST))
    with system_scope("test"):
        GPUQuota.objects.all().delete()
    assert "no quota yet" in text_of(owner.get("/t/ml-team/quota/"))
    assert "no quota yet" in text_of(owner.get("/t/ml-team/"))


class Costs:
    """412.37 EUR so far."""

    def month_to_date(self, tenant_id: UUID) -> MonthCost | None:
        start, end = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
        return MonthCost(Decimal("1412.37"), Decimal(1400), "EUR", start, end, unpriced=True)


def test_home_shows_costs_to_those_who_may_see_bills(owner: Client, browser, tenant: Tenant) -> None:
    before = cost_book()
    try:
        register_cost_book(None)
        assert "not known" in text_of(owner.get("/t/ml-team/"))
        register_cost_book(Costs())
        page = text_of(owner.get("/t/ml-team/"))
        assert "1\u202f412.37\u202fEUR" in page
        assert "no rate yet" in page
        assert "412.37" not in text_of(browser("viewer").get("/t/ml-team/"))
    finally:
        register_cost_book(before)


def test_home_puts_what_needs_attention_first(owner: Client, tenant: Tenant) -> None:
    fill(tenant, 1, phase="Waiting", waiting="Quota of h100 is full.", waiting_since=datetime(2026, 11, 2, tzinfo=UTC))
    fill(tenant, 1, 10, phase="Failed", waiting="Replica 0: the image can't be pulled.")
    fill(tenant, 1, 20, phase="Ready")
    page = text_of(owner.get("/t/ml-team/"))
    attention = page.split('id="attention"')[1].split("</section>")[0]
    assert "Quota of h100 is full." in attention
    assert "d00010" in attention
    assert "d00020" not in attention


def test_home_tells_what_happened_last(owner: Client, tenant: Tenant) -> None:
    apply(tenant)
    deployment_scale(tenant=tenant, name="qwen3-8b", replicas=2, actor=TESTER)
    assert "changed replicas from 1 to 2" in text_of(owner.get("/t/ml-team/"))
    with system_scope("test"):
        assert DeploymentEvent.objects.count() == 2


def test_quota_tells_by_how_much_a_team_is_over(owner: Client, tenant: Tenant) -> None:
    pool = NodePool.objects.get(cluster__slug="alpha")
    node = make_node(pool, cards=8, name="alpha-1")
    with system_scope("test"):
        NamespaceClaim.objects.create(
            cluster=pool.cluster, namespace="t-ml-team", tenant_id=tenant.pk, created_by="test", changed_seq=1,
            valid_from=datetime(2026, 1, 1, tzinfo=UTC),
        )  # fmt: skip
    for _ in range(6):
        make_pod(node, namespace="t-ml-team")
    page = text_of(owner.get("/t/ml-team/quota/"))
    assert "Over by 2 cards" in page
    assert 'aria-label="NVIDIA H100 80GB HBM3: 6 used, 6 admitted of 4 cards, over by 2"' in page
    assert "Over quota" in text_of(owner.get("/t/ml-team/"))


def test_the_audit_is_the_teams_own(owner: Client, browser, tenant: Tenant) -> None:
    apply(tenant)
    deployment_scale(tenant=tenant, name="qwen3-8b", replicas=2, actor=TESTER)
    page = text_of(owner.get("/t/ml-team/audit/"))
    assert "deployment_scale" in page
    assert "deployment_apply" in page
    narrowed = text_of(owner.get("/t/ml-team/audit/", {"q": "scale"}))
    assert "deployment_apply" not in narrowed
    assert "No event matches" in text_of(owner.get("/t/ml-team/audit/", {"outcome": "refused"}))
    assert "deployment_scale" not in text_of(browser("outsider").get("/t/team-vision/audit/"))
