"""A whole portal as processes, the real Keycloak, and Chromium: what only a browser finds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from playwright.sync_api import Page

from portal.auth.models import OidcSession
from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.clock import utcnow
from tenants.services.mappings import mapping_add
from tests.browser.conftest import chromium
from tests.browser.person import Person
from tests.support.db import Clone
from tests.support.instance import RunningPortal, running_portal, wait_for
from tests.support.keycloak import Keycloak
from tests.support.tenants import make_tenant

__all__ = ["chromium"]  # a fixture, found by its name

pytestmark = [
    pytest.mark.signin,
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(900),
]
ADMIN = Actor(kind="user", name="platform-admin", platform_role=PLATFORM_ADMIN)


@pytest.fixture
def portal(clone: Clone, keycloak_server: Keycloak) -> Iterator[RunningPortal]:
    """The web process alone; Keycloak's back channel leads to it."""
    tenant = make_tenant("ml-team")
    mapping_add(claim="groups", value="/ml-team/owners", tenant=tenant, role="owner", actor=ADMIN)
    with running_portal(clone, {}, **keycloak_server.env()) as made:
        keycloak_server.make_realm(made.url)
        web = made.supervisor.portal_parts(made.env)[0]
        made._launch(web)
        wait_for(lambda: _answers(f"{made.url}/healthz"), "the portal's pages")
        yield made


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).status_code == 200
    except requests.RequestException:
        return False


def sign_in(page: Page, keycloak: Keycloak, username: str, start: str) -> None:
    """From a page of the portal through Keycloak's form, and back to that page."""
    page.goto(start)
    page.get_by_role("link", name="Sign in with Keycloak").click()
    page.locator("#username").fill(username)
    page.locator("#password").fill(keycloak.passwords[username])
    page.locator("#kc-login").click()
    page.get_by_role("button", name="Sign out").wait_for(state="attached")


def due() -> None:
    OidcSession.objects.update(next_refresh_at=utcnow())


def test_in_and_out_in_a_browser(portal: RunningPortal, keycloak_server: Keycloak, chromium: Any) -> None:
    person = Person(chromium, portal.url)
    page, members = person.page, "/t/ml-team/members/"
    sign_in(page, keycloak_server, "ml-owner", members)
    assert page.url == portal.url + members
    assert "from a group at sign-in" in person.text()

    # Out, by the button: the policy lets the form lead to Keycloak, which ends its session without asking.
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Signed out").wait_for()
    assert "and of Keycloak" in person.text()
    page.get_by_role("link", name="Sign in").click()
    page.get_by_role("link", name="Sign in with Keycloak").click()
    page.locator("#username").wait_for()
    assert not [one for one in person.complaints if portal.url in one], person.complaints


def test_a_session_that_ends_while_somebody_types(
    portal: RunningPortal, keycloak_server: Keycloak, chromium: Any
) -> None:
    person = Person(chromium, portal.url)
    page = person.page
    sign_in(page, keycloak_server, "ml-owner", "/account/tokens/")
    page.get_by_label("Name").fill("typed before it ended")
    keycloak_server.log_out_everywhere("ml-owner")
    due()
    page.get_by_role("button", name="Make the token").click()
    page.get_by_role("heading", name="what you typed is kept").wait_for()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Sign in in another tab").click()
    tab = opened.value
    tab.get_by_role("link", name="Sign in with Keycloak").click()
    tab.locator("#username").fill("ml-owner")
    tab.locator("#password").fill(keycloak_server.passwords["ml-owner"])
    tab.locator("#kc-login").click()
    tab.get_by_role("heading", name="You are signed in").wait_for()
    tab.close()
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Send it now").click()
    page.get_by_role("heading", name="Your new token, shown this once").wait_for()
    assert "typed before it ended" in person.text()


def test_keycloaks_own_notice_ends_the_session(portal: RunningPortal, keycloak_server: Keycloak, chromium: Any) -> None:
    """Signing out of another application: Keycloak calls the portal, and the open page is over at once."""
    person = Person(chromium, portal.url)
    sign_in(person.page, keycloak_server, "ml-owner", "/t/ml-team/")
    sid = OidcSession.objects.get().sid
    account = person.context.new_page()
    account.goto(f"{keycloak_server.issuer}/protocol/openid-connect/logout")
    account.locator("#kc-logout").click()
    wait_for(lambda: not OidcSession.objects.filter(sid=sid).exists(), "the end of the session")
    # The open page: silently first, which Keycloak refuses, then its form.
    person.page.goto("/t/ml-team/")
    person.page.locator("#username").wait_for()
    assert person.page.url.startswith(keycloak_server.issuer)
    answer = person.context.request.get("/api/v1/me")
    assert answer.status == 401
    assert json.loads(answer.text())["status"] == 401
