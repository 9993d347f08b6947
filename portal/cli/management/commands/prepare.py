"""``manage.py prepare``: migrations and static files in one go, before the other processes start."""

from typing import Any

from django.core.checks import Tags
from django.core.management import call_command
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    """Run it with the owner's AIF_DATABASE_URL; ``python -m portal.cli up`` does, under a lock."""

    # The security checks alone: the others load every view, which the web process does soon enough.
    requires_system_checks = [Tags.security]
    help = "Apply migrations (as the owner of the tables) and collect the static files."

    def handle(self, *args: Any, **options: Any) -> None:
        """Do both, quietly."""
        call_command("migrate", interactive=False, verbosity=0)
        call_command("collectstatic", interactive=False, verbosity=0)
