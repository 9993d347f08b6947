"""Who gets which page of usage and money, and that looking changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from portal.kernel.models import AuditEvent
from portal.kernel.scoping import system_scope
from tests.billing.estate import PLATFORM, TEAM_ROLES, Estate
from tests.web.billing.conftest import Browsers

pytestmark = pytest.mark.django_db

READERS = ("owner", "developer", "finance", *PLATFORM)
FINANCE = ("platform-admin", "platform-finance")
MOST_QUERIES = 45


def team_pages(estate: Estate) -> list[str]:
    bill, line = estate.bill().pk, estate.lines()[0].pk
    return [
        "/t/vision/usage/",
        "/t/vision/usage.csv",
        "/t/vision/credits/",
        "/t/vision/bills/",
        "/t/vision/bills/open/2026-12/",
        "/t/vision/bills/open/2026-12.csv",
        f"/t/vision/bills/{bill}/",
        f"/t/vision/bills/{bill}.csv",
        f"/t/vision/bills/{bill}/lines/{line}/",
        f"/t/vision/bills/{bill}/lines/{line}.csv",
    ]


def platform_pages(estate: Estate) -> dict[str, tuple[str, ...]]:
    everybody = tuple(PLATFORM)
    return {
        "/platform/rates/": everybody,
        "/platform/issuers/": FINANCE,
        "/platform/bills/": everybody,
        "/platform/bills/house/2026-11/": everybody,
        "/platform/bills/house/2026-12/": everybody,
        "/platform/bills/house/2026-11.csv": everybody,
        "/platform/bills/house/2026-12.csv": everybody,
        f"/platform/credit/{estate.bill().pk}/": FINANCE,
        "/platform/hours/": everybody,
        "/platform/hours.csv": everybody,
        "/platform/hours/idle/": everybody,
        "/platform/hours/idle.csv": everybody,
        "/platform/hours/held/": everybody,
        "/platform/hours/held.csv": everybody,
        "/platform/health/": everybody,
        "/platform/credits/": everybody,
        "/platform/hours/adds-up/": everybody,
        "/platform/hours/adds-up.csv": everybody,
        "/platform/hours/nodes/": everybody,
        "/platform/hours/nodes.csv": everybody,
    }


def test_a_teams_pages_are_for_its_roles(estate: Estate, browser: Browsers) -> None:
    for role in (*TEAM_ROLES, *PLATFORM):
        client = browser(role)
        for path in team_pages(estate):
            answer = client.get(path)
            assert answer.status_code == (200 if role in READERS else 403), (role, path)
            assert "no-store" in answer["Cache-Control"]


def test_platform_pages_are_for_platform_roles(estate: Estate, browser: Browsers) -> None:
    for role in (*TEAM_ROLES, "outsider", *PLATFORM):
        client = browser(role)
        for path, roles in platform_pages(estate).items():
            expected = 404 if role not in PLATFORM else 200 if role in roles else 403
            assert client.get(path).status_code == expected, (role, path)


def test_an_outsider_gets_the_same_404_as_for_nothing(estate: Estate, browser: Browsers) -> None:
    client = browser("outsider")
    for path in team_pages(estate):
        answer = client.get(path)
        assert answer.status_code == 404, path
        assert "503.00" not in answer.content.decode()
        # Another tenant's bill under one's own address is no bill either.
        own = client.get(path.replace("/t/vision/", "/t/audio/"))
        is_object = str(estate.bill().pk) in path
        assert own.status_code == (404 if is_object else 200), path
        assert "503.00" not in own.content.decode()


def test_somebody_unknown_is_asked_to_sign_in(estate: Estate) -> None:
    for path in (*team_pages(estate), *platform_pages(estate)):
        answer = Client().get(path)
        assert answer.status_code == 302, path
        assert answer["Location"].startswith("/auth/login?next=/")


def test_changes_are_for_finance(estate: Estate, browser: Browsers) -> None:
    rate = estate.issuer.rate_card.rates.first()
    assert rate is not None
    posts = [
        "/platform/rates/",
        f"/platform/rates/{rate.pk}/end",
        "/platform/issuers/",
        "/platform/bills/house/2026-12/close",
        f"/platform/credit/{estate.bill().pk}/",
    ]
    before = _counts()
    for role in ("owner", "outsider", "platform-viewer"):
        client = browser(role)
        for path in posts:
            expected = 403 if role == "platform-viewer" else 404
            assert client.post(path, {}).status_code == expected, (role, path)
    for path in posts:
        assert Client().post(path, {}).status_code == 302
        # Somebody who may, but sends nothing, is told what is missing.
        assert browser("platform-finance").post(path, {}).status_code == 422, path
    assert _counts() == before


def test_looking_writes_nothing_and_asks_a_fixed_number_of_times(estate: Estate, browser: Browsers) -> None:
    clients = {"team": browser("owner"), "platform": browser("platform-finance")}
    before = _counts()
    pages = [("team", path) for path in team_pages(estate)]
    pages += [("platform", path) for path in platform_pages(estate)]
    for who, path in pages:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert clients[who].get(path).status_code == 200, path
        writing = [
            one["sql"] for one in queries
            if one["sql"].split()[0] in ("INSERT", "UPDATE", "DELETE") and "kernel_auditevent" not in one["sql"]
        ]  # fmt: skip
        assert writing == [], path
        assert len(queries) <= MOST_QUERIES, (path, len(queries))
    assert _counts() == before


def _counts() -> dict[str, int]:
    """Rows of every table; the audit notes that somebody looked, which is no change."""
    with system_scope("test"):
        models: list[Any] = [model for model in apps.get_models() if model != AuditEvent and model._meta.managed]
        return {
            model._meta.label: model._base_manager.count()
            for model in models
            if model._meta.app_label in ("billing", "tenants", "infra")
        }
