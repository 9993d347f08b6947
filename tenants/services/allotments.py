"""The parts of a quota on clusters' namespaces. All figures are millionths of a card.

A ResourceQuota holds within one namespace of one cluster, so the same limit written into three clusters would let
three times as much through. Therefore each namespace gets a part, and Σ parts ≤ limit is kept here, under the lock
of the quota's row, before anything is written to a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.db.models import F, Sum

from infra.models import Cluster, Reservation
from portal.kernel import workqueue
from tenants.models import GPUQuota, QuotaAllotment, TenantNamespace
from tenants.selectors.quota import observed_unreserved

CARD = 1_000_000
"""Millionths in a card."""


@dataclass
class QuotaExceeded(Exception):
    """A tenant asked for more than is left of its quota on a GPU type."""

    gpu_type: str
    limit: int
    admitted: int
    asked: int

    def __str__(self) -> str:
        return (
            f"Quota of {self.gpu_type} is full: {cards(self.admitted)} of {cards(self.limit)} cards are taken, "
            f"{cards(self.asked)} more asked for, {cards(max(0, self.limit - self.admitted))} left."
        )


def cards(millionths: int) -> str:
    """Millionths of a card as people write cards: ``8``, ``0.25``, ``1.142857``."""
    whole, part = divmod(millionths, CARD)
    return f"{whole}.{part:06d}".rstrip("0").rstrip(".")


def quota_locked(tenant_id: UUID, gpu_type_ids: Iterable[UUID]) -> dict[UUID, GPUQuota]:
    """Lock the tenant's quota rows of these types, in the order of their ids, until the transaction ends.

    A type without a row is absent from the answer: no quota is a quota of zero.
    """
    rows = (
        GPUQuota.objects.filter(tenant_id=tenant_id, gpu_type_id__in=list(gpu_type_ids))
        .select_related("gpu_type")
        .order_by("id")
        .select_for_update(of=("self",))
    )
    return {row.gpu_type_id: row for row in rows}


def types_on(tenant_id: UUID, cluster_id: UUID) -> set[UUID]:
    """The GPU types of which the tenant has a part on the cluster: what :func:`allotments_settle` locks."""
    parts = QuotaAllotment.objects.filter(tenant_id=tenant_id, cluster_id=cluster_id)
    return set(parts.values_list("quota__gpu_type_id", flat=True))


def admitted(tenant_id: UUID, gpu_type_id: UUID) -> int:
    """What counts against the quota now: live reservations, and GPU pods in the tenant's namespaces that have none."""
    reserved = Reservation.objects.filter(
        tenant_id=tenant_id, gpu_type_id=gpu_type_id, released_at__isnull=True
    ).aggregate(total=Sum("share"))["total"]
    return (reserved or 0) + observed_unreserved(tenant_id).total(gpu_type_id)


def allotment_require(*, quota: GPUQuota, cluster: Cluster, namespace: str, needed: int) -> QuotaAllotment:
    """Make the part of ``quota`` on ``namespace`` at least ``needed``, if the limit allows it.

    Call it inside a transaction that holds the quota's row lock (:func:`quota_locked`). The namespace's generation is
    bumped, so that its ResourceQuota is written before pods are made: also where the part is large enough already,
    because the ResourceQuota counts by resource, and another way of sharing is another resource.

    Raises:
        QuotaExceeded: the parts of all namespaces together would be more than the limit.
    """
    allotment, _ = QuotaAllotment.objects.get_or_create(
        tenant_id=quota.tenant_id, quota=quota, cluster=cluster, namespace=namespace
    )
    if needed <= allotment.target:
        _bundle_changed(quota.tenant_id, cluster.pk)
        return allotment
    elsewhere = (
        QuotaAllotment.objects.filter(tenant_id=quota.tenant_id, quota=quota)
        .exclude(pk=allotment.pk)
        .aggregate(total=Sum("amount"))["total"]
        or 0
    )
    if elsewhere + max(needed, allotment.amount) > quota.limit:
        raise QuotaExceeded(
            gpu_type=quota.gpu_type.slug,
            limit=quota.limit,
            admitted=elsewhere + allotment.target,
            asked=needed - allotment.target,
        )
    allotment.amount = max(allotment.amount, needed)
    allotment.target = needed
    allotment.save(update_fields=["amount", "target"])
    _bundle_changed(quota.tenant_id, cluster.pk)
    return allotment


def allotments_settle(*, tenant_id: UUID, cluster_id: UUID) -> None:
    """Lower the targets of a tenant's parts on a cluster to what is reserved or seen there.

    Call it after reservations were released or pods have ended, inside a transaction. ``amount`` follows in
    :func:`allotments_confirmed`, once the cluster's ResourceQuota says the lower figure.
    """
    parts = list(
        QuotaAllotment.objects.filter(tenant_id=tenant_id, cluster_id=cluster_id)
        .select_related("quota")
        .order_by("quota_id", "id")
    )
    quota_locked(tenant_id, types_on(tenant_id, cluster_id))
    observed = observed_unreserved(tenant_id)
    changed = False
    for part in parts:
        part.refresh_from_db()
        reserved = (
            Reservation.objects.filter(
                tenant_id=tenant_id,
                cluster_id=cluster_id,
                namespace=part.namespace,
                gpu_type_id=part.quota.gpu_type_id,
                released_at__isnull=True,
            ).aggregate(total=Sum("share"))["total"]
            or 0
        )
        held = reserved + observed.on(cluster_id, part.namespace, part.quota.gpu_type_id)
        if held < part.target:
            part.target = held
            part.save(update_fields=["target"])
            changed = True
    if changed:
        _bundle_changed(tenant_id, cluster_id)


def allotments_confirmed(*, tenant_id: UUID, cluster_id: UUID, namespace: str, targets: dict[UUID, int]) -> bool:
    """The cluster's ResourceQuota now says ``targets`` (allotment id → millionths): let the amounts follow down.

    Locks quota rows: call it before anything that comes after them in the order of locks (the namespace's row).

    Returns:
        Whether any amount shrank (then deployments that wait for quota may go on).
    """
    parts = QuotaAllotment.objects.filter(tenant_id=tenant_id, cluster_id=cluster_id, namespace=namespace)
    quota_locked(tenant_id, list(parts.values_list("quota__gpu_type_id", flat=True)))
    shrank = False
    for part in parts.order_by("id"):
        # A target that was raised again meanwhile has raised the amount with it: only what was confirmed falls.
        floor = max(part.target, targets.get(part.pk, part.amount))
        if floor < part.amount:
            part.amount = floor
            part.save(update_fields=["amount"])
            shrank = True
    return shrank


def _bundle_changed(tenant_id: UUID, cluster_id: UUID) -> None:
    rows = TenantNamespace.objects.filter(tenant_id=tenant_id, cluster_id=cluster_id)
    rows.update(generation=F("generation") + 1)
    workqueue.mark_many(workqueue.Mark("namespace", row.pk, cluster_id, tenant_id) for row in rows)
