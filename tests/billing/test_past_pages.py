"""The card History, and the statement of the past: pages, files and REST."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from billing.models import Issuer
from infra.models import Cluster, Rebuild
from infra.services.rebuilds import rebuild_start
from portal.accounts.models import User
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_VIEWER
from tenants.models import Member, Tenant
from tests.billing.factories import claim_namespaces, make_issuer, make_rate, make_tenant, set_watermark
from tests.billing.test_past import (  # fixtures are found by their names here
    ADMIN,
    CONNECTED,
    _h100,
    calm,  # noqa: F401
    cluster,  # noqa: F401
    history,  # noqa: F401
    metered,
    run,
    server,  # noqa: F401
    whole,
)

pytestmark = pytest.mark.django_db


def client(name: str, role: str = "") -> Client:
    user = User.objects.create_user(name, platform_role=role)
    found = Client()
    found.force_login(user)
    return found


@pytest.fixture
def team(cluster: Cluster) -> tuple[Tenant, Issuer]:  # noqa: F811
    """A team with rebuilt, metered and priced time."""
    tenant, issuer = make_tenant("vision"), make_issuer()
    claim_namespaces(cluster, tenant, ["v"])
    make_rate(issuer, "2.50", gpu_type=_h100())
    whole(cluster)
    set_watermark(cluster, CONNECTED)
    metered(cluster)
    return tenant, issuer


def member(tenant: Tenant) -> Client:
    found = client("finance-1")
    Member.objects.create(tenant=tenant, user=User.objects.get(username="finance-1"), role="finance")
    return found


def rows_of(answer: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def test_a_run_from_the_page(cluster: Cluster) -> None:  # noqa: F811
    admin, viewer = client("admin-1", PLATFORM_ADMIN), client("viewer-1", PLATFORM_VIEWER)
    page = reverse("infra:cluster", args=[cluster.slug])
    assert "Rebuild the past" in admin.get(page).content.decode()
    assert "Rebuild the past" not in viewer.get(page).content.decode()
    start = reverse("infra:history-start", args=[cluster.slug])
    assert viewer.post(start, {"since": ""}).status_code == 403
    assert admin.post(start, {"since": "2027-01-01"}).status_code == 422
    assert admin.post(start, {"since": ""}).status_code == 303
    rebuild = Rebuild.objects.get()
    card = reverse("infra:history", args=[cluster.slug])
    fragment = viewer.get(card, headers={"HX-Request": "true"}).content.decode()
    assert fragment.lstrip().startswith("<section")
    assert 'hx-trigger="every 5s"' in fragment
    assert '<progress class="flex-fill" max="100" value="0"' in fragment
    act = reverse("infra:history-act", args=[cluster.slug, "pause"])
    assert admin.post(act).status_code == 303
    assert "hx-trigger" not in admin.get(card).content.decode(), "nothing moves while it is paused"
    assert admin.post(start, {"since": ""}).status_code == 422
    admin.post(reverse("infra:history-act", args=[cluster.slug, "resume"]))
    assert run(rebuild).state == "done"
    done = admin.get(card).content.decode()
    assert "1 gap in the scrapes" in done
    assert "Look again" in done
    cancelled = admin.post(reverse("infra:history-act", args=[cluster.slug, "cancel"]))
    assert cancelled.status_code == 409
    assert "nothing to change" in cancelled.content.decode()


def test_a_run_over_rest(cluster: Cluster) -> None:  # noqa: F811
    admin, viewer = client("admin-1", PLATFORM_ADMIN), client("viewer-1", PLATFORM_VIEWER)
    address = f"/api/v1/clusters/{cluster.slug}/rebuilds"
    assert viewer.post(address, {}, content_type="application/json").status_code == 403
    made = admin.post(address, {"since": "2026-10-20T00:00:00Z"}, content_type="application/json")
    assert made.status_code == 202
    one = f"{address}/{made.json()['id']}"
    assert admin.post(address, {}, content_type="application/json").status_code == 409
    assert admin.post(f"{one}/pause").json()["state"] == "paused"
    assert admin.post(f"{one}/resume").json()["state"] == "pending"
    run(Rebuild.objects.get())
    told = viewer.get(one).json()
    assert (told["state"], told["progress"], told["pods"], len(told["gaps"])) == ("done", 100, 6, 1)
    assert [row["id"] for row in viewer.get(address).json()["results"]] == [told["id"]]
    assert admin.post(f"{one}/cancel").status_code == 409
    assert client("nobody").get(address).status_code == 404


def test_a_team_reads_its_past(team: tuple[Tenant, Issuer]) -> None:
    tenant, _ = team
    finance = member(tenant)
    assert "2026-10" in finance.get(reverse("billing:past", args=[tenant.slug])).content.decode()
    page = finance.get(reverse("billing:past-month", args=[tenant.slug, "2026-10"])).content.decode()
    assert "statement of the past" in page
    assert finance.get(reverse("billing:past-month", args=[tenant.slug, "2026-01"])).status_code == 404
    rows = rows_of(finance.get(reverse("billing:past-month-csv", args=[tenant.slug, "2026-10"])))
    assert {row["source"] for row in rows} == {"retroactive"}
    assert sum(float(row["error"]) for row in rows) > 0
    told = finance.get(f"/api/v1/tenants/{tenant.slug}/past").json()
    assert [row["month"] for row in told] == ["2026-11", "2026-10"]
    month = finance.get(f"/api/v1/tenants/{tenant.slug}/past/2026-10").json()
    assert month["total"] == told[1]["total"]
    assert [line["label"] for line in month["lines"]] == ["v"]
    assert client("stranger").get(f"/api/v1/tenants/{tenant.slug}/past").status_code == 404


def test_rebuilt_usage_is_marked(team: tuple[Tenant, Issuer]) -> None:
    tenant, _ = team
    finance = member(tenant)
    query = {"start": "2026-10-30", "end": "2026-10-31"}
    page = finance.get(reverse("billing:usage", args=[tenant.slug]), query).content.decode()
    assert "rebuilt from history" in page
    assert 'title="Rebuilt from Prometheus; on no bill"' in page
    assert {
        row["retroactive"] for row in rows_of(finance.get(reverse("billing:usage-csv", args=[tenant.slug]), query))
    } == {"yes"}
    window = {"start": "2026-10-30T00:00:00Z", "end": "2026-11-01T00:00:00Z"}
    told = finance.get(f"/api/v1/tenants/{tenant.slug}/usage", window).json()
    assert {row["key"]["retroactive"] for row in told["rows"]} == {True}
    assert told["past"]["gpu_hours"] == told["total"]["gpu_hours"]
    viewer = client("viewer-2", PLATFORM_VIEWER)
    page = viewer.get(reverse("billing:conservation"), query).content.decode()
    assert "rebuilt</span>" in page
    assert "do not</span>" not in page


def test_the_platform_sees_all_teams(team: tuple[Tenant, Issuer]) -> None:
    tenant, issuer = team
    viewer = client("viewer-1", PLATFORM_VIEWER)
    page = viewer.get(reverse("billing:platform-past"), {"month": "2026-10"}).content.decode()
    assert f">{tenant.name}</a>" in page
    assert viewer.get(reverse("billing:platform-past"), {"month": "2020-01"}).status_code == 404
    rows = rows_of(viewer.get(reverse("billing:platform-past-csv", args=[issuer.slug, "2026-10"])))
    assert {row["tenant"] for row in rows} == {"vision"}
    address = f"/api/v1/billing/issuers/{issuer.slug}/past"
    assert viewer.get(address).json() == {"months": ["2026-11", "2026-10"]}
    told = viewer.get(f"{address}/2026-10").json()
    assert [row["tenant"] for row in told] == ["vision"]


def test_before_anything_was_rebuilt(cluster: Cluster) -> None:  # noqa: F811
    tenant = make_tenant("vision")
    make_issuer()
    assert "Nothing of this team" in member(tenant).get(reverse("billing:past", args=[tenant.slug])).content.decode()
    viewer = client("viewer-1", PLATFORM_VIEWER)
    assert "Nothing was rebuilt yet" in viewer.get(reverse("billing:platform-past")).content.decode()
    rebuild_start(cluster=cluster, actor=ADMIN, since=datetime(2026, 10, 1, tzinfo=UTC))
    assert "not known yet" in viewer.get(reverse("infra:history", args=[cluster.slug])).content.decode()
