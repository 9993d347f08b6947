"""Signing in and out with a local account."""

from __future__ import annotations

import pytest
from django.test import Client

from portal.accounts import services
from portal.kernel.actors import Actor

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture
def client() -> Client:
    services.user_create(username="mia", password=PASSWORD, actor=Actor.system("test"))
    return Client()


def sign_in(client: Client, password: str = PASSWORD, **extra: str):
    return client.post("/auth/login", {"username": "mia", "password": password, **extra})


def test_the_way_in_and_out(client: Client) -> None:
    assert client.get("/auth/login").status_code == 200
    answer = sign_in(client, next="/api/v1/me")
    assert (answer.status_code, answer["Location"]) == (302, "/api/v1/me")
    assert client.get("/api/v1/me").json()["username"] == "mia"
    assert client.get("/auth/logout").status_code == 405, "a link signs nobody out"
    out = client.post("/auth/logout")
    assert out.status_code == 302
    assert out["Clear-Site-Data"] == '"cache", "storage"'
    assert client.get("/api/v1/me").status_code == 401


def test_a_wrong_password_tells_nothing(client: Client) -> None:
    wrong = sign_in(client, "wrong")
    assert wrong.status_code == 422
    unknown = client.post("/auth/login", {"username": "nobody", "password": "wrong"})
    strip = lambda content: content.split(b"sign-in-error")[1].split(b"</div>")[0]  # noqa: E731
    assert strip(wrong.content) == strip(unknown.content)


def test_next_stays_within_the_portal(client: Client) -> None:
    assert sign_in(client, next="https://elsewhere.example/")["Location"] == "/"


def test_the_session_key_changes(client: Client) -> None:
    client.session.save()
    client.cookies["aif_session"] = "planted"
    sign_in(client)
    assert client.cookies["aif_session"].value != "planted"
    assert client.cookies["aif_session"]["httponly"]


def test_a_deactivated_person_is_out_at_once(client: Client) -> None:
    sign_in(client)
    user_id = client.get("/api/v1/me").json()["id"]
    services.user_deactivate(user_id=user_id, actor=Actor.system("test"))
    assert client.get("/api/v1/me").status_code == 401


def test_local_accounts_can_be_switched_off(client: Client, settings) -> None:
    settings.AIF_LOCAL_ACCOUNTS = False
    assert b"switched off" in client.get("/auth/login").content
    assert sign_in(client).status_code == 403
