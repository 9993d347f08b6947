"""OpenCost over REST: the comparison, the settings, and who may."""

from __future__ import annotations

import pytest

from tests.api.billing.conftest import Clients
from tests.billing.estate import Estate
from tests.billing.opencost_estate import read_opencost

pytestmark = pytest.mark.django_db
API = "/api/v1"
DAYS = {"start": "2026-11-01T00:00:00Z", "end": "2026-11-03T00:00:00Z"}


def test_the_comparison(estate: Estate, client_of: Clients) -> None:
    read_opencost(estate)
    rows = client_of("platform-viewer").get(f"{API}/billing/opencost", DAYS).json()
    assert [(row["day"], row["namespace"], row["difference"]) for row in rows] == [
        ("2026-11-02", "v", "0"), ("2026-11-01", "v", "3.5"), ("2026-11-01", "nobodys", "0"),
    ]  # fmt: skip
    assert rows[1]["parts"] == [
        {"name": "hami", "card_hours": "1.5"}, {"name": "unexplained", "card_hours": "2"},
    ]  # fmt: skip
    narrowed = client_of("platform-viewer").get(f"{API}/billing/opencost", DAYS | {"tenant": "vision"}).json()
    assert {row["namespace"] for row in narrowed} == {"v"}
    assert client_of("platform-viewer").get(f"{API}/billing/opencost", {"cluster": "none"}).status_code == 400
    own = client_of("owner").get(f"{API}/tenants/vision/opencost", DAYS).json()
    assert [row["namespace"] for row in own] == ["v", "v"]
    assert client_of("owner").get(f"{API}/billing/opencost", DAYS).status_code == 404
    assert client_of("viewer").get(f"{API}/tenants/vision/opencost", DAYS).status_code == 403
    assert client_of("outsider").get(f"{API}/tenants/vision/opencost", DAYS).status_code == 404


def test_settings(estate: Estate, client_of: Clients) -> None:
    read_opencost(estate)
    (source,) = client_of("platform-viewer").get(f"{API}/billing/opencost/sources").json()
    assert (source["cluster"], source["currency"], source["state"]) == ("east", "EUR", "AnswerRefused")
    address = f"{API}/billing/opencost/sources/east"
    assert client_of("platform-viewer").put(address, {"currency": "CHF"}, format="json").status_code == 403
    done = client_of("platform-finance").put(
        address, {"currency": "CHF", "read_from": "2026-11-01T00:00:00Z"}, format="json"
    )
    assert done.status_code == 200
    assert (done.json()["currency"], done.json()["read_until"]) == ("CHF", "2026-11-01T00:00:00Z")
    wrong = client_of("platform-finance").put(address, {"currency": "XX1"}, format="json")
    assert wrong.status_code == 422


def test_a_fixed_line_has_no_hours(estate: Estate, client_of: Clients) -> None:
    line = estate.lines()[0]
    address = f"{API}/tenants/vision/bills/{line.bill_id}/lines/{line.pk}/hours"
    assert client_of("owner").get(address).json()["results"] == []
    assert client_of("outsider").get(address).status_code == 404
