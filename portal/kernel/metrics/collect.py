"""Gauges from the database, asked for at the scrape. What takes too long is given up, the rest is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from django.conf import settings
from django.db import DatabaseError, connection
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from portal.kernel.metrics.instruments import counted
from portal.kernel.scoping import system_scope

logger = logging.getLogger(__name__)

LONGEST_QUESTION_MS = 3000

Collect = Callable[[], Iterable[Metric]]
_collectors: dict[str, Collect] = {}


def register(name: str, collect: Collect) -> None:
    """Have ``collect()`` asked at each scrape, within a system scope of its own that may last three seconds."""
    _collectors[name] = collect


def gauge(
    name: str, about: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float | int | None]]
) -> GaugeMetricFamily:
    """A gauge family. A value of ``None`` is not known, so its row is left out."""
    family = GaugeMetricFamily(name, about, labels=labels)
    for values, value in rows:
        if value is not None:
            family.add_metric(values, float(value))
    return family


def scrape() -> bytes:
    """Everything, as text."""
    told = CollectorRegistry()
    told.register(_Database())
    return generate_latest(counted()) + generate_latest(told)


def scrape_process() -> bytes:
    """What this process counted, and nothing from the database: for workers and watchers."""
    return generate_latest(counted())


class _Database(Collector):
    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("aif_build", "The version that answers.", value=self._build())
        up: dict[tuple[str, ...], float] = {}
        for name, collect in sorted(_collectors.items()):
            found: list[Metric] = []
            try:
                with system_scope("metrics"):
                    with connection.cursor() as cursor:
                        cursor.execute("SET LOCAL statement_timeout = %s", [LONGEST_QUESTION_MS])
                    found = list(collect())
                up[name,] = 1
            except DatabaseError as error:
                logger.warning("metrics are missing", extra={"part": name, "why": str(error)})
                up[name,] = 0
            yield from found
        yield gauge(
            "aif_metrics_complete",
            "Whether the database answered for this part of the metrics at this scrape.",
            ("part",),
            up.items(),
        )

    @staticmethod
    def _build() -> dict[str, str]:
        return {"version": settings.VERSION}
