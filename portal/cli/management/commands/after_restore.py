"""``manage.py after_restore``: see :mod:`portal.cli.safe`."""

from typing import Any

from django.core.checks import Tags
from django.core.management.base import BaseCommand

from portal.cli.safe import make_safe


class Command(BaseCommand):
    """The last step of ``python -m portal.cli restore``."""

    # The security checks alone: the others load every view.
    requires_system_checks = [Tags.security]
    help = "Make a database that was restored from a backup safe to start with."

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it, and say what was done."""
        for line in make_safe():
            self.stdout.write(line)
