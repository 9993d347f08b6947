"""Addresses and keys of the provider: fetched when needed, kept, and never asked for in a flood."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from portal.auth.oidc import provider as module
from portal.auth.oidc import tokens
from portal.auth.oidc.errors import ProviderRefused, ProviderUnavailable, TokenRefused
from portal.auth.oidc.http import ask
from portal.auth.oidc.provider import Provider, provider
from tests.support.answering import answering
from tests.support.provider import FakeProvider


class Clock:
    """A monotonic clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def check(source: FakeProvider, kid: str = "one", **more: Any) -> str:
    return str(tokens.id_token(source.sign(source.id_claims(nonce="n"), kid=kid, **more), nonce="n")["sub"])


def test_nothing_is_fetched_before_it_is_needed(source: FakeProvider) -> None:
    assert not source.asked
    provider().endpoints()
    assert source.asked == {"/.well-known/openid-configuration": 1}


def test_keys_are_fetched_once_for_many_tokens(source: FakeProvider) -> None:
    for _ in range(5):
        check(source)
    assert source.asked == {"/.well-known/openid-configuration": 1, "/certs": 1}


def test_a_new_key_is_found_by_one_more_look(source: FakeProvider, clock: Clock) -> None:
    check(source)
    clock.now += 11
    source.keys["two"] = rsa.generate_private_key(65537, 2048)
    check(source, "two")
    check(source, "one")
    assert source.asked["/certs"] == 2


def test_a_key_that_was_withdrawn_is_believed_for_five_minutes_at_most(source: FakeProvider, clock: Clock) -> None:
    check(source)
    old = source.keys.pop("one")
    source.keys["two"] = rsa.generate_private_key(65537, 2048)
    clock.now += 200
    check(source, "one", key=old)
    clock.now += 101
    with pytest.raises(TokenRefused):
        check(source, "one", key=old)


def test_unknown_keys_are_no_flood(source: FakeProvider, clock: Clock) -> None:
    check(source)
    stranger = rsa.generate_private_key(65537, 2048)
    clock.now += 11
    for number in range(20):
        with pytest.raises(TokenRefused):
            check(source, f"unknown-{number}", key=stranger)
    assert source.asked["/certs"] == 2
    assert check(source), "the known key goes on"
    clock.now += 11
    with pytest.raises(TokenRefused):
        check(source, "unknown", key=stranger)
    assert source.asked["/certs"] == 3


def test_keys_that_can_not_be_had_now_do_for_what_is_known(source: FakeProvider, clock: Clock) -> None:
    check(source)
    source.fails("/certs", 503)
    clock.now += 301
    assert check(source)


def test_odd_keys_are_left_out(source: FakeProvider) -> None:
    good = source.jwks()["keys"]
    odd = [
        {k: v for k, v in good[0].items() if k != "kid"},
        {**good[0], "kid": "enc", "use": "enc"},
        {**good[0], "kid": "hs", "alg": "HS256"},
        {**good[0], "kid": "oaep", "alg": "RSA-OAEP"},
        {"kty": "oct", "kid": "oct", "k": "c2VjcmV0"},
        {"kty": "EC", "kid": "broken", "crv": "P-256", "x": "?"},
        "nonsense",
    ]
    source.answers["/certs"] = lambda _: (200, {"keys": [*odd, *good]})
    assert check(source)


@pytest.mark.parametrize(
    "change",
    [{"issuer": "https://elsewhere.example"}, {"token_endpoint": None}, {"jwks_uri": "file:///etc/passwd"}],
)
def test_a_discovery_document_that_does_not_fit(source: FakeProvider, change: dict[str, Any]) -> None:
    source.answers["/.well-known/openid-configuration"] = lambda _: (200, source.discovery() | change)
    with pytest.raises(ProviderUnavailable):
        provider().endpoints()


def test_the_front_and_the_back_channel(source: FakeProvider, settings: Any) -> None:
    back, front = source.issuer, "https://sso.example.com/realms/test"
    source.issuer = front
    for base in (front, back):
        source.answers["/.well-known/openid-configuration"] = lambda _, base=base: (200, source.discovery(base))
        found = Provider(front, back).endpoints()
        assert (found.authorization, found.end_session) == (f"{front}/auth", f"{front}/logout")
        assert (found.token, found.userinfo, found.keys) == (f"{back}/token", f"{back}/userinfo", f"{back}/certs")


@pytest.mark.parametrize("status", [302, 404, 429, 500, 503])
def test_trouble_is_no_refusal(source: FakeProvider, status: int) -> None:
    source.fails("/token", status, {"error": "invalid_grant"})
    with pytest.raises(ProviderUnavailable):
        ask("POST", f"{source.issuer}/token", "the token endpoint", form={})


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refusal_names_the_providers_code_and_nothing_else(source: FakeProvider, status: int) -> None:
    source.fails("/token", status, {"error": "invalid_grant", "error_description": "<script>"})
    with pytest.raises(ProviderRefused, match=r"invalid_grant\)") as caught:
        ask("POST", f"{source.issuer}/token", "the token endpoint", form={"client_secret": "s3cret"})
    assert "script" not in caught.value.detail
    assert "s3cret" not in caught.value.detail


def test_nobody_there_and_too_much(source: FakeProvider) -> None:
    with pytest.raises(ProviderUnavailable):
        ask("GET", "http://127.0.0.1:9/", "nothing")
    source.fails("/userinfo", 200, b" " * (1024 * 1024 + 1))
    with pytest.raises(ProviderUnavailable):
        ask("GET", f"{source.issuer}/userinfo", "the userinfo endpoint")


def test_an_answer_that_breaks_off_or_drips_is_trouble(settings: Any) -> None:
    settings.OIDC_TIMEOUT = 0.5
    with answering() as server:
        server.say("/cut", body=b"x" * 100, cut=10)
        server.say("/drip", body=b"x" * 200, pause=0.05)
        server.say("/stuck", body=b"x" * 3, pause=2)
        for path in ("/cut", "/drip", "/stuck"):
            with pytest.raises(ProviderUnavailable):
                ask("GET", f"{server.url}{path}", "the userinfo endpoint")


def test_who_comes_while_the_keys_are_first_fetched_waits_for_them(source: FakeProvider) -> None:
    asked, go_on, done = threading.Event(), threading.Event(), list[object]()

    def slow(_: dict[str, str]) -> tuple[int, Any]:
        asked.set()
        assert go_on.wait(10)
        return 200, source.jwks()

    source.answers["/certs"] = slow
    known = Provider(source.issuer, source.issuer)

    def look() -> None:
        try:
            done.append(known.key("one", "RS256").key_id)
        except TokenRefused as error:
            done.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    threads[0].start()
    assert asked.wait(10)
    for thread in threads[1:]:
        thread.start()
    threads[1].join(0.3)
    go_on.set()
    for thread in threads:
        thread.join()
    assert done == ["one", "one", "one"]
    assert source.asked["/certs"] == 1
