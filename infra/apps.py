"""Django's description of this app."""

from importlib import import_module

from django.apps import AppConfig


class InfraConfig(AppConfig):
    name = "infra"
    label = "infra"
    verbose_name = "Fleet"

    def ready(self) -> None:
        """Register the reconcilers with the work queue."""
        import_module("infra.reconcilers")
