"""Signing out: here, there, and by an administrator; with the real Keycloak."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from portal.auth.models import OidcSession
from tests.support.keycloak import Browser, Keycloak, back

pytestmark = [pytest.mark.signin, pytest.mark.django_db]


def test_signing_out_here_ends_the_session_there(person: Any, keycloak: Keycloak) -> None:
    owner = person("ml-owner")
    owner.sign_in()
    assert owner.client.get("/auth/logout").status_code == 405
    answer = owner.client.post("/auth/logout")
    assert not OidcSession.objects.exists()
    assert owner.client.get("/api/v1/me").status_code == 401
    query = parse_qs(urlsplit(answer["Location"]).query)
    assert answer["Location"].startswith(f"{keycloak.issuer}/protocol/openid-connect/logout?")
    assert query["post_logout_redirect_uri"] == ["http://testserver/auth/signed-out"]
    assert query["client_id"] == ["ai-factory-portal"]
    assert query["id_token_hint"]
    location, page = owner.browser.visit(answer["Location"])
    assert location.startswith("http://testserver/auth/signed-out?state="), page[:500]
    assert "of this portal and of" in back(owner.client, location).content.decode()
    # There it is over too: the form again, not a silent way in.
    location, page = owner.browser.visit(owner.client.get("/auth/oidc/login")["Location"])
    assert not location
    assert "kc-form-login" in page


def test_an_answer_to_a_sign_out_of_somebody_else_says_less(person: Any) -> None:
    owner = person("ml-owner")
    assert "you may still be signed in" in owner.client.get("/auth/signed-out?state=guessed").content.decode()


def test_an_administrator_logs_somebody_out_everywhere(person: Any, keycloak: Keycloak) -> None:
    """Two browsers. Keycloak sends a logout token for one session only (or none that we may rely on): the refresh
    ends them all."""
    first, second = person("ml-owner"), person("ml-owner")
    first.sign_in()
    second.sign_in()
    assert OidcSession.objects.count() == 2
    keycloak.log_out_everywhere("ml-owner")
    for each in (first, second):
        each.due()
        assert each.client.get("/t/ml-team/").status_code == 302
        assert each.client.get("/api/v1/me").status_code == 401
    assert not OidcSession.objects.exists()


def test_an_expired_session_there_is_over_here(person: Any, keycloak: Keycloak) -> None:
    owner = person("ml-owner")
    owner.sign_in()
    session = OidcSession.objects.get()
    keycloak.admin.call("DELETE", f"/ai-factory/sessions/{session.sid}")
    owner.due()
    assert owner.client.get("/api/v1/me").status_code == 401


def test_a_wrong_return_address_is_refused_by_the_realm(keycloak: Keycloak) -> None:
    """The redirect URIs of the shipped realm are exact."""
    address = (
        f"{keycloak.issuer}/protocol/openid-connect/auth?response_type=code&client_id=ai-factory-portal&scope=openid"
        "&redirect_uri=http://testserver/auth/oidc/callback/../../elsewhere&state=x&code_challenge_method=S256"
        "&code_challenge=abcdefghijklmnopqrstuvwxyzabcdefghijklmnopq"
    )
    answer = requests.get(address, allow_redirects=False, timeout=30)
    assert answer.status_code == 400
    without_pkce = Browser().visit(
        f"{keycloak.issuer}/protocol/openid-connect/auth?response_type=code&client_id=ai-factory-portal&scope=openid"
        "&redirect_uri=http://testserver/auth/oidc/callback&state=x"
    )
    assert "error=invalid_request" in without_pkce[0]
