"""The way back from the provider: who is let in, and that every failure is a page with a way on, never a 500."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from portal.accounts.models import Identity, User
from portal.auth.models import OidcSession
from portal.kernel.models import AuditEvent
from portal.kernel.scoping import system_scope
from tests.support.provider import SUB, FakeProvider

pytestmark = pytest.mark.django_db


def explained(answer: Any, status: int, says: str) -> None:
    text = answer.content.decode()
    assert answer.status_code == status, text
    assert says in text
    assert "/auth/oidc/login" in text, "a way on"
    assert not OidcSession.objects.exists()


def test_signing_in(source: FakeProvider) -> None:
    client = Client()
    assert "Sign in with single sign-on" in client.get("/auth/login?next=/account/roles/").content.decode()
    answer = source.sign_in(client, next="/account/roles/")
    assert (answer.status_code, answer["Location"]) == (302, "/account/roles/")
    assert client.get("/api/v1/me").json()["username"] == "mia"
    form = next(form for form in source.forms if form.get("grant_type") == "authorization_code")
    assert len(form["code_verifier"]) >= 43
    assert form["redirect_uri"] == "http://testserver/auth/oidc/callback"


def test_off_while_no_issuer_is_set(settings: Any) -> None:
    settings.AIF_OIDC_ISSUER = ""
    client = Client()
    assert "/auth/oidc/login" not in client.get("/auth/login").content.decode()
    for address in ("/auth/oidc/login", "/auth/oidc/callback"):
        assert client.get(address).status_code == 404
    assert client.post("/auth/oidc/backchannel-logout").status_code == 404


def test_next_stays_within_the_portal(source: FakeProvider) -> None:
    assert source.sign_in(Client(), next="https://elsewhere.example/")["Location"] == "/"
    assert source.sign_in(Client(), next="//elsewhere.example/")["Location"] == "/"


def test_a_person_is_found_by_issuer_and_subject_never_by_address(source: FakeProvider) -> None:
    """mozilla-django-oidc finds people by ``email__iexact``: whoever can choose an address there is anybody here."""
    admin = User.objects.create_user("root", "x", email="mia@example.org", platform_role="platform-admin")
    source.claims["email_verified"] = False
    client = Client()
    source.sign_in(client)
    me = client.get("/api/v1/me").json()
    assert me["id"] != str(admin.pk)
    assert me["platform_role"] == ""
    again = Client()
    source.claims |= {"preferred_username": "mia-renamed", "email": "new@example.org", "name": "Mia M."}
    source.sign_in(again)
    assert again.get("/api/v1/me").json()["id"] == me["id"]
    assert (User.objects.get(pk=me["id"]).email, User.objects.get(pk=me["id"]).username) == ("new@example.org", "mia")
    assert Identity.objects.count() == 1


@pytest.mark.parametrize(
    ("name", "username"),
    [("Mia", "mia"), ("mia@example.org", "5a1e-sub-of-mia"), ("", "5a1e-sub-of-mia"), ("Mia / 1", "mia-1"), (5, None)],
)
def test_user_names(source: FakeProvider, name: Any, username: str | None) -> None:
    source.claims["preferred_username"] = name
    client = Client()
    source.sign_in(client)
    assert client.get("/api/v1/me").json()["username"] == (username or "5a1e-sub-of-mia")


def test_a_deactivated_person_is_refused(source: FakeProvider) -> None:
    source.sign_in(Client())
    User.objects.update(is_active=False)
    OidcSession.objects.all().delete()
    explained(source.sign_in(Client()), 403, "deactivated")


def test_a_required_role(source: FakeProvider, settings: Any) -> None:
    settings.AIF_OIDC_REQUIRED_ROLE = "ai-factory-user"
    explained(source.sign_in(Client()), 403, "ai-factory-user")
    assert not User.objects.exists()
    source.claims["realm_access"] = {"roles": ["ai-factory-user"]}
    assert source.sign_in(Client()).status_code == 302


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"aud": "another-client", "azp": "another-client"}, "aud"),
        ({"iss": "https://elsewhere.example"}, "iss"),
        ({"exp": timedelta(minutes=-1)}, "expired"),
        ({"iat": timedelta(minutes=5)}, "clocks"),
        ({"nbf": timedelta(minutes=5)}, "clocks"),
        ({"sub": ...}, "sub"),
        ({"sub": 7}, "damaged"),
        ({"nonce": "another"}, "nonce"),
    ],
)
def test_a_token_that_is_not_believed_is_a_page(source: FakeProvider, changes: dict[str, Any], says: str) -> None:
    """mozilla-django-oidc#340 (another client's token), #579 (each of these exceptions was a 500)."""
    now = int(time.time())
    claims = {
        name: now + int(value.total_seconds()) if isinstance(value, timedelta) else value
        for name, value in changes.items()
    }
    source.answers["/token"] = lambda _: source.token_answer(**claims)
    client = Client()
    explained(source.sign_in(client), 401, says)
    assert client.get("/api/v1/me").status_code == 401
    assert not User.objects.exists()


def test_the_userinfo_of_somebody_else(source: FakeProvider) -> None:
    source.extra_userinfo["sub"] = "another"
    explained(source.sign_in(Client()), 401, "somebody else")


@pytest.mark.parametrize("path", ["/token", "/certs", "/userinfo"])
@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b"[]", b"null", b"\xff"])
def test_an_answer_that_can_not_be_read_is_a_503(source: FakeProvider, path: str, body: bytes) -> None:
    source.fails(path, 200, body)
    client = Client()
    answer = source.sign_in(client)
    explained(answer, 503, "can&#x27;t be read")
    assert answer["Retry-After"]


@pytest.mark.parametrize("path", ["/token", "/certs", "/userinfo"])
def test_a_provider_in_trouble_is_a_503(source: FakeProvider, path: str) -> None:
    source.fails(path, 502, b"")
    explained(source.sign_in(Client()), 503, "answered 502")


def test_a_provider_that_is_not_there_is_a_503(settings: Any, source: FakeProvider) -> None:
    settings.AIF_OIDC_ISSUER = settings.AIF_OIDC_BACKCHANNEL_URL = "http://127.0.0.1:9/realms/test"
    answer = Client().get("/auth/oidc/login?next=/account/roles/")
    explained(answer, 503, "does not answer")
    assert "next=%2Faccount%2Froles%2F" in answer.content.decode()


def test_a_code_that_is_used_up(source: FakeProvider) -> None:
    source.fails("/token", 400, {"error": "invalid_grant"})
    explained(source.sign_in(Client()), 401, "invalid_grant")


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        ("access_denied", 403, "cancelled"),
        ("temporarily_unavailable", 503, "Try again"),
        ("invalid_scope", 403, "Tell the platform team"),
        ("<script>", 403, "Tell the platform team"),
    ],
)
def test_the_providers_own_errors(source: FakeProvider, error: str, status: int, says: str) -> None:
    client = Client()
    state = source.start(client)["state"]
    answer = client.get("/auth/oidc/callback", {"state": state, "error": error})
    explained(answer, status, says)
    assert "<script>" not in answer.content.decode().split("<main")[1]
    again = client.get("/auth/oidc/callback", {"state": state, "error": error})
    assert again["Location"] == "/auth/oidc/login?again=1", "a state works once"


def test_no_form_was_wanted_but_one_is_needed(source: FakeProvider) -> None:
    client = Client()
    sent = source.start(client, silent="1", next="/account/roles/")
    assert sent["prompt"] == "none"
    answer = client.get("/auth/oidc/callback", {"state": sent["state"], "error": "login_required"})
    assert answer["Location"] == "/auth/oidc/login?next=%2Faccount%2Froles%2F"


@pytest.mark.parametrize("query", [{}, {"state": "x"}, {"code": "x"}, {"state": "x", "code": "y"}, {"error": "x"}])
def test_an_unknown_state_is_one_new_try(source: FakeProvider, query: dict[str, str]) -> None:
    """mozilla-django-oidc#303, #312: an old tab was a 400 page without a way on."""
    client = Client()
    first = client.get("/auth/oidc/callback", query)
    assert first["Location"] == "/auth/oidc/login?again=1"
    state = source.start(client, again="1")["state"]
    client.cookies.clear()
    explained(client.get("/auth/oidc/callback", {"state": state, "code": "c"}), 401, "does not remember")


def test_a_state_without_a_code(source: FakeProvider) -> None:
    client = Client()
    explained(client.get("/auth/oidc/callback", {"state": source.start(client)["state"]}), 403, "not complete")


def test_another_person_in_the_same_browser(source: FakeProvider) -> None:
    """mozilla-django-oidc: the login of another user flushed the session, and the ID token with it."""
    client = Client()
    client.force_login(User.objects.create_user("before"), backend="portal.accounts.backends.LocalBackend")
    source.sign_in(client)
    assert client.get("/api/v1/me").json()["username"] == "mia"
    assert bytes(OidcSession.objects.get().id_token_ciphertext)
    assert "/logout?" in client.post("/auth/logout")["Location"]


def test_the_session_key_changes_and_no_token_is_in_the_session(source: FakeProvider) -> None:
    client = Client()
    source.start(client)
    before = client.cookies["aif_session"].value
    source.sign_in(client)
    assert client.cookies["aif_session"].value != before
    assert not any("eyJ" in str(value) for value in client.session.values())
    with system_scope("test"):
        assert not [event for event in AuditEvent.objects.all() if "eyJ" in str(event.after) + event.reason]


def test_claims_that_are_kept_have_no_tokens_parts(source: FakeProvider) -> None:
    source.claims |= {"groups": ["/a"], "odd": {"x": "a\x00b", "y": ["\ud800"]}}
    source.answers["/userinfo"] = lambda _: (200, {"sub": SUB, "groups": ["/a"]})
    source.sign_in(Client())
    kept = Identity.objects.get().claims
    assert kept["groups"] == ["/a"]
    assert not {"nonce", "sid", "exp", "iat", "aud"} & set(kept)


def test_signing_out_where_the_provider_does_not_answer(source: FakeProvider, settings: Any) -> None:
    from portal.auth.oidc import provider

    client = Client()
    source.sign_in(client)
    provider.forget()
    source.fails("/.well-known/openid-configuration", 503)
    answer = client.post("/auth/logout")
    assert answer["Location"] == "/auth/signed-out"
    assert "may still be signed in" in client.get("/auth/signed-out").content.decode()
    assert client.get("/api/v1/me").status_code == 401
