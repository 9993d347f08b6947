"""How the API's two ways of authentication are described in OpenAPI."""

from typing import Any

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # theirs is untyped
    """``Authorization: Bearer aif_…``."""

    target_class = "portal.accounts.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """The scheme."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "aif_pat_<id>_<secret>_<checksum>"}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # theirs is untyped
    """The browser's session cookie."""

    target_class = "portal.accounts.authentication.BrowserSessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """The scheme."""
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}
