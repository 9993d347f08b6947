"""``manage.py stop_writes REASON``: nothing is written to any cluster until ``manage.py resume_writes``."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from infra.services.operations import writes_stop
from portal.kernel.actors import Actor
from portal.kernel.problems import Problem


class Command(BaseCommand):
    """The switch for whoever is on the machine; the same as on the Operations page."""

    help = "Stop all writing to all clusters. Reading and metering go on."

    def add_arguments(self, parser: CommandParser) -> None:
        """Why."""
        parser.add_argument("reason", help="at least ten characters; it is shown on the platform's pages")

    def handle(self, *args: Any, **options: Any) -> None:
        """Stop."""
        try:
            row = writes_stop(reason=options["reason"], actor=Actor.system("command line"))
        except Problem as problem:
            raise CommandError(problem.detail) from problem
        self.stdout.write(f"Nothing is written to any cluster any more: {row.reason}")
