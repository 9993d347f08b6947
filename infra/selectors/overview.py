"""Figures of the fleet's pages: what each pool has, and how much of it is free."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, Sum

from infra.models import Cluster, Node, NodePool, PodObservation, Reservation
from infra.selectors.held import held_by_pool
from infra.selectors.overcommit import pools_overcommitted
from infra.shares import CARD


@dataclass(frozen=True)
class PoolFigures:
    """A pool in whole cards; what is promised of them, and what pods that are there hold, whoever made them (both in
    millionths of a card)."""

    pool: NodePool
    nodes: int
    cards: int
    unavailable: int
    promised: int
    overcommit_percent: int = 100
    held: int = 0

    @property
    def overcommit(self) -> str:
        """How many times a card's memory it hands out, for people: ``1.8``; empty where no more than there is."""
        return f"{self.overcommit_percent / 100:g}" if self.overcommit_percent > 100 else ""

    @property
    def promised_percent(self) -> int:
        """Of the cards that are available; 0 for an empty pool, at most 100."""
        usable = (self.cards - self.unavailable) * CARD
        return min(100, round(100 * self.promised / usable)) if usable > 0 else 0


def pool_figures(clusters: Sequence[Cluster]) -> list[PoolFigures]:
    """Every pool of these clusters that has, or was declared to have, nodes. Eight queries."""
    ids = [cluster.pk for cluster in clusters]
    counted = {
        row["pool"]: row
        for row in Node.objects.filter(cluster_id__in=ids, gone_at__isnull=True)
        .values("pool")
        .annotate(nodes=Count("pk"), cards=Sum("cards"), unavailable=Sum("unavailable_cards"))
    }
    promised = dict(
        Reservation.objects.filter(cluster_id__in=ids, released_at__isnull=True)
        .values_list("pool")
        .annotate(total=Sum("share"))
    )
    pools = NodePool.objects.filter(cluster_id__in=ids).select_related("cluster__site", "gpu_type")
    percents = {one.pool_id: one.percent for one in pools_overcommitted(pools)}
    held = held_by_pool(ids)
    found = []
    for pool in pools.order_by("cluster__slug", "name"):
        row: Mapping[str, Any] = counted.get(pool.pk, {})
        figures = PoolFigures(
            pool=pool,
            nodes=row.get("nodes") or 0,
            cards=row.get("cards") or 0,
            unavailable=row.get("unavailable") or 0,
            promised=promised.get(pool.pk) or 0,
            overcommit_percent=percents.get(pool.pk, 100),
            held=held.get(pool.pk, 0),
        )
        if figures.nodes or pool.declared_nodes is not None:
            found.append(figures)
    return found


def live_pods_by_cluster() -> dict[UUID, int]:
    """GPU pods that are there, by cluster."""
    live = Q(ended_at__isnull=True, gone_at__isnull=True)
    rows = PodObservation.objects.filter(live).values("cluster").annotate(pods=Count("pk"))
    return defaultdict(int, {row["cluster"]: row["pods"] for row in rows})
