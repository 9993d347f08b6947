"""How busy cards were, and how good the metrics are that say so. Unknown is ``None``, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet, Sum

from infra.models import Cluster, ClusterEndpoint, PodObservation, TelemetryGap, TelemetryHour, TelemetrySource

GAPS = 50
"""How many gaps a page shows."""


@dataclass(frozen=True, slots=True)
class Use:
    """What was observed together: ``busy_ms`` of ``observed_ms`` of card time; both None where nothing was."""

    busy_ms: int | None
    observed_ms: int | None
    energy_mj: int | None = None

    @property
    def observed_hours(self) -> int:
        """Hours of cards for which samples tell, rounded."""
        return round((self.observed_ms or 0) / 3_600_000)

    @property
    def percent(self) -> int | None:
        """Busy, in whole percent of the observed time."""
        if self.busy_ms is None or not self.observed_ms:
            return None
        return round(100 * self.busy_ms / self.observed_ms)


def use_of_deployment(deployment_id: UUID, start: datetime, end: datetime) -> Use:
    """What the pods of one deployment did in the hours of ``[start, end)``."""
    pods = PodObservation.objects.filter(
        cluster=OuterRef("cluster"), namespace=OuterRef("namespace"), name=OuterRef("pod"), deployment_id=deployment_id
    )
    names = PodObservation.objects.filter(deployment_id=deployment_id)
    return _together(
        TelemetryHour.objects.filter(
            Exists(pods), namespace__in=names.values("namespace"), hour__gte=start, hour__lt=end
        )
    )


def endpoints_of(cluster: Cluster) -> QuerySet[ClusterEndpoint]:
    """The cluster's Prometheus and OpenCost, as far as they are set."""
    return ClusterEndpoint.objects.filter(cluster=cluster).select_related("cluster").order_by("role")


def source_of(cluster: Cluster) -> TelemetrySource | None:
    """How far the cluster's metrics are read; None before the first time."""
    return TelemetrySource.objects.filter(cluster=cluster).first()


def gaps_of(cluster: Cluster) -> QuerySet[TelemetryGap]:
    """Where metrics are missing or do not say all; the latest first."""
    return TelemetryGap.objects.filter(cluster=cluster).order_by("-ended_at", "node", "id")


def _together(rows: QuerySet[TelemetryHour]) -> Use:
    found = rows.aggregate(busy=Sum("busy_ms"), observed=Sum("observed_ms"), energy=Sum("energy_mj"))
    return Use(found["busy"], found["observed"], found["energy"])
