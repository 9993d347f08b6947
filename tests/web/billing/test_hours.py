"""Where the hours go: figures by hand, drill-downs, files, REST, and as many queries for many hours as for few."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from billing.models import BlockedHour, CapacityHour, IdleHour
from billing.selectors.hours import PARTS, REASONS, Only, hours_table
from billing.web.forms import WindowForm
from infra.models import Node, TelemetryHour
from portal.kernel.clock import HOUR, Interval
from portal.kernel.scoping import system_scope
from tenants.models import ModelDeployment
from tests.billing.estate import Estate
from tests.billing.factories import T0
from tests.web.billing.conftest import Browsers
from tests.web.billing.test_figures import page, rows_of

pytestmark = pytest.mark.django_db
CARD_HOUR = 3_600_000_000_000
FIRST = "?start=2026-11-01&end=2026-11-01"
NOVEMBER_1 = Interval(T0, T0 + timedelta(days=1))


def blocked(estate: Estate, *, hour: datetime = T0, cards: int = 3) -> None:
    """In that hour the quota kept so many cards of node-0 from a deployment of ``audio``; ``vision`` owns them."""
    row = IdleHour.objects.get(node__name="node-0", hour=hour)
    row.quota, row.no_demand = cards * CARD_HOUR, row.no_demand - cards * CARD_HOUR
    row.save()
    with system_scope("test"):
        deployment = ModelDeployment.objects.create(tenant=estate.other, name="tts", spec={}, created_by="test")
    BlockedHour.objects.create(
        cluster=row.cluster, node=row.node, gpu_type=row.gpu_type, sharing=row.sharing, hour=hour,
        tenant_id=estate.other.pk, deployment_id=deployment.pk, owner_tenant_id=estate.tenant.pk,
        units=cards * CARD_HOUR,
    )  # fmt: skip


def busy(node: str, pod: str, percent: int, hours: int = 24, namespace: str = "v") -> None:
    cluster = Node.objects.get(name=node).cluster
    for number in range(hours):
        TelemetryHour.objects.create(
            cluster=cluster, hour=T0 + timedelta(days=1) + number * HOUR, node=node, uuid="GPU-1", scope="card",
            namespace=namespace, pod=pod, busy_ms=36_000 * percent, observed_ms=3_600_000,
        )  # fmt: skip


def test_the_figures_of_a_day(estate: Estate, browser: Browsers) -> None:
    blocked(estate)
    viewer = browser("platform-viewer")
    text = page(viewer, f"/platform/hours/{FIRST}")
    # 16 cards × 24 h; 2 h of a card are nobody's, 2.5 card-hours of a share are held: 4.5 of 384 are allocated.
    assert "In service, card-hours 384.00 Allocated 1.2 % Busy not known Stranded 0.0 % Idle 379.50" in text
    # (190 × 2.50 + 189.5 × 1.20) on one day
    assert "702.40 EUR" in text
    assert "quota-blocked 3.00" in text
    assert "audio vision h100 on east 3.00 7.50" in text, "who waited, whose guarantee is unused, and the price"
    [whole, hami] = rows_of(viewer, f"/platform/hours.csv{FIRST}&by=gpu_type")
    assert (whole["gpu_type"], hami["gpu_type"]) == ("h100", "a100")
    assert {name: Decimal(whole[name]) for name in PARTS if Decimal(whole[name])} == {
        "unattributed": 2, "no_demand": 187, "quota": 3,
    }  # fmt: skip
    assert Decimal(whole["in_service"]) == 192
    assert (whole["busy_percent"], whole["some_unpriced"]) == ("", "no")
    assert Decimal(whole["idle_cost"]) == 475


def test_rows_may_be_apart_in_anything_and_add_up(estate: Estate) -> None:
    window = Interval(T0, T0 + timedelta(days=7))
    with system_scope("test"):
        whole = hours_table(window, by=()).total
        for by in (("site",), ("cluster",), ("pool",), ("gpu_type",), ("day",), ("tenant",), ("model",),
                   ("day", "pool", "tenant", "model", "gpu_type", "site")):  # fmt: skip
            table = hours_table(window, by=by)
            assert table.balance == 0, by
            for name in PARTS:
                assert sum(row.parts[name] for row in table.rows) == whole.parts[name], (by, name)
        one = hours_table(window, by=("model",), only=Only(tenant_id=estate.tenant.pk))
    assert [(row.key.model, row.parts["tenants"] / CARD_HOUR) for row in one.rows] == [("v", 202.5)]
    assert one.total.parts["tenants"] == whole.parts["tenants"]


def test_by_team_what_is_no_teams_stands_apart(estate: Estate, browser: Browsers) -> None:
    rows = rows_of(browser("platform-finance"), f"/platform/hours.csv{FIRST}&by=tenant&by=gpu_type")
    found = {(row["gpu_type"], row["tenant"]): row for row in rows}
    assert Decimal(found["a100", "vision"]["tenants"]) == Decimal("2.5")
    assert Decimal(found["a100", ""]["tenants"]) == 0
    assert Decimal(found["a100", ""]["idle"]) == Decimal("189.5")
    html = browser("platform-finance").get(f"/platform/hours/{FIRST}&by=tenant").content.decode()
    assert "no team&#x27;s" in html
    assert "tenant=vision&amp;by=tenant&amp;by=model" in html


def test_every_key_and_number_leads_on(estate: Estate, browser: Browsers) -> None:
    viewer = browser("platform-viewer")
    html = viewer.get(f"/platform/hours/{FIRST}&by=pool").content.decode()
    for link in ("cluster=east&amp;by=cluster&amp;by=pool", "by=day&amp;by=pool", "reason=no_demand",
                 "/platform/hours/adds-up/"):  # fmt: skip
        assert link in html, link
    assert "@page" in open("static/css/portal.css").read()  # noqa: SIM115
    text = page(viewer, f"/platform/hours/idle/{FIRST}&reason=no_demand")
    assert "node-0" in text
    files = rows_of(viewer, f"/platform/hours/idle.csv{FIRST}")
    assert len(files) == 48
    assert all(sum(Decimal(row[name]) for name in REASONS) == Decimal(row["idle"]) for row in files)
    assert rows_of(viewer, f"/platform/hours/idle.csv{FIRST}&reason=stranded") == []


def test_hours_without_reasons_say_so(estate: Estate, browser: Browsers) -> None:
    IdleHour.objects.filter(hour__lt=T0 + 12 * HOUR).delete()
    text = page(browser("platform-viewer"), f"/platform/hours/{FIRST}")
    assert "reason not known 187.50" in text, "they are idle all the same, and have no price of a reason"
    assert "and what has no price" in text


def test_busy_is_what_samples_say(estate: Estate, browser: Browsers) -> None:
    busy("node-0", "train", 10)
    viewer = browser("platform-viewer")
    day = "?start=2026-11-02&end=2026-11-02"
    [row] = [one for one in rows_of(viewer, f"/platform/hours.csv{day}&by=gpu_type") if one["gpu_type"] == "h100"]
    assert Decimal(row["busy_percent"]) == 10
    assert "10.0 % of 24.00 observed card-hours" in page(viewer, f"/platform/hours/{day}")


def test_held_and_not_used(estate: Estate, browser: Browsers) -> None:
    busy("node-0", "train", 10)
    viewer = browser("platform-viewer")
    day = "?start=2026-11-02&end=2026-11-02"
    [row] = rows_of(viewer, f"/platform/hours/held.csv{day}")
    assert (row["tenant"], row["namespace"], row["pods"]) == ("vision", "v", "1")
    # 2 cards × 24 h × 2.50 a day, 90 % of it not used
    assert (Decimal(row["busy_percent"]), Decimal(row["cost_per_day"])) == (10, 120)
    assert Decimal(row["unused_cost_per_day"]) == 108
    assert rows_of(viewer, f"/platform/hours/held.csv{day}&below=10") == []
    assert "No held card was busy" in page(viewer, "/platform/hours/held/?start=2026-11-05&end=2026-11-05")
    text = page(browser("owner"), f"/t/vision/usage/{day}")
    assert "v namespace h100 1 10.0 % 120.00 108.00" in text
    assert "Held and hardly used" not in page(browser("outsider"), f"/t/audio/usage/{day}")


def rest(estate: Estate, who: str) -> APIClient:
    client = APIClient()
    client.force_login(estate.people[who])
    return client


def test_rest(estate: Estate) -> None:
    blocked(estate)
    client = rest(estate, "platform-viewer")
    query = "?start=2026-11-01T00:00:00Z&end=2026-11-02T00:00:00Z"
    body = client.get(f"/api/v1/hours{query}&by=gpu_type,day").json()
    assert (body["difference"], body["currency"], body["days"]) == ("0", "EUR", "1")
    [whole] = [row for row in body["rows"] if row["key"]["gpu_type"] == "h100"]
    assert (whole["parts"]["quota"], whole["idle_costs"]["quota"], whole["busy_percent"]) == ("3", "7.5", None)
    assert body["blocked"][0] | {} == {
        "tenant": "audio", "owner": "vision", "cluster": "east", "gpu_type": "h100", "card_hours": "3", "cost": "7.5",
    }  # fmt: skip
    rows = client.get(f"/api/v1/hours/idle{query}&reason=quota").json()["results"]
    assert [(row["node"], row["quota"]) for row in rows] == [("node-0", "3")]
    assert client.get(f"/api/v1/hours/held{query}").json() == []
    for wrong in ("?by=password", "?cluster=none", "?pool=h100-whole"):
        assert client.get(f"/api/v1/hours{wrong}").status_code == 400, wrong
    assert client.get("/api/v1/hours/idle?reason=x").status_code == 400
    assert client.get("/api/v1/hours/held?below=0").status_code == 400
    for path in ("hours", "hours/idle", "hours/held"):
        assert rest(estate, "owner").get(f"/api/v1/{path}").status_code in (403, 404), path


def fill(estate: Estate, number: int, start: datetime) -> None:
    """So many hours of capacity with idle time, on nodes of their own."""
    node = Node.objects.get(name="node-0")
    hours = [start + (count % 24) * HOUR for count in range(number)]
    pool = node.pool
    nodes = Node.objects.bulk_create(
        Node(cluster=node.cluster, pool=pool, name=f"{start:%d}-{n}", uid=f"{start:%d}-{n}", cards=1, first_seen_at=T0)
        for n in range(-(-number // 24))
    )
    CapacityHour.objects.bulk_create(
        CapacityHour(cluster=node.cluster, node=nodes[n // 24], gpu_type=pool.gpu_type, sharing="whole", hour=hour,
                     idle=CARD_HOUR, in_service=CARD_HOUR)
        for n, hour in enumerate(hours)
    )  # fmt: skip
    IdleHour.objects.bulk_create(
        IdleHour(cluster=node.cluster, node=nodes[n // 24], gpu_type=pool.gpu_type, sharing="whole", hour=hour,
                 idle=CARD_HOUR, no_demand=CARD_HOUR)
        for n, hour in enumerate(hours)
    )  # fmt: skip


@pytest.mark.parametrize("path", ["/platform/hours/", "/platform/hours/idle/"])
def test_as_many_queries_for_ten_thousand_hours_as_for_a_hundred(estate: Estate, browser: Browsers, path: str) -> None:
    few, many = datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 10, 2, tzinfo=UTC)
    fill(estate, 100, few)
    fill(estate, 10_000, many)
    viewer = browser("platform-viewer")

    def queries(client: Client, day: str) -> int:
        with CaptureQueriesContext(
            connection,
        ) as found:
            answer = client.get(f"{path}?start={day}&end={day}&by=pool&by=tenant")
        assert answer.status_code == 200
        return len(found)

    queries(viewer, "2026-10-01")  # what is read once and kept
    assert queries(viewer, "2026-10-02") == queries(viewer, "2026-10-01")
    with system_scope("test"):
        table = hours_table(Interval(many, many + timedelta(days=1)), by=("pool",))
    assert table.total.in_service == 10_000 * CARD_HOUR


def test_only_a_last_day_far_ahead_is_no_window_of_centuries() -> None:
    november = Interval(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
    window = WindowForm({"end": "2199-12-31"}).window("UTC", november)
    assert (window.end - window.start).days == WindowForm.longest
    window = WindowForm({"end": "2026-11-10"}).window("UTC", november)
    assert (window.start, window.end) == (november.start, datetime(2026, 11, 11, tzinfo=UTC))
