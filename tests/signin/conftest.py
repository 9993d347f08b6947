"""The real Keycloak, and two teams whose groups give roles."""

from __future__ import annotations

import os
from typing import Any

import pytest
from django.test import Client

from portal.kernel.actors import PLATFORM_ADMIN, Actor
from tenants.models import Tenant
from tenants.services.mappings import mapping_add
from tests.support.keycloak import Browser, Keycloak, back, keycloak, keycloak_server
from tests.support.tenants import make_tenant

# The browser's driver keeps an event loop in the tests' thread to the end of the run; nothing of Django runs in it.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")

__all__ = ["keycloak", "keycloak_server"]  # fixtures, found by their names

ADMIN = Actor(kind="user", name="platform-admin", platform_role=PLATFORM_ADMIN)


class Person:
    """Somebody with a browser: the portal's cookies, and the provider's."""

    def __init__(self, keycloak: Keycloak, username: str) -> None:
        self.keycloak, self.username = keycloak, username
        self.client, self.browser = Client(), Browser(keycloak.ca_file)

    def sign_in(self, next_url: str = "/", **query: str) -> Any:
        """Through the real pages; the portal's answer to the callback."""
        answer = self.client.get("/auth/oidc/login", {"next": next_url, **query})
        assert answer.status_code == 302, answer.content
        location, page = self.browser.visit(
            answer["Location"], self.username, self.keycloak.passwords.get(self.username, "")
        )
        assert location, page[:2000]
        return back(self.client, location)

    def due(self) -> None:
        """Make the session due to be asked after."""
        from portal.auth.models import OidcSession
        from portal.kernel.clock import utcnow

        OidcSession.objects.update(next_refresh_at=utcnow())


@pytest.fixture
def teams(db: None) -> dict[str, Tenant]:
    """Two tenants and the rules for their groups, and for the platform's roles."""
    found = {slug: make_tenant(slug) for slug in ("ml-team", "team-vision")}
    for slug, tenant in found.items():
        for group, role in (("owners", "owner"), ("developers", "developer")):
            mapping_add(claim="groups", value=f"/{slug}/{group}", tenant=tenant, role=role, actor=ADMIN)
    for role in ("platform-admin", "platform-finance", "platform-viewer"):
        mapping_add(claim="realm_access.roles", value=role, platform_role=role, actor=ADMIN)
    return found


@pytest.fixture
def person(keycloak: Keycloak, settings: Any, teams: dict[str, Tenant]) -> Any:
    """Makes people who can sign in: ``person("ml-owner")``."""
    keycloak.point(settings)
    return lambda username: Person(keycloak, username)
