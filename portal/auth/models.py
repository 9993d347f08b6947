"""Sessions that were opened through the identity provider, and logout tokens that were used. Global: read by the
sign-in itself, before a tenant is known."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from portal.kernel.scoping import Global


class OidcSession(Global):
    """A browser session whose person signed in at the identity provider. Without its row such a session is over.

    The browser's session key is not kept, only its digest; the provider's tokens are encrypted.
    """

    session_digest = models.CharField(max_length=64, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="oidc_sessions")
    iss = models.CharField(max_length=400)
    sub = models.CharField(max_length=255)
    sid = models.CharField(max_length=255, blank=True, help_text="The provider's name of the session.")
    refresh_ciphertext = models.BinaryField(default=b"")
    id_token_ciphertext = models.BinaryField(default=b"", help_text="The hint that ends the provider's session.")
    started_at = models.DateTimeField(db_default=Now())
    confirmed_at = models.DateTimeField(help_text="When the provider last said that the session goes on.")
    next_refresh_at = models.DateTimeField()
    active_at = models.DateTimeField(help_text="When the person last did something; polling does not count.")

    class Meta:
        indexes = [
            models.Index(fields=["iss", "sid"], name="oidc_session_sid"),
            models.Index(fields=["iss", "sub"], name="oidc_session_sub"),
        ]

    def __str__(self) -> str:
        return f"session of {self.sub} at {self.iss}"


class SpentLogoutToken(Global):
    """The ``jti`` of a logout token that was used: it works once."""

    iss = models.CharField(max_length=400)
    jti = models.CharField(max_length=255)
    used_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["iss", "jti"], name="spent_logout_token_unique")]

    def __str__(self) -> str:
        return self.jti
