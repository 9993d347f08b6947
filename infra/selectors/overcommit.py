"""Which pools hand out more memory of their cards than there is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from infra.models import CapacitySpan, NodePool


@dataclass(frozen=True, slots=True)
class PoolOvercommit:
    """A pool of a known GPU type. ``percents``: what its nodes in service hand out of each card's memory, percent;
    what was declared where it has none, or 100."""

    pool_id: UUID
    cluster: str
    name: str
    gpu_type: str
    sharing: str
    percents: tuple[int, ...]

    @property
    def percent(self) -> int:
        """The most that a node of it hands out."""
        return max(self.percents)

    @property
    def both(self) -> set[bool]:
        """Whether it hands out too much: true, false, or both where its nodes differ."""
        return {percent > 100 for percent in self.percents}


def pools_overcommitted(pools: QuerySet[NodePool]) -> Iterator[PoolOvercommit]:
    """Each of these pools whose GPU type is known. Two queries."""
    rows = list(pools.filter(gpu_type__isnull=False).select_related("gpu_type", "cluster").order_by("pk"))
    seen = _percents([row.pk for row in rows])
    for row in rows:
        assert row.gpu_type is not None
        percents = tuple(sorted(seen.get(row.pk, ()))) or (row.overcommit_percent or 100,)
        yield PoolOvercommit(row.pk, row.cluster.slug, row.name, row.gpu_type.slug, row.sharing, percents)


def _percents(pool_ids: Collection[UUID]) -> dict[UUID, set[int]]:
    found: dict[UUID, set[int]] = defaultdict(set)
    spans = CapacitySpan.objects.filter(
        ended_at__isnull=True, node__gone_at__isnull=True, node__pool__in=list(pool_ids)
    ).values_list("node__pool_id", "overcommit_percent")
    for pool_id, percent in spans.distinct():
        found[pool_id].add(percent)
    return found
