"""What the provider says of a person, and the tokens with which it is asked again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from portal.auth.oidc import tokens
from portal.auth.oidc.errors import TokenRefused
from portal.auth.oidc.http import as_object, ask, ask_json
from portal.auth.oidc.provider import provider


@dataclass(frozen=True)
class Answer:
    """Of one exchange with the provider: who it is (validated), what is known of them, and the tokens."""

    iss: str
    sub: str
    sid: str
    claims: dict[str, Any]
    id_token: str = field(repr=False)
    refresh_token: str = field(repr=False)


def answer_of(told: Mapping[str, Any], *, nonce: str | None, sub: str | None = None) -> Answer:
    """Check a token endpoint's answer, and ask for the userinfo.

    Groups, roles and organizations are taken from the ID token; a claim that it lacks from the userinfo.

    Args:
        nonce: see :func:`portal.auth.oidc.tokens.id_token`.
        sub: who it must be (a refresh).

    Raises:
        TokenRefused, ProviderRefused, ProviderUnavailable: as their names say.
    """
    id_text, access, refresh = told.get("id_token"), told.get("access_token"), told.get("refresh_token")
    if not isinstance(id_text, str) or not isinstance(access, str):
        raise TokenRefused("The identity provider sent no ID token. Its client needs the scope openid.")
    claims = tokens.id_token(id_text, nonce=nonce)
    if sub is not None and claims["sub"] != sub:
        raise TokenRefused("The identity provider now speaks of somebody else (sub).")
    sid = claims.get("sid")
    return Answer(
        iss=claims["iss"],
        sub=claims["sub"],
        sid=sid if isinstance(sid, str) and len(sid) <= 255 else "",
        claims={**userinfo(access, sub=claims["sub"]), **claims},
        id_token=id_text,
        refresh_token=refresh if isinstance(refresh, str) else "",
    )


def userinfo(access_token: str, *, sub: str) -> dict[str, Any]:
    """The userinfo of a person, who must be the one of the token (OpenID Connect Core §5.3.2).

    Raises:
        TokenRefused, ProviderRefused, ProviderUnavailable: as their names say.
    """
    headers = {"Authorization": f"Bearer {access_token}", "Accept": "application/json"}
    kind, body = ask("GET", provider().endpoints().userinfo, "the userinfo endpoint", headers=headers)
    if kind.startswith("application/jwt"):
        raise TokenRefused("The identity provider signs its userinfo answers; switch that off for this client.")
    told = as_object(body, "the userinfo endpoint")
    if told.get("sub") != sub:
        raise TokenRefused("The identity provider's userinfo is of somebody else (sub).")
    return told


def refreshed(refresh_token: str) -> dict[str, Any]:
    """The token endpoint's answer to a refresh token.

    Raises:
        ProviderRefused: it is used up, or the session is over there.
        ProviderUnavailable: no usable answer.
    """
    form = {
        "grant_type": "refresh_token",
        "refresh_token": refresh_token,
        "client_id": settings.AIF_OIDC_CLIENT_ID,
        "client_secret": settings.AIF_OIDC_CLIENT_SECRET,
    }
    return ask_json("POST", provider().endpoints().token, "the token endpoint", form=form)
