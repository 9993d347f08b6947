"""Django's description of this app."""

from django.apps import AppConfig


class InfraConfig(AppConfig):
    name = "infra"
    label = "infra"
    verbose_name = "Fleet"

    def ready(self) -> None:
        """Register the reconcilers with the work queue."""
        from infra import reconcilers

        assert reconcilers
