"""Access tokens of the real Keycloak at the REST API."""

from __future__ import annotations

from typing import Any

import pytest
import requests
from django.test import Client

from portal.accounts.models import Identity
from portal.kernel.clock import utcnow
from tests.support.keycloak import Keycloak

pytestmark = [pytest.mark.signin, pytest.mark.django_db]


@pytest.fixture
def token(person: Any, keycloak: Keycloak) -> Any:
    """Tokens by password, which only the tests switch on: ``token(client, username)`` → the answer's JSON."""

    def fetch(client: str, username: str = "ml-developer", scope: str = "openid") -> dict[str, Any]:
        made = keycloak.client(client)
        form = {"grant_type": "password", "client_id": client, "username": username, "scope": scope}
        form["password"] = keycloak.passwords[username]
        if not made["publicClient"]:
            form["client_secret"] = made["secret"]
        answer = requests.post(f"{keycloak.issuer}/protocol/openid-connect/token", data=form, timeout=30)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    for client in ("ai-factory-cli", "ai-factory-portal"):
        keycloak.change_client(client, directAccessGrantsEnabled=True)
    yield fetch
    for client in ("ai-factory-cli", "ai-factory-portal"):
        keycloak.change_client(client, directAccessGrantsEnabled=False)


def me(text: str) -> Any:
    return Client().get("/api/v1/me", HTTP_AUTHORIZATION=f"Bearer {text}")


def test_the_command_lines_token_acts_as_its_person(person: Any, token: Any, keycloak: Keycloak) -> None:
    told = token("ai-factory-cli")
    assert me(told["access_token"]).status_code == 401, "nobody has signed in with it yet"
    person("ml-developer").sign_in()
    answer = me(told["access_token"])
    assert answer.status_code == 200, answer.content
    assert answer.json()["username"] == "ml-developer"
    header = {"HTTP_AUTHORIZATION": f"Bearer {told['access_token']}"}
    assert Client().get("/api/v1/tenants/ml-team", **header).status_code == 200
    assert Client().get("/api/v1/tenants/team-vision", **header).status_code == 404
    # It takes part in the same refresh: out of the group, out of the team.
    keycloak.remove_from_group("ml-developer", "/ml-team/developers")
    Identity.objects.update(last_seen_at=None)
    assert Client().get("/api/v1/tenants/ml-team", **header).status_code == 404
    keycloak.add_to_group("ml-developer", "/ml-team/developers")
    keycloak.log_out_everywhere("ml-developer")
    Identity.objects.update(last_seen_at=None)
    assert me(told["access_token"]).status_code == 401, "asked for the userinfo, Keycloak says that it is over"


def test_a_token_for_the_account_audience_is_refused(person: Any, token: Any) -> None:
    """SecObserve and others: any access token of the realm opened the API."""
    person("ml-developer").sign_in()
    answer = me(token("ai-factory-portal")["access_token"])
    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["WWW-Authenticate"].startswith("Bearer")


def test_a_client_that_is_not_allowed_is_refused(person: Any, token: Any, settings: Any) -> None:
    person("ml-developer").sign_in()
    text = token("ai-factory-cli")["access_token"]
    assert me(text).status_code == 200
    settings.AIF_OIDC_CLI_CLIENTS = ["another-client"]
    assert me(text).status_code == 401


def test_other_kinds_of_tokens_are_refused(person: Any, token: Any) -> None:
    person("ml-developer").sign_in()
    told = token("ai-factory-cli")
    for kind in ("id_token", "refresh_token"):
        assert me(told[kind]).status_code == 401, kind


def test_a_lightweight_token_is_as_good(person: Any, token: Any, keycloak: Keycloak) -> None:
    """It carries no roles and no names: those come from the person's row."""
    person("ml-developer").sign_in()
    keycloak.change_client("ai-factory-cli", attributes={"client.use.lightweight.access.token.enabled": "true"})
    try:
        answer = me(token("ai-factory-cli")["access_token"])
        assert answer.status_code == 200, answer.content
        assert Identity.objects.get().last_seen_at <= utcnow()
    finally:
        keycloak.change_client("ai-factory-cli", attributes={"client.use.lightweight.access.token.enabled": "false"})


def test_a_token_of_the_provider_makes_no_tokens(person: Any, token: Any) -> None:
    person("ml-developer").sign_in()
    text = token("ai-factory-cli")["access_token"]
    answer = Client().post(
        "/api/v1/tokens",
        {"name": "x", "scopes": ["read"], "expires_at": "2099-01-01T00:00:00Z"},
        content_type="application/json",
        HTTP_AUTHORIZATION=f"Bearer {text}",
    )
    assert answer.status_code == 403
