"""Access tokens of the identity provider at the REST API, checked here with its published keys.

Who somebody is and may do comes from their row, as for a browser's session: a token that says little (Keycloak's
lightweight ones) is as good as one that says much. Where the row was last confirmed longer ago than a session may go
unasked, the provider is asked for the userinfo with the token itself: who is disabled or lost a group there loses it
here as soon as in a browser.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings

from portal.accounts.models import Identity, User
from portal.auth.oidc import tokens
from portal.auth.oidc.errors import ProviderUnavailable, SignInError
from portal.auth.oidc.exchange import userinfo
from portal.auth.oidc.people import person_confirm
from portal.auth.oidc.provider import enabled
from portal.auth.oidc.sessions import refresh_interval
from portal.kernel.clock import utcnow
from portal.kernel.problems import Unavailable

logger = logging.getLogger(__name__)


def person_of(text: str) -> tuple[User, str] | None:
    """The active person of a valid access token, and the client it was made for; None: not valid.

    Raises:
        Unavailable: the provider must be asked, and does not answer.
    """
    if not enabled():
        return None
    try:
        claims = tokens.access_token(text)
        user = _confirmed(claims["iss"], claims["sub"], text)
    except ProviderUnavailable as error:
        raise Unavailable(error.detail, retry_after=30) from error
    except SignInError as error:
        logger.info("an access token was refused", extra={"cause": error.detail})
        return None
    return None if user is None else (user, str(claims["azp"]))


def _confirmed(iss: str, sub: str, text: str) -> User | None:
    identity = Identity.objects.select_related("user").filter(iss=iss, sub=sub).first()
    if identity is None or not identity.user.is_active:
        return None
    now, interval = utcnow(), refresh_interval(identity.user)
    seen = identity.last_seen_at
    if seen is not None and now - seen < interval:
        return identity.user
    try:
        return person_confirm(iss=iss, sub=sub, claims=userinfo(text, sub=sub), create=False)
    except ProviderUnavailable:
        if seen is not None and now - seen < interval + timedelta(seconds=settings.AIF_OIDC_OUTAGE_SECONDS):
            return identity.user
        raise
