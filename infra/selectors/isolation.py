"""What keeps tenants apart on a cluster, read."""

from __future__ import annotations

from uuid import UUID

from infra.isolation import PieceState, lacking, pieces_of
from infra.models import Cluster, NodePool
from infra.models.hardware import SharingMode


def has_hami(cluster_id: UUID) -> bool:
    """Whether a pool of the cluster hands out HAMi shares."""
    return NodePool.objects.filter(cluster_id=cluster_id, sharing=SharingMode.HAMI).exists()


def isolation_pieces(cluster: Cluster) -> list[PieceState]:
    """Each piece of a cluster."""
    return pieces_of(cluster.isolation, cluster.isolation_said, hami=has_hami(cluster.pk))


def cluster_lacks(cluster: Cluster) -> tuple[str, ...]:
    """The pieces, by name, for want of which no tenant's pod may come to a managed cluster; empty: none."""
    return lacking(cluster.isolation, cluster.isolation_said, hami=has_hami(cluster.pk))
