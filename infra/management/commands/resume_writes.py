"""``manage.py resume_writes``: the end of ``manage.py stop_writes``."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from infra.services.operations import writes_resume
from portal.kernel.actors import Actor
from portal.kernel.problems import Problem


class Command(BaseCommand):
    """Write to the clusters again; what waited is looked at now."""

    help = "Write to the clusters again."

    def handle(self, *args: Any, **options: Any) -> None:
        """Resume."""
        try:
            writes_resume(actor=Actor.system("command line"))
        except Problem as problem:
            raise CommandError(problem.detail) from problem
        self.stdout.write("The clusters are written to again.")
