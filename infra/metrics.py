"""The fleet as gauges: do clusters answer, how far are their watches and metrics, how long are credentials good."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from infra.credentials import warn_from
from infra.models import Cluster, TelemetrySource, WatchTarget
from infra.selectors.operations import cluster_parts, database_clock, write_stop
from portal.kernel import metrics
from portal.kernel.metrics import gauge


def collect() -> Iterator[Metric]:
    """Some rows a cluster. What is not known has no row."""
    now = database_clock()
    parts = cluster_parts(now)
    clusters = [part.cluster for part in parts]
    yield gauge(
        "aif_writes_stopped",
        "Whether all writing to clusters is stopped.",
        (),
        [((), write_stop() is not None)],
    )
    yield gauge(
        "aif_cluster_reachable",
        "Whether the cluster's API server answered; no row: not known.",
        ("cluster",),
        [((part.cluster.slug,), part.reached) for part in parts],
    )
    yield gauge("aif_cluster_paused", "Whether writing to it is paused.", ("cluster",), _each(clusters, "paused"))
    yield gauge(
        "aif_cluster_managed",
        "Whether the portal may write to it (mode manage).",
        ("cluster",),
        [((one.slug,), one.mode == Cluster.Mode.MANAGE) for one in clusters],
    )
    yield gauge(
        "aif_cluster_credentials_end_timestamp_seconds",
        "When the cluster's credentials end; no row: they do not say.",
        ("cluster",),
        [
            ((one.slug,), one.credential_expires_at.timestamp() if one.credential_expires_at else None)
            for one in clusters
        ],
    )
    yield gauge(
        "aif_cluster_credentials_warn_timestamp_seconds",
        "From when on it is told that they end: a renewal that works has happened by then.",
        ("cluster",),
        [
            ((one.slug,), warn_from(one.credential_issued_at, one.credential_expires_at).timestamp())
            for one in clusters
            if one.credential_expires_at
        ],
    )
    targets = WatchTarget.objects.filter(cluster__abandoned_at__isnull=True).order_by("cluster__slug", "resource")
    rows = list(targets.values_list("cluster__slug", "resource", "watermark", "lease_until", "failures"))
    yield gauge(
        "aif_watch_lag_seconds",
        "How far the watch's proof is behind now; no row: never watched.",
        ("cluster", "resource"),
        [((slug, kind), (now - mark).total_seconds() if mark else None) for slug, kind, mark, _, _ in rows],
    )
    yield gauge(
        "aif_watch_held",
        "Whether a watcher holds the target.",
        ("cluster", "resource"),
        [((slug, kind), until is not None and until > now) for slug, kind, _, until, _ in rows],
    )
    yield gauge(
        "aif_watch_failures",
        "Failures of the watch in a row.",
        ("cluster", "resource"),
        [((slug, kind), failures) for slug, kind, _, _, failures in rows],
    )
    sources = TelemetrySource.objects.filter(cluster__abandoned_at__isnull=True).order_by("cluster__slug")
    yield gauge(
        "aif_telemetry_lag_seconds",
        "How far reading the cards' metrics is behind now; no row: none are read.",
        ("cluster",),
        [
            ((slug,), (now - until).total_seconds() if until else None)
            for slug, until in sources.values_list("cluster__slug", "read_until")
        ],
    )


def _each(clusters: list[Cluster], name: str) -> list[tuple[tuple[str, ...], float | int | None]]:
    return [((one.slug,), getattr(one, name)) for one in clusters]


metrics.register("fleet", collect)
