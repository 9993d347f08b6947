"""Django's description of this app."""

from django.apps import AppConfig


class AuthConfig(AppConfig):
    name = "portal.auth"
    label = "portal_auth"
    verbose_name = "Sign-in"

    def ready(self) -> None:
        """Register who knows the identity provider's tokens, the hourly cleaning, and the checks."""
        from portal.accounts.ports import register_bearer
        from portal.auth import checks
        from portal.auth.oidc import sessions
        from portal.auth.oidc.bearer import person_of

        assert all((checks, sessions))  # importing them registers what they hold
        register_bearer(person_of)
