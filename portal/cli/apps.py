"""Django's description of this app."""

from django.apps import AppConfig


class CliConfig(AppConfig):
    name = "portal.cli"
    label = "cli"
    verbose_name = "Command line"

    def ready(self) -> None:
        """Make our Celery app the current one in every process that runs Django."""
        from portal.celery import app

        app.set_default()
