"""``manage.py demo_seed --fleet FILE``: two teams, three clusters, a month of evidence. Safe to repeat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.demo.identities import Identities
from portal.demo.seed import seed


class Command(BaseCommand):
    """Prints one JSON line with the logins, which the supervisor shows."""

    # The checks load every view; `manage.py prepare` and the tests run those that matter.
    requires_system_checks: list[str] = []
    help = "Seed the demonstration (refused unless AIF_DEMO is set)."

    def add_arguments(self, parser: CommandParser) -> None:
        """``--fleet``: the line that the simulator, or the control planes, printed when they were ready, in a file."""
        parser.add_argument("--fleet", type=Path, help="file with the fleet's ready line")
        parser.add_argument("--sign-in", type=Path, help="file that says who is who at the identity provider")

    def handle(self, *args: Any, **options: Any) -> None:
        """Seed, and tell the logins."""
        if not settings.AIF_DEMO:
            raise CommandError("This makes users with passwords that are shown: it needs AIF_DEMO=1.")
        path: Path | None = options["fleet"]
        facts = json.loads(path.read_text()) if path is not None else {}
        sign_in: Path | None = options["sign_in"]
        beside = path or sign_in
        logins = beside.parent / "demo-logins.json" if beside is not None else None
        identities = Identities.read(sign_in) if sign_in is not None else None
        people = seed(facts.get("clusters", {}), logins, identities, facts.get("tenants"))
        self.stdout.write(json.dumps({"logins": people}))
