"""What was promised to all tenants together, beside the cards that there are. Millionths of a card."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Sum

from infra.models import GPUType, Node, NodePool, Reservation
from infra.placement import Explanation
from infra.shares import CARD
from tenants.models import GPUQuota, QuotaAllotment, Tenant
from tenants.selectors.quota import Observed, QuotaRoom, Taken, unreserved_pods


@dataclass(frozen=True)
class TenantShare:
    """One tenant's quota on a type."""

    tenant: Tenant
    guaranteed: int
    limit: int
    admitted: int

    @property
    def borrowed(self) -> int:
        """What it holds beyond its guarantee."""
        return max(0, self.admitted - self.guaranteed)

    @property
    def unused_guarantee(self) -> int:
        """What it was promised and does not hold."""
        return max(0, self.guaranteed - self.admitted)


@dataclass(frozen=True)
class CapacityLine:
    """A GPU type: ``cards`` that there are and ``unavailable`` ones of them (whole cards), and the tenants' quotas."""

    gpu_type: GPUType
    cards: int
    unavailable: int
    tenants: tuple[TenantShare, ...]

    @property
    def in_service(self) -> int:
        """Cards that can be handed out, in millionths."""
        return (self.cards - self.unavailable) * CARD

    @property
    def guaranteed(self) -> int:
        """Σ guarantees."""
        return sum(share.guaranteed for share in self.tenants)

    @property
    def limit(self) -> int:
        """Σ limits; more than the cards is no fault: limits are what one may borrow."""
        return sum(share.limit for share in self.tenants)

    @property
    def admitted(self) -> int:
        """Σ admitted."""
        return sum(share.admitted for share in self.tenants)

    @property
    def borrowed(self) -> int:
        """Σ borrowed."""
        return sum(share.borrowed for share in self.tenants)

    @property
    def promised_too_much(self) -> int:
        """By how much the guarantees exceed the cards in service; 0: they can all be kept."""
        return max(0, self.guaranteed - self.in_service)

    @property
    def borrowers(self) -> tuple[TenantShare, ...]:
        """Who holds more than the guarantee, the most first."""
        return tuple(sorted((one for one in self.tenants if one.borrowed), key=lambda one: -one.borrowed))


def quotas_taken() -> dict[UUID, Taken]:
    """:func:`tenants.selectors.quota.quota_taken` of every tenant that holds anything. Call it in a system scope."""
    found: dict[UUID, Taken] = defaultdict(lambda: Taken({}, Observed(), {}, {}))
    live = Reservation.objects.filter(released_at__isnull=True)
    sums = live.values_list("tenant_id", "cluster_id", "namespace", "gpu_type_id").annotate(total=Sum("share"))
    for tenant_id, cluster_id, namespace, type_id, total in sums:
        found[tenant_id].reserved[cluster_id, namespace, type_id] = total
    for part in QuotaAllotment.objects.filter(fixed=True).select_related("quota"):
        found[part.tenant_id].handed[part.cluster_id, part.namespace, part.quota.gpu_type_id] = part.handed
    for pod in unreserved_pods():
        found[pod.tenant_id].seen.shares[pod.cluster_id, pod.namespace, pod.gpu_type_id] += pod.share
    return found


def capacity_lines() -> list[CapacityLine]:
    """Every GPU type that there are cards of or a quota on, by slug; with who holds cards without a quota, which is one
    of zero (pods in namespaces that were given to a tenant). Call it in a system scope; nine queries."""
    counted = {
        type_id: (cards or 0, unavailable or 0)
        for type_id, cards, unavailable in Node.objects.filter(
            gone_at__isnull=True, cluster__abandoned_at__isnull=True, pool__gpu_type__isnull=False
        )
        .values_list("pool__gpu_type")
        .annotate(cards=Sum("cards"), unavailable=Sum("unavailable_cards"))
    }
    taken = quotas_taken()
    quotas = {(quota.tenant_id, quota.gpu_type_id): quota for quota in GPUQuota.objects.all()}
    held = {(tenant_id, type_id) for tenant_id, one in taken.items() for type_id in one.types}
    tenants = Tenant.objects.in_bulk({tenant_id for tenant_id, _ in (*quotas, *held)})
    shares: dict[UUID, list[TenantShare]] = defaultdict(list)
    for tenant_id, type_id in {*quotas, *held}:
        quota = quotas.get((tenant_id, type_id))
        guaranteed, limit = (quota.guaranteed, quota.limit) if quota else (0, 0)
        if tenant_id in tenants:
            admitted = taken[tenant_id].total(type_id)
            shares[type_id].append(TenantShare(tenants[tenant_id], guaranteed, limit, admitted))
    return [
        CapacityLine(
            gpu_type,
            *counted.get(gpu_type.pk, (0, 0)),
            tuple(sorted(shares[gpu_type.pk], key=lambda one: one.tenant.slug)),
        )
        for gpu_type in GPUType.objects.filter(pk__in={*counted, *shares}).order_by("slug")
    ]


def borrowed_by_others(gpu_type_id: UUID, tenant_id: UUID) -> int:
    """What all other tenants hold of a type beyond their guarantees. Call it in a system scope."""
    taken = quotas_taken()
    guarantees = dict(GPUQuota.objects.filter(gpu_type_id=gpu_type_id).values_list("tenant_id", "guaranteed"))
    return sum(
        max(0, held.total(gpu_type_id) - guarantees.get(owner, 0))
        for owner, held in taken.items()
        if owner != tenant_id
    )


@dataclass(frozen=True)
class Lent:
    """Of one type: ``promised`` to a tenant and not held by it, ``lent`` to others beyond their guarantees."""

    gpu_type: str
    promised: int
    lent: int


def lent_to_others(tenant: Tenant, near: Iterable[Explanation], rooms: Mapping[str, QuotaRoom]) -> list[Lent]:
    """For who finds no free card though some are guaranteed to them; empty where nothing is lent. It names no other
    tenant. Call it in a system scope.

    Args:
        near: why there is no place; their pools say which types it is about.
        rooms: the tenant's quotas by the slug of the type.
    """
    pools = {(one.cluster, one.pool) for one in near if one.pool}
    rows = NodePool.objects.filter(
        cluster__slug__in={cluster for cluster, _ in pools}, name__in={pool for _, pool in pools}
    ).values_list("cluster__slug", "name", "gpu_type__slug", "gpu_type_id")
    found = []
    for slug, type_id in sorted({(slug, pk) for cluster, name, slug, pk in rows if (cluster, name) in pools and slug}):
        promised = rooms[slug].promised if slug in rooms else 0
        lent = borrowed_by_others(type_id, tenant.pk) if promised else 0
        if lent:
            found.append(Lent(slug, promised, lent))
    return found
