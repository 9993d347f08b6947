"""``manage.py meter``: meter a cluster now, or look at hours again."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing.services.metering import meter_again, meter_cluster
from infra.models import Cluster
from portal.kernel.clock import Interval, parse_rfc3339


class Command(BaseCommand):
    """Without ``--from`` what is new is worked in; with it the evidence of those hours is looked at again."""

    help = "Meter a cluster: evidence into allocations and usage. Doing it again adds nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Options."""
        parser.add_argument("--cluster", required=True, help="slug of the cluster, or 'all'")
        parser.add_argument("--from", dest="start", help="RFC 3339 instant: look again at hours from here")
        parser.add_argument("--to", dest="end", help="RFC 3339 instant: until here (with --from)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run it and say how many rows were added."""
        clusters = Cluster.objects.order_by("slug")
        if options["cluster"] != "all":
            clusters = clusters.filter(slug=options["cluster"])
            if not clusters:
                raise CommandError(f"There is no cluster {options['cluster']}. See the clusters page for the names.")
        if bool(options["start"]) != bool(options["end"]):
            raise CommandError("Give --from and --to together, for instance --from 2026-11-01T00:00:00Z.")
        try:
            window = (
                Interval(parse_rfc3339(options["start"]), parse_rfc3339(options["end"])) if options["start"] else None
            )
        except ValueError as error:
            raise CommandError(str(error)) from error
        for cluster in clusters:
            if window is None:
                metered = meter_cluster(cluster.pk, budget_seconds=3600)
            else:
                metered = meter_again(cluster.pk, window)
            until = f"{metered.final_until:%Y-%m-%d %H:%M} UTC" if metered.final_until else "no hour yet"
            self.stdout.write(f"{cluster.slug}: {metered.rows} rows added; final until {until}")
