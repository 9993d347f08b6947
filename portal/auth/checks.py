"""System checks of the settings for sign-in through an identity provider."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Caution


@register(Tags.security)
def oidc_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Half of a set-up is none, and it is told before somebody can't sign in."""
    found: list[CheckMessage] = []
    if not settings.AIF_OIDC_ISSUER:
        if settings.AIF_OIDC_CLIENT_ID or settings.AIF_OIDC_API_AUDIENCE:
            found.append(Caution("AIF_OIDC_CLIENT_ID is set, but sign-in is off: set AIF_OIDC_ISSUER.", id="aif.W101"))
        if not settings.AIF_LOCAL_ACCOUNTS:
            found.append(
                Error("Nobody can sign in: AIF_LOCAL_ACCOUNTS is 0 and AIF_OIDC_ISSUER is not set.", id="aif.E101")
            )
        return found
    found += [
        Error(f"AIF_OIDC_ISSUER is set, but {name} is not.", id="aif.E102")
        for name in ("AIF_OIDC_CLIENT_ID", "AIF_OIDC_CLIENT_SECRET")
        if not getattr(settings, name)
    ]
    for name in ("AIF_OIDC_ISSUER", "AIF_OIDC_BACKCHANNEL_URL"):
        parts = urlsplit(getattr(settings, name))
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            found.append(Error(f"{name} must be an address like https://sso.example.com/realms/name.", id="aif.E103"))
    if "openid" not in settings.AIF_OIDC_SCOPES.split():
        found.append(Error("AIF_OIDC_SCOPES must hold openid: without it there is no ID token.", id="aif.E104"))
    if settings.AIF_OIDC_API_AUDIENCE and not settings.AIF_OIDC_CLI_CLIENTS:
        found.append(Caution("AIF_OIDC_API_AUDIENCE is set, but AIF_OIDC_CLI_CLIENTS allows no client.", id="aif.W102"))
    return found
