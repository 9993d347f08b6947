"""How far a cluster's past has been rebuilt from its Prometheus, and where the watch's own proof begins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db import connection
from django.db.models import Min, QuerySet

from infra.models import Cluster, Rebuild, WatchSpan, WatchTarget
from portal.kernel.clock import parse_rfc3339
from portal.kernel.problems import NotFound


def watch_begin(cluster_id: UUID, resource: str = WatchTarget.Resource.PODS) -> datetime | None:
    """Since when a resource of the cluster was ever watched; None: not yet."""
    first: datetime | None = WatchSpan.objects.filter(target__cluster=cluster_id, target__resource=resource).aggregate(
        first=Min("started_at")
    )["first"]
    return first


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """From ``start`` to ``end``, the watch's begin, a cluster's past is rebuilt."""

    start: datetime
    end: datetime


def rebuilt(cluster_id: UUID) -> Rebuilt | None:
    """The stretch that all runs together have rebuilt; None: nothing. Every run begins at the watch's begin."""
    reach = Rebuild.objects.filter(cluster=cluster_id, windows_done__gt=0).aggregate(first=Min("cursor"))["first"]
    end = watch_begin(cluster_id)
    return Rebuilt(reach, end) if reach is not None and end is not None and reach < end else None


def rebuilds(cluster: Cluster) -> QuerySet[Rebuild]:
    """The cluster's runs, the newest first."""
    return Rebuild.objects.filter(cluster=cluster).select_related("cluster")


def rebuild_get(cluster: Cluster, rebuild_id: UUID) -> Rebuild:
    """One run.

    Raises:
        NotFound: the cluster has no such run.
    """
    row = rebuilds(cluster).filter(pk=rebuild_id).first()
    if row is None:
        raise NotFound(f"Cluster {cluster.slug} has no such run through its history.")
    return row


@dataclass(frozen=True, slots=True)
class History:
    """What a cluster's page says of its past. ``run``: the newest; ``covered``: what is rebuilt so far.

    ``pod_ms``: Σ over rebuilt pods of the time that they held something within ``covered``; ``proved_ms`` of it the
    Kubernetes API proves. ``error_ms``: Σ of the stated errors of their edges. ``gap_ms``: without any scrape.
    """

    begin: datetime | None
    run: Rebuild | None
    covered: Rebuilt | None
    pods: int = 0
    pods_proved: int = 0
    pod_ms: int = 0
    proved_ms: int = 0
    error_ms: int = 0
    gap_ms: int = 0

    @property
    def pod_hours(self) -> Decimal:
        """``pod_ms`` in hours."""
        return _hours(self.pod_ms)

    @property
    def proved_hours(self) -> Decimal:
        """``proved_ms`` in hours."""
        return _hours(self.proved_ms)

    @property
    def error_hours(self) -> Decimal:
        """``error_ms`` in hours."""
        return _hours(self.error_ms)

    @property
    def gap_hours(self) -> Decimal:
        """``gap_ms`` in hours."""
        return _hours(self.gap_ms)

    @property
    def gaps(self) -> list[tuple[datetime, datetime]]:
        """Times without any scrape, the newest first."""
        return (
            [(parse_rfc3339(start), parse_rfc3339(end)) for start, end in reversed(self.run.gaps)] if self.run else []
        )


def _hours(ms: int) -> Decimal:
    return (Decimal(ms) / 3_600_000).quantize(Decimal("0.01"))


_FIGURES = """
SELECT count(*), count(*) FILTER (WHERE proved), coalesce(sum(held), 0)::bigint,
    coalesce(sum(held) FILTER (WHERE proved), 0)::bigint, coalesce(sum(error), 0)::bigint
FROM (
    SELECT (past->>'api')::boolean AS proved,
        (past->>'start_error_ms')::bigint + (past->>'end_error_ms')::bigint AS error,
        greatest(0, extract(epoch FROM least(ended_at, %(end)s) - greatest(scheduled_at, %(start)s)) * 1000) AS held
    FROM infra_podobservation WHERE cluster_id = %(cluster)s AND source = 'retroactive'
) AS pods
"""


def past_figures(cluster_id: UUID, covered: Rebuilt) -> tuple[int, int, int, int, int]:
    """Pods, those that the API proves, their time, the proved part of it, and the stated error; times in ms."""
    with connection.cursor() as cursor:
        cursor.execute(_FIGURES, {"cluster": cluster_id, "start": covered.start, "end": covered.end})
        row = cursor.fetchone()
        assert row is not None
        return tuple(int(value) for value in row)  # type: ignore[return-value]  # five columns


def history_of(cluster: Cluster) -> History:
    """The figures of the page; a few queries, however much there is."""
    begin, run, covered = watch_begin(cluster.pk), rebuilds(cluster).first(), rebuilt(cluster.pk)
    if run is None or covered is None:
        return History(begin, run, covered)
    gaps = sum((parse_rfc3339(end) - parse_rfc3339(start)) // timedelta(milliseconds=1) for start, end in run.gaps)
    return History(begin, run, covered, *past_figures(cluster.pk, covered), gap_ms=gaps)
