"""Ours beside OpenCost's: the figures by hand, who may look, and what finance changes."""

from __future__ import annotations

import csv
import io

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.models import OpenCostSource
from billing.selectors.beside_opencost import beside_opencost, tenant_namespaces
from infra.models import ClusterEndpoint
from portal.kernel.clock import Interval
from portal.kernel.scoping import system_scope
from tests.billing.estate import DAY, Estate
from tests.billing.factories import T0
from tests.billing.opencost_estate import read_opencost
from tests.web.billing.conftest import Browsers

pytestmark = pytest.mark.django_db
DAYS = "start=2026-11-01&end=2026-11-02"
TWO_DAYS = Interval(T0, T0 + 2 * DAY)


@pytest.fixture
def read(estate: Estate) -> Estate:
    read_opencost(estate)
    return estate


def test_the_figures_by_hand(read: Estate) -> None:
    with system_scope("test"):
        page = beside_opencost(TWO_DAYS)
        got = [
            (str(row.day), row.namespace, row.hours, f"{row.our_hours:.2f}", f"{row.their_hours:.2f}",
             {name.value: f"{hours:.2f}" for name, hours in row.parts}, f"{row.our_cost}", f"{row.their_cost:.2f}")
            for row in page.rows
        ]  # fmt: skip
    assert got == [
        ("2026-11-02", "v", 3, "6.00", "6.00", {}, "15.000000", "18.00"),
        # a quarter counted whole for two hours: 1.5; a pod that we know nothing of: 2
        ("2026-11-01", "v", 2, "0.50", "4.00", {"hami": "1.50", "unexplained": "2.00"}, "0.600000", "10.00"),
        ("2026-11-01", "nobodys", 2, "2.00", "2.00", {}, "5.000000", "5.00"),
    ]
    first, second, _ = page.rows
    assert (first.price, first.has_other_price) == (3, True)  # 6 card-hours at 3.00 instead of 2.50
    assert second.unexplained == 2
    assert page.silent == (("east", 43),)
    assert page.compared == 5


def test_a_tenant_has_its_own_namespaces(read: Estate) -> None:
    with system_scope("test"):
        names = tenant_namespaces(read.tenant.pk, TWO_DAYS)
        assert {row.namespace for row in beside_opencost(TWO_DAYS, namespaces=names).rows} == {"v"}
        assert not beside_opencost(TWO_DAYS, namespaces=tenant_namespaces(read.other.pk, TWO_DAYS)).rows


@pytest.mark.parametrize("role", ["platform-admin", "platform-finance", "platform-viewer"])
def test_platform_roles_read_it(read: Estate, browser: Browsers, role: str) -> None:
    page = browser(role).get(f"/platform/opencost/?{DAYS}&cluster=east&tenant=vision").content.decode()
    for words in ("share counted as a whole card", "unexplained", "another price", "the same", "HTTP status 500"):
        assert words in page
    assert ("Read again from" in page) == (role != "platform-viewer")
    assert "nobodys" not in page  # not the team's


def test_the_file_has_a_column_for_each_class(read: Estate, browser: Browsers) -> None:
    answer = browser("platform-viewer").get(f"/platform/opencost.csv?{DAYS}")
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [row["namespace"] for row in rows] == ["v", "v", "nobodys"]
    assert (rows[1]["difference"], rows[1]["difference_hami"], rows[1]["difference_unexplained"]) == (
        "3.500000", "1.500000", "2.000000",
    )  # fmt: skip
    assert (rows[0]["cost_difference"], rows[0]["tenants"]) == ("3.0000000000", "vision")


def test_teams_read_their_own(read: Estate, browser: Browsers) -> None:
    for role, status in {"owner": 200, "finance": 200, "developer": 200, "viewer": 403, "outsider": 404}.items():
        for address in ("/t/vision/opencost/", "/t/vision/opencost.csv"):
            assert browser(role).get(f"{address}?{DAYS}").status_code == status, (role, address)
    page = browser("owner").get(f"/t/vision/opencost/?{DAYS}").content.decode()
    assert "share counted as a whole card" in page
    assert "nobodys" not in page
    bill = browser("owner").get(f"/t/vision/bills/{read.bill().pk}/").content.decode()
    assert "/t/vision/opencost/?start=2026-11-01&amp;end=2026-11-30" in bill


def test_wrong_days_are_told_and_nothing_breaks(read: Estate, browser: Browsers) -> None:
    for query in ("start=2026-11-05&end=2026-11-01", "start=x", "start=2026-01-01&end=2026-11-01", "cluster=none"):
        assert browser("platform-viewer").get(f"/platform/opencost/?{query}").status_code == 200


def test_more_pods_ask_no_more_queries(read: Estate, browser: Browsers) -> None:
    client = browser("platform-viewer")
    client.get(f"/platform/opencost/?{DAYS}")
    with CaptureQueriesContext(
        connection,
    ) as queries:
        client.get(f"/platform/opencost/?{DAYS}")
    assert len(queries) <= 45


def test_finance_says_the_currency(read: Estate, browser: Browsers) -> None:
    address = "/platform/opencost/east/settings"
    assert browser("platform-viewer").post(address, {"currency": "CHF"}).status_code == 403
    answer = browser("platform-finance").post(address, {"currency": "chf", "read_from": "2026-11-01"}, follow=True)
    assert "OpenCost of east is read so from now on" in answer.content.decode()
    with system_scope("test"):
        assert OpenCostSource.objects.get(cluster=read.cluster).currency == "CHF"
    assert ClusterEndpoint.objects.get(cluster=read.cluster).read_until == T0
    answer = browser("platform-finance").post(address, {"currency": "xx"}, follow=True)
    assert "ISO 4217" in answer.content.decode()
    assert browser("platform-finance").post("/platform/opencost/none/settings", {}).status_code == 404


def test_without_any_opencost_the_page_says_what_to_do(estate: Estate, browser: Browsers) -> None:
    page = browser("platform-viewer").get("/platform/opencost/").content.decode()
    assert "No cluster has an OpenCost" in page
