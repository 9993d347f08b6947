"""Usage and money over REST: who may, the figures, the changes, and that reading writes nothing."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from billing.models import Bill, BillingAccount, CreditNote, Rate
from portal.kernel.scoping import system_scope
from tests.api.billing.conftest import Clients
from tests.billing.estate import PLATFORM, TEAM_ROLES, Estate, make_estate

pytestmark = pytest.mark.django_db

READERS = ("owner", "developer", "finance", *PLATFORM)
API = "/api/v1"
MOST_QUERIES = 40


def team_routes(estate: Estate) -> list[str]:
    bill, line = estate.bill().pk, estate.lines()[1].pk
    base = f"{API}/tenants/vision"
    return [
        f"{base}/usage",
        f"{base}/usage.csv",
        f"{base}/charges",
        f"{base}/bills",
        f"{base}/bills/{bill}",
        f"{base}/bills/{bill}.csv",
        f"{base}/bills/{bill}/lines",
        f"{base}/bills/{bill}/credit-notes",
        f"{base}/bills/{bill}/lines/{line}",
        f"{base}/bills/{bill}/lines/{line}/allocations",
        f"{base}/bills/{bill}/lines/{line}/allocations.csv",
    ]


PLATFORM_ROUTES = [
    "/billing/issuers",
    "/billing/issuers/house",
    "/billing/issuers/house/rates",
    "/billing/issuers/house/unpriced",
    "/billing/issuers/house/periods",
    "/billing/issuers/house/periods/2026-11",
    "/billing/issuers/house/periods/2026-12",
    "/billing/issuers/house/periods/2026-11.csv",
    "/billing/issuers/house/periods/2026-12.csv",
    "/billing/bills",
    "/billing/conservation",
    "/billing/conservation/hours",
    "/billing/unattributed",
]


def ok(client: APIClient, path: str) -> Any:
    answer = client.get(path)
    assert answer.status_code == 200, (path, answer.content)
    return answer.json()


def test_a_teams_routes_are_for_its_roles(estate: Estate, client_of: Clients) -> None:
    for role in (*TEAM_ROLES, *PLATFORM):
        client = client_of(role)
        for path in team_routes(estate):
            answer = client.get(path)
            assert answer.status_code == (200 if role in READERS else 403), (role, path)


def test_an_outsider_learns_nothing(estate: Estate, client_of: Clients) -> None:
    client = client_of("outsider")
    for path in team_routes(estate):
        answer = client.get(path)
        same = client.get(path.replace("vision", "no-such-team"))
        assert (answer.status_code, same.status_code) == (404, 404), path
        ours, theirs = ({**one.json(), "instance": "", "request_id": ""} for one in (answer, same))
        assert ours == theirs
        assert answer["Content-Type"] == "application/problem+json"
        if str(estate.bill().pk) in path:
            assert client.get(path.replace("vision", "audio")).status_code == 404, path
    for path in team_routes(estate):
        assert APIClient().get(path).status_code == 401, path


def test_platform_routes_are_for_platform_roles(estate: Estate, client_of: Clients) -> None:
    for role in (*TEAM_ROLES, "outsider", *PLATFORM):
        client = client_of(role)
        for path in PLATFORM_ROUTES:
            assert client.get(API + path).status_code == (200 if role in PLATFORM else 404), (role, path)
    for path in PLATFORM_ROUTES:
        assert APIClient().get(API + path).status_code == 401, path


def test_changes_are_for_finance(estate: Estate, client_of: Clients) -> None:
    rate = Rate.objects.get(sharing="whole")
    changes = [
        ("post", "/billing/issuers"),
        ("put", "/billing/accounts/vision"),
        ("post", "/billing/issuers/house/rates"),
        ("post", f"/billing/rates/{rate.pk}/end"),
        ("post", "/billing/issuers/house/periods/2026-12/close"),
        ("post", f"/billing/bills/{estate.bill().pk}/credit-notes"),
    ]
    for role, expected in (("owner", 404), ("outsider", 404), ("platform-viewer", 403)):
        for method, path in changes:
            answer = getattr(client_of(role), method)(API + path, {}, format="json")
            assert answer.status_code == expected, (role, path)
    for method, path in changes:
        assert getattr(APIClient(), method)(API + path, {}, format="json").status_code == 401
    assert Rate.objects.count() == 2


def test_reading_writes_nothing(estate: Estate, client_of: Clients) -> None:
    client = client_of("platform-finance")
    for path in (*team_routes(estate), *(API + path for path in PLATFORM_ROUTES)):
        with CaptureQueriesContext(connection) as queries:
            assert client.get(path).status_code == 200, path
        writing = [
            one["sql"]
            for one in queries
            if one["sql"].split()[0] in ("INSERT", "UPDATE", "DELETE") and "kernel_auditevent" not in one["sql"]
        ]
        assert writing == [], path
        assert len(queries) <= MOST_QUERIES, (path, len(queries))


def test_usage(estate: Estate, client_of: Clients) -> None:
    owner, base = client_of("owner"), f"{API}/tenants/vision/usage"
    window = "start=2026-11-01T00:00:00Z&end=2026-12-01T00:00:00Z"
    body = ok(owner, f"{base}?{window}&by=mode")
    assert body["total"]["gpu_hours"] == "202.5"
    assert body["total"]["amount"] == "503"
    assert [(row["key"]["sharing"], row["gpu_hours"], row["amount"]) for row in body["rows"]] == [
        ("whole", "200", "500"),
        ("hami", "2.5", "3"),
    ]
    assert ok(owner, base)["total"]["amount"] == "15", "the current month by default"
    for query in ("start=yesterday", "by=password", "deployment=nothing", "gpu_type=b200", "sharing=x",
                  "start=2026-11-02T00:00:00Z&end=2026-11-01T00:00:00Z", "start=2020-01-01T00:00:00Z",
                  "start=0001-01-01T00:00:00Z"):  # fmt: skip
        answer = owner.get(f"{base}?{query}")
        assert answer.status_code == 400, query
        assert answer.json()["detail"]


def test_charges_so_far(estate: Estate, client_of: Clients) -> None:
    [body] = ok(client_of("owner"), f"{API}/tenants/vision/charges")
    assert (body["period"], body["final"], body["open"], body["total"]) == ("2026-12", "15", "1.25", "16.25")
    assert body["known_until"] == "2026-12-02T12:30:00Z"
    assert [(line["state"], line["quantity"], line["amount"]) for line in body["lines"]] == [
        ("final", "6", "15"),
        ("running", "0.5", "1.25"),
    ]


def test_a_bill_down_to_its_allocations(estate: Estate, client_of: Clients) -> None:
    client = client_of("finance")
    [bill] = ok(client, f"{API}/tenants/vision/bills")["results"]
    assert (bill["number"], bill["total"], bill["currency"]) == ("2026-11-vision", "503", "EUR")
    base = f"{API}/tenants/vision/bills/{bill['id']}"
    assert ok(client, base) == bill
    lines = ok(client, f"{base}/lines")["results"]
    assert [(line["sharing"], line["quantity"], line["unit_price"], line["amount"]) for line in lines] == [
        ("hami", "2.5", "1.2", "3"),
        ("whole", "200", "2.5", "500"),
    ]
    for line in lines:
        parts = ok(client, f"{base}/lines/{line['id']}/allocations")
        assert parts["adds_up"] is True
        assert parts["quantity"] == line["quantity"]
        assert sum(Decimal(row["quantity"]) for row in parts["rows"]) == Decimal(line["quantity"])
    assert (parts["count"], parts["rows"][0]["pod"], parts["rows"][0]["seconds"]) == (2, "train", "360000")
    second = ok(client, f"{base}/lines/{lines[1]['id']}/allocations?offset=1&limit=5")
    assert (second["count"], len(second["rows"]), second["quantity"]) == (2, 1, "200")
    assert client.get(f"{base}/lines/{lines[1]['id']}/allocations?limit=x").status_code == 400
    file = client.get(f"{base}.csv", HTTP_ACCEPT="text/csv")
    assert file["Content-Type"].startswith("text/csv")
    assert file.content.decode().count("\r\n") == 3


def test_rates(estate: Estate, client_of: Clients) -> None:
    finance, base = client_of("platform-finance"), f"{API}/billing/issuers/house"
    assert {row["price"] for row in ok(finance, f"{base}/rates")["results"]} == {"2.5", "1.2"}
    rate = Rate.objects.get(sharing="whole")
    end = finance.post(f"{API}/billing/rates/{rate.pk}/end", {"valid_to": "2026-12-02T06:00:00Z"}, format="json")
    assert (end.status_code, end.json()["valid_to"]) == (200, "2026-12-02T06:00:00Z")
    [unpriced] = ok(finance, f"{base}/unpriced")
    assert (unpriced["what"], unpriced["quantity"], unpriced["unit"]) == ("h100 whole", "6", "gpu-hour")
    new = {"gpu_type": "h100", "sharing": "whole", "price": "3.125", "valid_from": "2026-12-02T06:00:00Z"}
    made = finance.post(f"{base}/rates", new, format="json")
    assert (made.status_code, made.json()["price"], made.json()["created_by"]) == (201, "3.125", "platform-finance")
    assert ok(finance, f"{base}/unpriced") == []
    assert len(ok(finance, f"{base}/rates?at=2026-12-02T07:00:00Z")["results"]) == 2
    wrong = finance.post(f"{base}/rates", new | {"gpu_type": "b200"}, format="json")
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/gpu_type")
    closed = finance.post(f"{base}/rates", new | {"valid_from": "2026-11-05T00:00:00Z"}, format="json")
    assert closed.status_code == 409


def test_close(estate: Estate, client_of: Clients) -> None:
    finance, base = client_of("platform-finance"), f"{API}/billing/issuers/house/periods"
    assert [(row["period"]["period"], row["period"]["state"], row["total"]) for row in ok(finance, base)] == [
        ("2026-12", "open", "0"),
        ("2026-11", "closed", "503"),
    ]
    again = finance.post(f"{base}/2026-11/close", {}, format="json")
    assert (again.status_code, again.json()["made"]) == (200, 0)
    early = finance.post(f"{base}/2026-12/close", {}, format="json")
    assert early.status_code == 409
    assert "can be closed from 2027-01-01T01:00:00Z" in early.json()["detail"]
    detail = ok(finance, f"{base}/2026-12")
    assert [one["code"] for one in detail["blockers"]] == ["TooEarly"]
    assert [(one["tenant"], one["total"], one["bill"]) for one in detail["statements"]] == [("vision", "15", None)]
    for label in ("2031-01", "2026-1", "x"):
        assert finance.get(f"{base}/{label}").status_code == 404, label


def test_the_close_makes_the_bill() -> None:
    estate = make_estate(closed=False)
    client = APIClient()
    client.force_login(estate.people["platform-finance"])
    done = client.post(f"{API}/billing/issuers/house/periods/2026-11/close", {}, format="json")
    assert (done.status_code, done.json()["made"]) == (200, 1)
    with system_scope("test"):
        assert Bill.objects.get().total == 503


def test_credit_notes(estate: Estate, client_of: Clients) -> None:
    finance = client_of("platform-finance")
    path = f"{API}/billing/bills/{estate.bill().pk}/credit-notes"
    body = {"amount": "100.00", "reason": "a node failed", "line": 2}
    for _ in range(2):
        made = finance.post(path, body, format="json", HTTP_IDEMPOTENCY_KEY="credit-1")
        assert (made.status_code, made.json()["amount"], made.json()["line"]) == (201, "100", 2)
    with system_scope("test"):
        assert CreditNote.objects.count() == 1
    assert finance.post(path, body | {"amount": "600.00"}, format="json").status_code == 409
    assert finance.post(path, body | {"line": 9}, format="json").status_code == 422
    notes = ok(client_of("owner"), f"{API}/tenants/vision/bills/{estate.bill().pk}/credit-notes")["results"]
    assert [note["reason"] for note in notes] == ["a node failed"]


def test_issuers_and_accounts(estate: Estate, client_of: Clients) -> None:
    finance = client_of("platform-finance")
    new = {"slug": "partner", "name": "Partners", "currency": "usd", "kind": "invoice"}
    assert finance.post(f"{API}/billing/issuers", new, format="json").json()["currency"] == "USD"
    assert finance.post(f"{API}/billing/issuers", new, format="json").status_code == 409
    assert (
        finance.post(f"{API}/billing/issuers", new | {"slug": "b", "currency": "XYZ"}, format="json").status_code == 422
    )
    done = finance.put(f"{API}/billing/accounts/audio", {"issuer": "partner"}, format="json")
    assert done.json() == {"issuer": "partner"}
    assert BillingAccount.objects.get().tenant == estate.other
    assert finance.put(f"{API}/billing/accounts/audio", {"issuer": "none"}, format="json").status_code == 422


def test_where_the_hours_go(estate: Estate, client_of: Clients) -> None:
    viewer = client_of("platform-viewer")
    window = "start=2026-11-01T00:00:00Z&end=2026-11-02T00:00:00Z"
    rows = {row["gpu_type"]: row for row in ok(viewer, f"{API}/billing/conservation?{window}")}
    assert (rows["h100"]["in_service"], rows["h100"]["unattributed"], rows["h100"]["difference"]) == ("192", "2", "0")
    assert (rows["a100"]["tenants"], rows["a100"]["idle_cost"]) == ("2.5", "227.4")
    hours = ok(viewer, f"{API}/billing/conservation/hours?{window}&gpu_type=h100")["results"]
    assert len(hours) == 24
    assert sum(Decimal(row["unattributed"]) for row in hours) == 2
    assert ok(viewer, f"{API}/billing/conservation/hours?{window}&wrong=true")["results"] == []
    [nobody] = ok(viewer, f"{API}/billing/unattributed?{window}")
    assert (nobody["namespace"], nobody["card_hours"]) == ("nobodys", "2")
    assert viewer.get(f"{API}/billing/conservation?cluster=none").status_code == 400
