"""Which tokens are believed: the right one is, and each way to be wrong is told apart."""

from __future__ import annotations

import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from portal.auth.oidc import tokens
from portal.auth.oidc.errors import SignInError, TokenRefused
from tests.support.provider import CLIENT, LOGOUT_EVENT, SUB, FakeProvider, forged

NOW = time.time


def test_a_right_id_token(source: FakeProvider) -> None:
    claims = tokens.id_token(source.sign(source.id_claims(nonce="n")), nonce="n")
    assert (claims["sub"], claims["sid"]) == (SUB, "session-1")
    assert tokens.id_token(source.sign(source.id_claims(nonce=...)), nonce=None)["sub"] == SUB, "a refresh has none"


@pytest.mark.parametrize("skew", [-20, 20])
def test_a_clock_that_differs_by_less_than_the_leeway_is_no_matter(source: FakeProvider, skew: int) -> None:
    """mozilla-django-oidc#579: one second ahead was a 500."""
    now = int(time.time()) + skew
    text = source.sign(source.id_claims(iat=now, nbf=now, exp=now + 5, nonce="n"))
    assert tokens.id_token(text, nonce="n")["sub"] == SUB


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"aud": "another-client", "azp": "another-client"}, "aud"),  # mozilla-django-oidc#340
        ({"aud": [CLIENT, "another"], "azp": "another"}, "azp"),
        ({"aud": [CLIENT, "another"], "azp": ...}, "azp"),
        ({"azp": "another"}, "azp"),
        ({"aud": ...}, "lacks the claim aud"),
        ({"aud": []}, "aud"),
        ({"iss": "https://elsewhere.example/realms/test"}, "iss"),
        ({"iss": ...}, "lacks the claim iss"),
        ({"exp": 1}, "expired"),
        ({"exp": ...}, "lacks the claim exp"),
        ({"iat": ...}, "lacks the claim iat"),
        ({"sub": ...}, "lacks the claim sub"),
        ({"sub": ""}, "sub"),
        ({"sub": 5}, "damaged"),
        ({"sub": "x" * 256}, "sub"),
        ({"exp": "soon"}, "damaged"),
        ({"iat": 9_999_999_999}, "not valid yet"),
        ({"nbf": 9_999_999_999}, "not valid yet"),
        ({"nonce": "another"}, "nonce"),
        ({"nonce": ...}, "nonce"),
        ({"nonce": ["n"]}, "nonce"),
        ({"typ": "Bearer"}, "no ID token"),
        ({"typ": "Refresh"}, "no ID token"),
        ({"events": {LOGOUT_EVENT: {}}}, "no ID token"),
    ],
)
def test_a_wrong_id_token(source: FakeProvider, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(TokenRefused, match=says):
        tokens.id_token(source.sign(source.id_claims(**{"nonce": "n", **changes})), nonce="n")


@pytest.mark.parametrize(("alg", "kid"), [("RS256", "one"), ("PS256", "one"), ("ES256", "curve")])
def test_the_algorithms_that_are_accepted(source: FakeProvider, alg: str, kid: str) -> None:
    source.keys["curve"] = ec.generate_private_key(ec.SECP256R1())
    assert tokens.id_token(source.sign(source.id_claims(nonce="n"), kid=kid, alg=alg), nonce="n")["sub"] == SUB


def test_other_algorithms_are_refused(source: FakeProvider) -> None:
    claims = source.id_claims(nonce="n")
    public = source.jwks()["keys"][0]["n"]
    for text in (
        forged(claims, kid="one"),
        forged(claims, kid="one", alg="NONE"),
        source.sign(claims, alg="HS256", key=str(public) * 2),
        source.sign(claims, alg="HS256", key="secret-of-the-client-secret-of-the-client"),
        source.sign(claims, alg="RS512"),
        forged(claims, kid="one", alg=["RS256"]),
    ):
        with pytest.raises(TokenRefused):
            tokens.id_token(text, nonce="n")


def test_signed_by_another_key(source: FakeProvider) -> None:
    stranger = rsa.generate_private_key(65537, 2048)
    with pytest.raises(TokenRefused, match="damaged or forged"):
        tokens.id_token(source.sign(source.id_claims(nonce="n"), key=stranger), nonce="n")
    with pytest.raises(TokenRefused, match="does not name"):
        tokens.id_token(source.sign(source.id_claims(nonce="n"), key=stranger, kid="theirs"), nonce="n")
    with pytest.raises(TokenRefused, match="kid"):
        tokens.id_token(forged(source.id_claims(), alg="RS256"), nonce="n")


@given(st.one_of(st.text(max_size=300), st.none(), st.integers(), st.binary(max_size=40)))
def test_no_text_whatever_is_more_than_a_refusal(text: Any) -> None:
    from django.test import override_settings

    with override_settings(AIF_OIDC_ISSUER="http://127.0.0.1:9/realms/test", AIF_OIDC_API_AUDIENCE="api"):
        for check in (lambda: tokens.id_token(text, nonce="n"), lambda: tokens.logout_token(text)):
            with pytest.raises(SignInError):
                check()
        with pytest.raises(SignInError):
            tokens.access_token(text)


def test_a_right_logout_token(source: FakeProvider) -> None:
    assert tokens.logout_token(source.sign(source.logout_claims(), typ="logout+jwt"))["sid"] == "session-1"
    assert tokens.logout_token(source.sign(source.logout_claims(sub=...)))["sid"] == "session-1"
    assert tokens.logout_token(source.sign(source.logout_claims(sid=...)))["sub"] == SUB
    assert tokens.logout_token(source.sign(source.logout_claims(exp=...)))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"aud": "another"}, "aud"),
        ({"iss": "https://elsewhere.example"}, "iss"),
        ({"iat": ...}, "iat"),
        ({"iat": 1, "exp": ...}, "too old"),
        ({"exp": 1}, "expired"),
        ({"jti": ...}, "jti"),
        ({"jti": ""}, "jti"),
        ({"events": ...}, "events"),
        ({"events": {"another": {}}}, "events"),
        ({"events": {LOGOUT_EVENT: "yes"}}, "events"),
        ({"events": [LOGOUT_EVENT]}, "events"),
        ({"nonce": "n"}, "nonce"),
        ({"sid": ..., "sub": ...}, "neither"),
        ({"sid": "", "sub": ...}, "neither"),
    ],
)
def test_a_wrong_logout_token(source: FakeProvider, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(TokenRefused, match=says):
        tokens.logout_token(source.sign(source.logout_claims(**changes)))


def test_an_id_token_is_no_logout_token(source: FakeProvider) -> None:
    with pytest.raises(TokenRefused):
        tokens.logout_token(source.sign(source.id_claims(jti="x")))
    with pytest.raises(TokenRefused, match="typ"):
        tokens.logout_token(source.sign(source.logout_claims(), typ="at+jwt"))


def test_a_right_access_token(source: FakeProvider) -> None:
    assert tokens.access_token(source.sign(source.access_claims()))["sub"] == SUB
    assert tokens.access_token(source.sign(source.access_claims(aud="ai-factory-api")))
    assert tokens.access_token(source.sign(source.access_claims(typ=...), typ="at+jwt"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"aud": "account"}, "aud"),  # mozilla-django-oidc#437
        ({"aud": CLIENT}, "aud"),
        ({"azp": "another-client"}, "azp"),
        ({"azp": ...}, "azp"),
        ({"azp": None}, "azp"),
        ({"typ": "ID"}, "typ"),
        ({"typ": "Refresh"}, "typ"),
        ({"typ": "Logout", "events": {LOGOUT_EVENT: {}}}, "typ"),
        ({"typ": ...}, "typ"),
        ({"nonce": "n"}, "no access token"),
        ({"sub": ...}, "sub"),
        ({"exp": 1}, "expired"),
        ({"iss": "https://elsewhere.example"}, "iss"),
    ],
)
def test_a_wrong_access_token(source: FakeProvider, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(TokenRefused, match=says):
        tokens.access_token(source.sign(source.access_claims(**changes)))


def test_without_an_audience_no_access_token_is_taken(source: FakeProvider, settings: Any) -> None:
    settings.AIF_OIDC_API_AUDIENCE = ""
    with pytest.raises(TokenRefused, match="not accepted"):
        tokens.access_token(source.sign(source.access_claims()))
