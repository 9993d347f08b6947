"""The library's authentication backend with its gaps closed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest
from mozilla_django_oidc.auth import OIDCAuthenticationBackend

from portal.accounts.models import User
from portal.auth.oidc.errors import TokenRefused
from portal.auth.oidc.exchange import Answer, answer_of
from portal.auth.oidc.http import ask_json
from portal.auth.oidc.people import person_confirm
from portal.auth.oidc.provider import enabled, provider

PATH = "portal.auth.oidc.backend.OidcBackend"


class OidcBackend(OIDCAuthenticationBackend):  # type: ignore[misc]  # the library is untyped
    """Exchanges the code (the library), believes the answer or not, and finds the person (both ours).

    Nothing is fetched when it is made: Django makes one for each request of a session, and the provider may be down.
    """

    def __init__(self) -> None:
        self.OIDC_RP_CLIENT_ID = settings.AIF_OIDC_CLIENT_ID
        self.OIDC_RP_CLIENT_SECRET = settings.AIF_OIDC_CLIENT_SECRET
        self.UserModel = User
        self._told: dict[str, Any] = {}
        self._nonce: str | None = None

    def authenticate(self, request: HttpRequest | None, **kwargs: Any) -> User | None:
        """The person of the code in the request; None for other ways to sign in.

        Raises:
            SignInError: with the reason, for the page. (Django would turn None into *wrong password*.)
        """
        if not enabled() or request is None or "nonce" not in kwargs:
            return None
        self._nonce = kwargs["nonce"]
        user: User | None = super().authenticate(request, **kwargs)
        return user

    def get_token(self, payload: dict[str, str]) -> dict[str, Any]:
        """The token endpoint's answer; it is kept, for the refresh token in it."""
        self._told = ask_json("POST", provider().endpoints().token, "the token endpoint", form=payload)
        return self._told

    def verify_token(self, token: str, **kwargs: Any) -> Answer:
        """All checks of the ID token and of the userinfo (the library calls this after :meth:`get_token`)."""
        if not self._nonce:
            raise TokenRefused("This sign-in was started without a nonce. Start again.")
        return answer_of(self._told, nonce=self._nonce)

    def store_tokens(self, access_token: str, id_token: str) -> None:
        """Not into the session: signing in may flush it. The callback stores them afterwards."""

    def get_or_create_user(self, access_token: str, id_token: str, payload: Answer) -> User:
        """The person by issuer and subject, never by the e-mail address."""
        user = person_confirm(iss=payload.iss, sub=payload.sub, claims=payload.claims)
        self.request.oidc_answer = payload
        return user

    def get_user(self, user_id: UUID) -> User | None:
        """The session's person while active, and while sign-in through a provider is set up."""
        return User.objects.filter(pk=user_id, is_active=True).first() if enabled() else None
