"""How busy cards were, as far as samples say: beside what was held, never in its place. Unknown is not zero."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

from django.db.models import Sum
from django.db.models.functions import TruncDate

from infra.models import Node, TelemetryHour
from portal.kernel.clock import Interval
from portal.kernel.money import decimal_from

BusyKey = tuple[date | None, str, str, str, str]
"""Day, site, cluster, pool, type; empty what is not asked for."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Of ``observed_ms`` (card-milliseconds for which samples say how busy the card was) so many were busy."""

    busy_ms: int
    observed_ms: int

    def __add__(self, other: Busy) -> Busy:
        return Busy(self.busy_ms + other.busy_ms, self.observed_ms + other.observed_ms)

    @property
    def percent(self) -> Decimal:
        """Busy, of what was observed, to a tenth."""
        return decimal_from(Fraction(100 * self.busy_ms, self.observed_ms), 1)


def busy_by(
    window: Interval, by: Collection[str], site_id: UUID | None = None, cluster_id: UUID | None = None,
    pool_id: UUID | None = None, gpu_type_id: UUID | None = None,
) -> dict[BusyKey, Busy]:  # fmt: skip
    """Busy and observed time of cards by what ``by`` names; none where nothing was observed. At most two queries."""
    rows = TelemetryHour.objects.filter(
        hour__gte=window.start, hour__lt=window.end, scope=TelemetryHour.Scope.CARD, observed_ms__gt=0
    )
    if cluster_id is not None:
        rows = rows.filter(cluster_id=cluster_id)
    if site_id is not None:
        rows = rows.filter(cluster__site_id=site_id)
    columns = ["cluster_id", "node"]
    if "day" in by:
        rows, columns = rows.annotate(day=TruncDate("hour", tzinfo=UTC)), [*columns, "day"]
    sums = list(rows.order_by().values(*columns).annotate(busy=Sum("busy_ms"), observed=Sum("observed_ms")))
    if not sums:
        return {}
    nodes = {
        (node.cluster_id, node.name): node
        for node in Node.objects.filter(cluster_id__in={row["cluster_id"] for row in sums})
        .select_related("cluster__site", "pool__gpu_type")
        .only("name", "cluster__slug", "cluster__site__slug", "pool__name", "pool__gpu_type__slug")
        .order_by("first_seen_at")
    }
    found: dict[BusyKey, Busy] = {}
    for row in sums:
        node = nodes.get((row["cluster_id"], row["node"]))
        if node is None:
            continue
        pool = node.pool
        gpu_type = pool.gpu_type if pool else None
        if (pool_id and (pool is None or pool.pk != pool_id)) or (
            gpu_type_id and (gpu_type is None or gpu_type.pk != gpu_type_id)
        ):
            continue
        key = (
            row.get("day"),
            node.cluster.site.slug if "site" in by else "",
            node.cluster.slug if "cluster" in by else "",
            pool.name if pool and "pool" in by else "",
            gpu_type.slug if gpu_type and "gpu_type" in by else "",
        )
        one = Busy(row["busy"] or 0, row["observed"])
        found[key] = found[key] + one if key in found else one
    return found
