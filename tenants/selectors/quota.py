"""What tenants hold beside their reservations, and the figures of a quota page. Millionths of a card everywhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import Exists, OuterRef, Sum

from infra.holdings import Hold, load_holds
from infra.models import Device, GPUType, NamespaceClaim, Node, PodObservation, Reservation
from infra.shares import CARD, floor_millionths, hami_share, mig_share
from tenants.models import GPUQuota, QuotaAllotment, Tenant


@dataclass
class Observed:
    """Shares of pods that hold cards without a reservation, by (cluster, namespace, GPU type)."""

    shares: dict[tuple[UUID, str, UUID], int] = field(default_factory=lambda: defaultdict(int))

    def total(self, gpu_type_id: UUID) -> int:
        """On all clusters together."""
        return sum(share for (_, _, type_id), share in self.shares.items() if type_id == gpu_type_id)

    def on(self, cluster_id: UUID, namespace: str, gpu_type_id: UUID) -> int:
        """In one namespace of one cluster."""
        return self.shares.get((cluster_id, namespace, gpu_type_id), 0)


def hold_share(hold: Hold, gpu_type: GPUType, registered: Collection[str]) -> int:
    """What a hold counts against a quota: whole cards, slices ÷ those of the card, or the larger of memory and cores.

    A share of a card of which it is not known how much counts as the whole card; so does one of a card that the
    node's register, whose UUIDs are ``registered``, never had.
    """
    share = (hold.cards + hold.unpinned) * CARD
    if hold.slices and gpu_type.compute_slices:
        one = mig_share(hold.profile, gpu_type.compute_slices)
        share += hold.slices * floor_millionths(one)
    if hold.uuid and hold.uuid not in registered:
        share += CARD
    elif hold.uuid:
        share += floor_millionths(hami_share(hold.memory_mib, hold.cores, gpu_type.memory_mib))
    return share


def observed_unreserved(tenant_id: UUID) -> Observed:
    """Live GPU pods in the tenant's namespaces that no reservation stands for: made by hand, or by another tool.

    What was last seen on a cluster that was given up counts no longer.
    """
    claimed = NamespaceClaim.objects.filter(
        cluster=OuterRef("cluster"),
        namespace=OuterRef("namespace"),
        tenant_id=tenant_id,
        valid_to__isnull=True,
    )
    live = PodObservation.objects.filter(
        Exists(claimed),
        cluster__abandoned_at__isnull=True,
        replica_id__isnull=True,
        ended_at__isnull=True,
        gone_at__isnull=True,
    ).exclude(node_name="")
    observed = Observed()
    pods = list(live.values_list("cluster_id", "namespace", "node_name", "holds"))
    if not pods:
        return observed
    types = {
        (node.cluster_id, node.name): node.pool.gpu_type
        for node in Node.objects.filter(
            cluster_id__in={pod[0] for pod in pods}, name__in={pod[2] for pod in pods}, gone_at__isnull=True
        ).select_related("pool__gpu_type")
        if node.pool is not None and node.pool.gpu_type is not None
    }
    registered: dict[tuple[UUID, str], set[str]] = defaultdict(set)
    cards = Device.objects.filter(cluster_id__in={pod[0] for pod in pods}, node__name__in={pod[2] for pod in pods})
    for cluster_id, node_name, uuid in cards.values_list("cluster_id", "node__name", "uuid"):
        registered[cluster_id, node_name].add(uuid)
    for cluster_id, namespace, node_name, holds in pods:
        gpu_type = types.get((cluster_id, node_name))
        if gpu_type is not None:
            for hold in load_holds(holds):
                observed.shares[cluster_id, namespace, gpu_type.pk] += hold_share(
                    hold, gpu_type, registered[cluster_id, node_name]
                )
    return observed


@dataclass(frozen=True)
class QuotaLine:
    """One row of a quota page. All figures in millionths of a card; ``borrowed`` is what goes beyond guaranteed."""

    quota: GPUQuota
    admitted: int
    used: int
    allotments: tuple[QuotaAllotment, ...]

    @property
    def left(self) -> int:
        """What may still be admitted; never negative."""
        return max(0, self.quota.limit - self.admitted)

    @property
    def over_by(self) -> int:
        """By how much the tenant holds more than its limit (after the limit was lowered)."""
        return max(0, self.admitted - self.quota.limit)

    @property
    def borrowed(self) -> int:
        """What is admitted beyond the guarantee."""
        return max(0, self.admitted - self.quota.guaranteed)


def quota_lines(tenant: Tenant) -> list[QuotaLine]:
    """The tenant's quotas by GPU type: reserved or seen (admitted), and in use by running pods.

    Call it inside a scope of the tenant.
    """
    quotas = list(GPUQuota.objects.filter(tenant=tenant).select_related("gpu_type").order_by("gpu_type__slug"))
    if not quotas:
        return []
    live = Reservation.objects.filter(tenant_id=tenant.pk, released_at__isnull=True)
    reserved = dict(live.values_list("gpu_type_id").annotate(total=Sum("share")))
    running = PodObservation.objects.filter(
        replica_id=OuterRef("replica_id"),
        started_at__isnull=False,
        ended_at__isnull=True,
        gone_at__isnull=True,
    )
    in_use = dict(live.filter(Exists(running)).values_list("gpu_type_id").annotate(total=Sum("share")))
    observed = observed_unreserved(tenant.pk)
    parts: dict[UUID, list[QuotaAllotment]] = defaultdict(list)
    for part in QuotaAllotment.objects.filter(tenant=tenant).select_related("cluster").order_by("cluster__slug"):
        parts[part.quota_id].append(part)
    return [
        QuotaLine(
            quota=quota,
            admitted=(reserved.get(quota.gpu_type_id) or 0) + observed.total(quota.gpu_type_id),
            used=(in_use.get(quota.gpu_type_id) or 0) + observed.total(quota.gpu_type_id),
            allotments=tuple(parts[quota.pk]),
        )
        for quota in quotas
    ]
