"""Which tokens are believed: ID tokens, logout tokens, access tokens for the REST API. Each kind refuses the others.

Sources: OpenID Connect Core 1.0 §3.1.3.7 and §12.2, Back-Channel Logout 1.0 §2.6, RFC 9068 §4.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jwt
from django.conf import settings
from django.utils.crypto import constant_time_compare

from portal.auth.oidc.errors import TokenRefused
from portal.auth.oidc.provider import ALGORITHMS, Provider, provider

LEEWAY = 30
"""Seconds by which the provider's clock and ours may differ."""
LOGOUT_SECONDS = 300
"""A logout token older than this is not believed, whatever it says of its end."""
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
LONGEST = 64 * 1024
"""Characters of a token; a longer one is not looked at."""
_ID_TYPES = ("ID", None)
"""What Keycloak writes into ``typ`` of an ID token; other providers write nothing."""


def id_token(text: str, *, nonce: str | None) -> dict[str, Any]:
    """The claims of an ID token for us.

    Args:
        nonce: what was sent with the request; None: a refresh, whose tokens need none.

    Raises:
        TokenRefused: any check fails; the sentence says which.
    """
    client = settings.AIF_OIDC_CLIENT_ID
    claims = _decode(text, audience=client, require=("exp", "iat", "aud", "iss", "sub"))
    if claims.get("typ") not in _ID_TYPES or "events" in claims:
        raise TokenRefused("This is no ID token.")
    audience = claims["aud"]
    several = isinstance(audience, list) and len(audience) > 1
    if (several or "azp" in claims) and claims.get("azp") != client:
        raise TokenRefused("The ID token was made for another client (azp).")
    if nonce is not None and not (
        isinstance(claims.get("nonce"), str) and constant_time_compare(claims["nonce"], nonce)
    ):
        raise TokenRefused("The ID token does not belong to this sign-in (nonce).")
    return claims


def logout_token(text: str) -> dict[str, Any]:
    """The claims of a back-channel logout token for us; whether its ``jti`` is new is for the caller to see.

    Raises:
        TokenRefused: any check fails; the sentence says which.
    """
    claims = _decode(text, audience=settings.AIF_OIDC_CLIENT_ID, require=("iat", "aud", "iss", "jti"))
    if _header(text).get("typ", "JWT").lower() not in ("jwt", "logout+jwt"):
        raise TokenRefused("This is no logout token (typ).")
    events = claims.get("events")
    if not isinstance(events, dict) or not isinstance(events.get(LOGOUT_EVENT), dict):
        raise TokenRefused("This is no logout token (events).")
    if "nonce" in claims:
        raise TokenRefused("A logout token must not carry a nonce.")
    if time.time() - claims["iat"] > LOGOUT_SECONDS + LEEWAY:
        raise TokenRefused("The logout token is too old.")
    if not isinstance(claims["jti"], str) or not 0 < len(claims["jti"]) <= 255:
        raise TokenRefused("The logout token's jti is not usable.")
    named = [claims.get("sid"), claims.get("sub")]
    if not any(isinstance(each, str) and each for each in named):
        raise TokenRefused("The logout token names neither a session nor a person.")
    return claims


def access_token(text: str) -> dict[str, Any]:
    """The claims of an access token for our REST API, from a client that is allowed.

    Raises:
        TokenRefused: any check fails; the sentence says which.
    """
    audience = settings.AIF_OIDC_API_AUDIENCE
    if not audience:
        raise TokenRefused("Access tokens of the identity provider are not accepted here; make an API token.")
    claims = _decode(text, audience=audience, require=("exp", "iat", "aud", "iss", "sub"))
    kind, header = claims.get("typ"), str(_header(text).get("typ", "")).lower().removeprefix("application/")
    if kind != "Bearer" and not (kind is None and header == "at+jwt"):
        raise TokenRefused("This is no access token (typ).")
    if "events" in claims or "nonce" in claims:
        raise TokenRefused("This is no access token.")
    if claims.get("azp") not in settings.AIF_OIDC_CLI_CLIENTS:
        raise TokenRefused("The token was made for a client that may not use this API (azp).")
    return claims


def _decode(text: object, *, audience: str, require: Sequence[str]) -> dict[str, Any]:
    source = provider()
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST:
        raise TokenRefused("There is no token, or it is too long.")
    key = _key(source, text)
    try:
        claims: dict[str, Any] = jwt.decode(
            text,
            key,
            algorithms=[key.algorithm_name],
            audience=audience,
            issuer=source.issuer,
            leeway=LEEWAY,
            options={"require": list(require), "verify_sub": True, "verify_jti": False},
        )
    except jwt.ExpiredSignatureError as error:
        raise TokenRefused("The token has expired.") from error
    except (jwt.ImmatureSignatureError, jwt.InvalidIssuedAtError) as error:
        raise TokenRefused(
            "The token is not valid yet: the clocks of the identity provider and of this portal differ by more than "
            f"{LEEWAY} s. Tell the platform team."
        ) from error
    except jwt.InvalidAudienceError as error:
        raise TokenRefused("The token was made for somebody else (aud).") from error
    except jwt.InvalidIssuerError as error:
        raise TokenRefused("The token is of another issuer (iss).") from error
    except jwt.MissingRequiredClaimError as error:
        raise TokenRefused(f"The token lacks the claim {error.claim}.") from error
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
        raise TokenRefused("The token is damaged or forged.") from error
    if "sub" in require and not 0 < len(claims["sub"]) <= 255:
        raise TokenRefused("The token's sub is not usable.")
    if not isinstance(claims.get("iat"), int | float) or isinstance(claims["iat"], bool):
        raise TokenRefused("The token's iat is not usable.")
    return claims


def _key(source: Provider, text: str) -> jwt.PyJWK:
    header = _header(text)
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise TokenRefused(
            f"The token is signed by a method that is not accepted; accepted are {', '.join(ALGORITHMS)}."
        )
    if not isinstance(key_id, str) or not key_id:
        raise TokenRefused("The token does not say which key signed it (kid).")
    return source.key(key_id, algorithm)


def _header(text: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = jwt.get_unverified_header(text)
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise TokenRefused("This is no token.") from error
    return found
