"""Django's description of this app."""

from importlib import import_module

from django.apps import AppConfig


class InfraConfig(AppConfig):
    name = "infra"
    label = "infra"
    verbose_name = "Fleet"

    def ready(self) -> None:
        """Register the reconcilers with the work queue, the parts that readiness tells of, and the fleet's metrics."""
        import_module("infra.reconcilers")
        import_module("infra.readiness")
        import_module("infra.metrics")
