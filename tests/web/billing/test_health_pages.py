"""Faults and their credits on the pages: the platform's list, what needs attention, a decision, the team's own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from rest_framework.test import APIClient

from billing.models import DeviceAllocation, FaultCredit
from billing.services.fault_credits import fault_credits_update
from infra.models import HealthEvent, Node, PodObservation
from infra.selectors.health import told_of_deployment
from portal.kernel.scoping import system_scope
from tests.billing.estate import NOW, Estate
from tests.billing.factories import T0
from tests.web.billing.conftest import Browsers
from tests.web.billing.test_figures import page

pytestmark = pytest.mark.django_db


@pytest.fixture
def event(estate: Estate, settings: Any) -> HealthEvent:
    """A card of ``train`` fell off the bus on the 3rd at midnight; finance decides above 10.00."""
    settings.AIF_FAULT_CREDIT_LIMIT = 10
    with system_scope("test"):
        DeviceAllocation.objects.filter(pod_name="train", ordinal=0).update(device_uuid="GPU-1")
    node = Node.objects.get(name="node-0")
    row = HealthEvent.objects.create(
        cluster=node.cluster, node=node, device="GPU-1", kind="xid", code="79", fault_class="node",
        started_at=T0 + timedelta(days=2), source="metrics", message="XID 79: the card has fallen off the bus",
        affects=[["v", "train", "uid-train"]],
    )  # fmt: skip
    assert fault_credits_update() == 1
    return row


def credit() -> FaultCredit:
    with system_scope("test"):
        return FaultCredit.objects.get()


def test_what_is_at_fault(estate: Estate, event: HealthEvent, browser: Browsers) -> None:
    viewer = browser("platform-viewer")
    text = page(viewer, "/platform/health/")
    assert "At fault now" in text
    assert "GPU-1 of node-0" in text
    assert "v/train" in text
    assert "It is over" not in text, "a viewer changes nothing"
    assert "XID 79 on GPU-1 of node-0 since 2026-11-03 00:00 UTC" in page(viewer, "/platform/")
    assert "At fault now" in page(viewer, "/platform/clusters/east/")
    assert "Nothing was told that matches" in page(viewer, "/platform/health/?fault_class=reset")
    for query in ("?q=GPU-1", "?cluster=east&kind=xid&lasting=on", "?page=99999", "?page=x", "?cluster=none"):
        assert viewer.get(f"/platform/health/{query}").status_code == 200, query


def test_a_person_ends_it(estate: Estate, event: HealthEvent, browser: Browsers) -> None:
    address = f"/platform/health/{event.pk}/end"
    assert browser("platform-viewer").post(address, {"reason": "x"}).status_code in (403, 404)
    admin = browser("platform-admin")
    assert "Say what was done" in page_after(admin, address, {"reason": ""})
    assert "XID 79 is over" in page_after(admin, address, {"reason": "card changed"})
    event.refresh_from_db()
    assert event.ended_at is not None
    assert "card changed" in event.ended_by
    assert admin.post(f"/platform/health/{uuid4()}/end", {"reason": "x"}).status_code == 404


def page_after(client: Any, address: str, data: dict[str, str]) -> str:
    answer = client.post(address, data, follow=True)
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_finance_decides_and_the_team_reads(estate: Estate, event: HealthEvent, browser: Browsers) -> None:
    finance, owner = browser("platform-finance"), browser("owner")
    # One of two cards from the 3rd to the 6th, 04:00: 76 h at 2.50.
    text = page(finance, "/platform/credits/?state=proposed")
    assert "XID 79 on GPU-1 of node node-0 at 2026-11-03 00:00:00 UTC" in text
    assert "190.00 EUR" in text
    assert "1 waits for finance" in text
    assert "190.00 EUR proposed" in page(owner, "/t/vision/credits/")
    assert "There is none that matches" in page(browser("outsider"), "/t/audio/credits/")
    address = f"/platform/credits/{credit().pk}/decide"
    assert browser("platform-viewer").post(address, {"decision": "approve", "reason": "x"}).status_code in (403, 404)
    assert "on the next bill" in page_after(finance, address, {"decision": "approve", "reason": "seen"})
    assert credit().state == "approved"
    running = page(owner, "/t/vision/bills/open/2026-12/")
    assert "credit XID 79 on GPU-1 of node node-0" in running
    assert "-190.00" in running.replace("−", "-")


def test_rest(estate: Estate, event: HealthEvent) -> None:
    def client(who: str) -> APIClient:
        one = APIClient()
        one.force_login(estate.people[who])
        return one

    viewer, finance = client("platform-viewer"), client("platform-finance")
    [row] = viewer.get("/api/v1/health/events?lasting=true&cluster=east").json()["results"]
    assert (row["code"], row["fault_class"], row["node"], row["ended_at"]) == ("79", "node", "node-0", None)
    assert viewer.get("/api/v1/health/events?fault_class=x").status_code == 400
    assert client("owner").get("/api/v1/health/events").status_code in (403, 404)
    [row] = finance.get("/api/v1/billing/fault-credits").json()["results"]
    assert (row["amount"], row["state"], row["because"], row["settled"]) == ("190", "proposed", "card", True)
    decide = f"/api/v1/billing/fault-credits/{row['id']}/decide"
    assert viewer.post(decide, {"approve": True, "reason": "x"}, format="json").status_code in (403, 404)
    done = finance.post(decide, {"approve": False, "reason": "the log shows a test"}, format="json")
    assert (done.status_code, done.json()["state"]) == (200, "rejected")
    [own] = client("finance").get("/api/v1/tenants/vision/fault-credits").json()["results"]
    assert own["decided_why"] == "the log shows a test"
    assert client("outsider").get("/api/v1/tenants/vision/fault-credits").status_code == 404
    ended = client("platform-admin").post(f"/api/v1/health/events/{event.pk}/end", {"reason": "changed"}, format="json")
    assert ended.status_code == 200
    assert ended.json()["ended_at"]


def test_a_deployment_is_told_of_its_own_pods_only(estate: Estate, event: HealthEvent) -> None:
    mine, other = uuid4(), uuid4()
    PodObservation.objects.filter(name="train").update(deployment_id=mine)
    PodObservation.objects.filter(name="lost").update(deployment_id=other)
    [told] = told_of_deployment(mine, NOW - timedelta(days=60))
    assert (told.title, told.pod, told.credited, told.at) == ("XID 79", "train", True, event.started_at)
    assert told_of_deployment(other, NOW - timedelta(days=60)) == []
    assert told_of_deployment(mine, NOW) == []
