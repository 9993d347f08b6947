"""``manage.py check_backup FILE``: whether this installation could use a backup. It asks no database."""

import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import Tags
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.migrations.loader import MigrationLoader

from portal.cli.keys import complaints


class Command(BaseCommand):
    """For ``python -m portal.cli restore``."""

    # The security checks alone: the others load every view.
    requires_system_checks = [Tags.security]
    help = "Check a backup's manifest against this installation's keys, roles and version."

    def add_arguments(self, parser: CommandParser) -> None:
        """The manifest's facts."""
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        """Complain, or say nothing."""
        told = json.loads(options["file"].read_text())
        found = complaints(told["canaries"], told["pepper"])
        known = MigrationLoader(None).disk_migrations
        ahead = sorted(
            f"{app}.{name}" for app, names in told["migrations"].items() for name in names if (app, name) not in known
        )
        if ahead:
            found.append(
                f"The backup was made by version {told['version']}, which has migrations that {settings.VERSION} does "
                f"not know ({', '.join(ahead[:5])}{', …' if len(ahead) > 5 else ''}). Restore it with that version."
            )
        for role, ours in (("app_role", settings.AIF_DB_APP_ROLE), ("system_role", settings.AIF_DB_SYSTEM_ROLE)):
            if told[role] != ours:
                found.append(f"The backup gives its rights to the role {told[role]}; set AIF_DB_{role.upper()} to it.")
        if found:
            raise CommandError("Nothing was restored. " + " ".join(found))
