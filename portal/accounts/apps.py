"""Django's description of this app."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "portal.accounts"
    label = "accounts"
    verbose_name = "Accounts"

    def ready(self) -> None:
        """Describe our authentication to the OpenAPI generator (it finds subclasses that are imported)."""
        from portal.accounts.api import openapi

        assert openapi.TokenScheme.name
