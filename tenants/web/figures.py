"""Figures of a team's pages as what a template draws: bars, replicas. Pure but for the rows it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from infra.placement import Placement
from tenants.models import ModelReplica
from tenants.placements import placement_from_json
from tenants.selectors.quota import QuotaLine
from tenants.services.allotments import cards

BAR = 1000
"""The width of a bar in its own units."""


@dataclass(frozen=True, slots=True)
class QuotaBar:
    """One GPU type's quota as a bar of parts. Positions and widths are in thousandths of the bar."""

    line: QuotaLine
    used: int
    reserved: int
    limit_at: int
    guaranteed_at: int | None

    @property
    def over_width(self) -> int:
        """What lies beyond the limit."""
        return BAR - self.limit_at

    @property
    def waiting(self) -> int:
        """Millionths that are reserved and not used by running pods."""
        return max(0, self.line.admitted - self.line.used)

    @property
    def label(self) -> str:
        """The bar in words."""
        line = self.line
        over = f", over by {cards(line.over_by)}" if line.over_by else f", {cards(line.left)} left"
        return (
            f"{line.quota.gpu_type.name}: {cards(line.used)} used, {cards(line.admitted)} admitted of "
            f"{cards(line.quota.limit)} cards{over}"
        )


def quota_bar(line: QuotaLine) -> QuotaBar:
    """The bar of a line; as long as the larger of limit and what is admitted."""
    whole = max(line.quota.limit, line.admitted, 1)
    used = min(line.used, line.admitted)
    guaranteed = line.quota.guaranteed
    return QuotaBar(
        line=line,
        used=used * BAR // whole,
        reserved=(line.admitted - used) * BAR // whole,
        limit_at=line.quota.limit * BAR // whole,
        guaranteed_at=guaranteed * BAR // whole if 0 < guaranteed < line.quota.limit else None,
    )


@dataclass(frozen=True, slots=True)
class ReplicaLine:
    """A replica in a table. ``millionths`` of cards in all."""

    index: int
    cluster: str
    pools: str
    nodes: str
    gpu_types: str
    millionths: int
    phase: str
    message: str
    ready_at: datetime | None
    generation: int


def replica_lines(replicas: Sequence[ModelReplica]) -> list[ReplicaLine]:
    """The rows of the table of replicas (their clusters loaded)."""
    return [_line(row, placement_from_json(row.placement)) for row in replicas]


def _line(row: ModelReplica, placement: Placement) -> ReplicaLine:
    return ReplicaLine(
        index=row.index,
        cluster=row.cluster.name or row.cluster.slug,
        pools=", ".join(sorted({engine.pool for engine in placement.engines})),
        nodes=", ".join(placement.nodes),
        gpu_types=", ".join(sorted(placement.millionths)),
        millionths=sum(placement.millionths.values()),
        phase="Deleting" if row.deleting_at else row.phase,
        message=row.message,
        ready_at=row.ready_at if row.ready else None,
        generation=row.generation,
    )
