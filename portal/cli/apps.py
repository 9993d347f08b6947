"""Django's description of this app."""

from django.apps import AppConfig


class CliConfig(AppConfig):
    name = "portal.cli"
    label = "cli"
    verbose_name = "Command line"

    def ready(self) -> None:
        """Make our Celery app the current one, with every app's periodic tasks (this app is the last one)."""
        from portal.celery import app, schedule_ticks

        app.set_default()
        schedule_ticks()
