"""``manage.py backup_facts``: what a backup must know of the settings, as JSON. No secret is among it."""

import json
from typing import Any

from django.conf import settings
from django.core.checks import Tags
from django.core.management.base import BaseCommand

from portal.cli.keys import canaries, pepper


class Command(BaseCommand):
    """For ``python -m portal.cli backup``."""

    # The security checks alone: the others load every view.
    requires_system_checks = [Tags.security]
    help = "Print what a backup must know of the settings."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print it."""
        facts = {
            "version": settings.VERSION,
            "app_role": settings.AIF_DB_APP_ROLE,
            "system_role": settings.AIF_DB_SYSTEM_ROLE,
            "canaries": canaries(),
            "pepper": pepper(),
        }
        self.stdout.write(json.dumps(facts))
