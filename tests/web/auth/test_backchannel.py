"""The provider says that a session is over; and access tokens at the API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from portal.accounts.models import Identity, User
from portal.auth.models import OidcSession
from portal.kernel.clock import utcnow
from tests.support.provider import SUB, FakeProvider, forged

pytestmark = pytest.mark.django_db
ADDRESS = "/auth/oidc/backchannel-logout"


@pytest.fixture
def clients(source: FakeProvider) -> list[Client]:
    """Three browsers of one person: two sessions there, one of them in two browsers' places."""
    made = []
    for sid in ("session-1", "session-2", "session-3"):
        source.answers["/token"] = lambda _, sid=sid: source.token_answer(sid=sid)
        client = Client(enforce_csrf_checks=True)
        source.sign_in(client)
        made.append(client)
    return made


def send(text: str) -> Any:
    return Client(enforce_csrf_checks=True).post(ADDRESS, {"logout_token": text})


def states(clients: list[Client]) -> list[int]:
    return [client.get("/api/v1/me").status_code for client in clients]


def test_one_session_ends(source: FakeProvider, clients: list[Client]) -> None:
    answer = send(source.sign(source.logout_claims(sid="session-2"), typ="logout+jwt"))
    assert answer.status_code == 200
    assert answer["Cache-Control"] == "no-store"
    assert states(clients) == [200, 401, 200]
    assert clients[1].get("/account/tokens/").status_code == 302


def test_all_of_a_person_end(source: FakeProvider, clients: list[Client]) -> None:
    """keycloak#22914: an administrator logs somebody out everywhere."""
    assert send(source.sign(source.logout_claims(sid=...))).status_code == 200
    assert states(clients) == [401, 401, 401]


def test_nobody_elses(source: FakeProvider, clients: list[Client]) -> None:
    assert send(source.sign(source.logout_claims(sid=..., sub="another"))).status_code == 200
    assert send(source.sign(source.logout_claims(sid="session-1", sub="another"))).status_code == 200
    assert send(source.sign(source.logout_claims(sid="unknown"))).status_code == 200
    assert states(clients) == [200, 200, 200]


def test_a_logout_token_works_once(source: FakeProvider, clients: list[Client]) -> None:
    text = source.sign(source.logout_claims(sid="session-1"))
    assert send(text).status_code == 200
    OidcSession.objects.update(sid="session-1")
    answer = send(text)
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_request"
    assert OidcSession.objects.count() == 2


def test_what_is_no_logout_token_ends_nothing(source: FakeProvider, clients: list[Client]) -> None:
    for text in (
        "",
        "x",
        source.sign(source.id_claims()),
        source.sign(source.logout_claims(nonce="n")),
        source.sign(source.logout_claims(aud="another")),
        forged(source.logout_claims(), kid="one"),
    ):
        assert send(text).status_code == 400
    assert Client().get(ADDRESS).status_code == 405
    assert states(clients) == [200, 200, 200]


def test_without_the_providers_keys_it_is_a_503(source: FakeProvider, clients: list[Client]) -> None:
    from portal.auth.oidc import provider

    provider.forget()
    source.fails("/certs", 500)
    assert send(source.sign(source.logout_claims())).status_code == 503


def me(text: str) -> Any:
    return Client().get("/api/v1/me", HTTP_AUTHORIZATION=f"Bearer {text}")


@pytest.fixture
def mia(source: FakeProvider) -> User:
    source.sign_in(Client())
    return User.objects.get()


def test_an_access_token_is_its_person(source: FakeProvider, mia: User) -> None:
    answer = me(source.sign(source.access_claims()))
    assert answer.json()["id"] == str(mia.pk)


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "account"},
        {"azp": "another"},
        {"exp": 1},
        {"typ": "ID"},
        {"sub": "unknown"},
        {"iss": "https://x.example"},
    ],
)
def test_a_token_that_is_not_for_us_is_a_401(source: FakeProvider, mia: User, changes: dict[str, Any]) -> None:
    """mozilla-django-oidc#437: any token of the realm opened the API."""
    answer = me(source.sign(source.access_claims(**changes)))
    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["WWW-Authenticate"].startswith("Bearer")


def test_id_and_logout_tokens_are_no_access_tokens(source: FakeProvider, mia: User) -> None:
    api = {"aud": "ai-factory-api", "azp": "ai-factory-cli"}
    assert me(source.sign(source.id_claims(**api))).status_code == 401
    assert me(source.sign(source.logout_claims(**api))).status_code == 401


def test_one_request_per_token_asks_nothing(source: FakeProvider, mia: User) -> None:
    source.asked.clear()
    text = source.sign(source.access_claims())
    for _ in range(3):
        me(text)
    assert not source.asked


def test_a_person_not_seen_for_long_is_asked_after_with_the_token(source: FakeProvider, mia: User) -> None:
    text = source.sign(source.access_claims())
    source.asked.clear()
    Identity.objects.update(last_seen_at=utcnow() - timedelta(minutes=16))
    assert me(text).status_code == 200
    assert source.asked == {"/userinfo": 1}
    Identity.objects.update(last_seen_at=utcnow() - timedelta(minutes=16))
    source.fails("/userinfo", 503)
    assert me(text).status_code == 200, "for a while"
    Identity.objects.update(last_seen_at=utcnow() - timedelta(hours=1))
    assert me(text).status_code == 503
    source.fails("/userinfo", 401, {"error": "invalid_token"})
    assert me(text).status_code == 401
    source.answers["/userinfo"] = lambda _: (200, {"sub": "another"})
    assert me(text).status_code == 401
    source.answers["/userinfo"] = lambda _: (200, {"sub": SUB, **source.claims})
    assert me(text).status_code == 200


def test_a_deactivated_persons_token(source: FakeProvider, mia: User) -> None:
    User.objects.update(is_active=False)
    assert me(source.sign(source.access_claims())).status_code == 401


def test_off_means_no_such_tokens(source: FakeProvider, mia: User, settings: Any) -> None:
    text = source.sign(source.access_claims())
    settings.AIF_OIDC_ISSUER = ""
    assert me(text).status_code == 401
