"""``manage.py prepare``: migrations and static files in one go, before the other processes start."""

from typing import Any

from django.core.checks import Tags
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    """Run it with the owner's AIF_DATABASE_URL; ``python -m portal.cli up`` does, under a lock."""

    # The security checks alone: the others load every view, which the web process does soon enough.
    requires_system_checks = [Tags.security]
    help = "Apply migrations (as the owner of the tables) and collect the static files."

    def add_arguments(self, parser: CommandParser) -> None:
        """One option."""
        parser.add_argument("--no-static", action="store_true", help="leave the static files as they are")

    def handle(self, *args: Any, **options: Any) -> None:
        """Quietly."""
        call_command("migrate", interactive=False, verbosity=0)
        if not options["no_static"]:
            call_command("collectstatic", interactive=False, verbosity=0)
