"""Who sends an API request: a bearer token, or a browser's session (which needs the CSRF token to change things)."""

from dataclasses import dataclass

from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, SessionAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.request import Request

from portal.accounts import ports, services, tokens
from portal.accounts.models import ApiToken, User
from portal.kernel import crypto
from portal.kernel.actors import Actor, current_request

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OURS = "aif_"
"""How a token of ours begins; others are the identity provider's."""


@dataclass(frozen=True)
class ProviderToken:
    """An access token of the identity provider: it acts as its person, through a client."""

    user: User
    client: str


class TokenAuthentication(BaseAuthentication):
    """``Authorization: Bearer aif_…``, or an access token of the identity provider (:mod:`portal.accounts.ports`).

    Unknown, wrong, expired, revoked: one and the same 401.
    """

    def authenticate(self, request: Request) -> tuple[User, ApiToken | ProviderToken] | None:
        """The token's person and the token; ``None`` if there is no such header.

        Raises:
            AuthenticationFailed: the token is not valid.
            PermissionDenied: its scopes do not cover the method.
        """
        header = get_authorization_header(request).split()
        if not header or header[0].lower() != b"bearer":
            return None
        text = header[1].decode("latin-1") if len(header) == 2 else ""
        if text and not text.startswith(OURS):
            return self._of_provider(text)
        token = find_token(text)
        if token is None:
            raise AuthenticationFailed("The token is not valid: unknown, expired or revoked.")
        needed = "read" if request.method in SAFE_METHODS else "write"
        if needed not in token.scopes and not (needed == "read" and "write" in token.scopes):
            raise PermissionDenied(f"The token lacks the scope {needed}.")
        services.token_used(token)
        _set_actor(token_actor(token))
        return token.user, token

    def _of_provider(self, text: str) -> tuple[User, ProviderToken]:
        found = ports.person_of_bearer(text)
        if found is None:
            raise AuthenticationFailed("The token is not valid: unknown, expired or revoked.")
        token = ProviderToken(*found)
        _set_actor(provider_actor(token))
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """Makes the answer a 401."""
        return 'Bearer realm="api"'


class BrowserSessionAuthentication(SessionAuthentication):
    """Django's session with CSRF check, for pages that call the API."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        """The signed-in person, or ``None``."""
        found = super().authenticate(request)
        if found is None or not isinstance(found[0], User):
            return None
        _set_actor(services.user_actor(found[0]))
        return found[0], None


def find_token(text: str) -> ApiToken | None:
    """The valid token of this text (with its user), or ``None``."""
    parts = tokens.parse(text)
    if parts is None:
        return None
    token = ApiToken.objects.select_related("user").filter(public_id=parts.public_id).first()
    # The digest is compared also where the row is missing: the answer takes as long.
    right = crypto.same(token.digest if token else "", crypto.digest(parts.secret))
    if token is None or not right or token.revoked_at is not None or token.expires_at <= timezone.now():
        return None
    return token if token.user.is_active else None


def token_actor(token: ApiToken) -> Actor:
    """The actor of a request with this token."""
    return Actor(
        kind="token",
        name=f"{token.user.username} (token {token.name})",
        user_id=token.user_id,
        token_id=token.id,
        platform_role=token.user.platform_role if "platform" in token.scopes else "",
        tenant_id=token.tenant_id,
        scopes=frozenset(token.scopes),
    )


def provider_actor(token: ProviderToken) -> Actor:
    """The actor of a request with the identity provider's token: all that its person may do in a browser, but make
    tokens."""
    return Actor(
        kind="token",
        name=f"{token.user.username} (client {token.client})",
        user_id=token.user.pk,
        platform_role=token.user.platform_role,
        scopes=tokens.SCOPES,
    )


def request_actor(request: Request) -> Actor:
    """The actor of an authenticated API request."""
    if isinstance(request.auth, ApiToken):
        return token_actor(request.auth)
    if isinstance(request.auth, ProviderToken):
        return provider_actor(request.auth)
    assert isinstance(request.user, User), "the view must require authentication"
    return services.user_actor(request.user)


def _set_actor(actor: Actor) -> None:
    context = current_request()
    if context is not None:
        context.actor = actor
