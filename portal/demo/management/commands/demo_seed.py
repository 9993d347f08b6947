"""``manage.py demo_seed --simulator FILE``: two teams, three clusters, a month of evidence. Safe to repeat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.demo.seed import seed


class Command(BaseCommand):
    """Prints one JSON line with the logins, which the supervisor shows."""

    # The checks load every view; `manage.py prepare` and the tests run those that matter.
    requires_system_checks: list[str] = []
    help = "Seed the demonstration (refused unless AIF_DEMO is set)."

    def add_arguments(self, parser: CommandParser) -> None:
        """``--simulator``: the line that the simulator printed when it was ready, in a file."""
        parser.add_argument("--simulator", type=Path, help="file with the simulator's ready line")

    def handle(self, *args: Any, **options: Any) -> None:
        """Seed, and tell the logins."""
        if not settings.AIF_DEMO:
            raise CommandError("This makes users with passwords that are shown: it needs AIF_DEMO=1.")
        path: Path | None = options["simulator"]
        fleet = json.loads(path.read_text())["clusters"] if path is not None else {}
        logins = path.parent / "demo-logins.json" if path is not None else None
        self.stdout.write(json.dumps({"logins": seed(fleet, logins)}))
