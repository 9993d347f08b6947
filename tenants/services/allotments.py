"""The parts of a quota on clusters' namespaces. All figures are millionths of a card.

A ResourceQuota holds within one namespace of one cluster, so the same limit written into three clusters would let
three times as much through. Therefore each namespace gets a part, and Σ parts ≤ limit is kept here, under the lock
of the quota's row, before anything is written to a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.db import connection
from django.db.models import Sum

from infra.models import Cluster, GPUType, NodePool
from portal.kernel import workqueue
from portal.kernel.clock import utcnow
from portal.kernel.problems import Invalid
from tenants.models import AllotmentMove, GPUQuota, QuotaAllotment, TenantNamespace
from tenants.selectors.quota import quota_taken

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
    """What counts against the quota now: live reservations, GPU pods in the tenant's namespaces that have none, and
    parts that were handed over (used or not)."""
    return quota_taken(tenant_id).total(gpu_type_id)


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
    elsewhere = _elsewhere(quota, allotment)
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


def require_type_there(cluster: Cluster, gpu_type: GPUType, pointer: str) -> None:
    """Cards are handed over only where there are such cards: elsewhere they would count and be of no use to anybody.
    A cluster of whose cards nothing is known yet may have any.

    Raises:
        Invalid: the cluster has others than these; they are named.
    """
    there = set(
        NodePool.objects.filter(cluster=cluster, gpu_type__isnull=False).values_list("gpu_type__slug", flat=True)
    )
    if there and gpu_type.slug not in there:
        raise Invalid.field(
            pointer,
            f"Cluster {cluster.slug} has no {gpu_type.slug}, only {', '.join(sorted(there))}. Choose another one.",
        )


def allotment_fix(
    *, quota: GPUQuota, cluster: Cluster, namespace: str, amount: int, confirmed: QuotaAllotment | None = None
) -> QuotaAllotment:
    """Hand ``amount`` of ``quota`` over to ``namespace``: from now on it counts as admitted, used or not.

    Call it inside a transaction that holds the quota's row lock (:func:`quota_locked`). Growing counts at once;
    what is given back (a smaller amount, or zero) can be had elsewhere only once the cluster has confirmed the lower
    figure (:func:`allotments_confirmed`). What deployments hold in the namespace lies beside it.

    Args:
        confirmed: a part whose cluster has just said that no more than its amount is used there: pods beyond that have
            ended, though the watch may not have told of it yet.

    Raises:
        QuotaExceeded: with it, more than the limit would be handed out, or admitted.
    """
    part, _ = QuotaAllotment.objects.get_or_create(
        tenant_id=quota.tenant_id, quota=quota, cluster=cluster, namespace=namespace
    )
    key = (cluster.pk, namespace, quota.gpu_type_id)
    taken = quota_taken(quota.tenant_id)
    if confirmed is not None:
        taken.confirm((confirmed.cluster_id, confirmed.namespace, quota.gpu_type_id), confirmed.amount)
    target = taken.reserved.get(key, 0) + max(0, amount - part.leaving)
    if amount > part.handed:
        handed_out = _elsewhere(quota, part) + max(target, part.amount)
        before = taken.total(quota.gpu_type_id)
        taken.handed[key] = amount
        if max(handed_out, taken.total(quota.gpu_type_id)) > quota.limit:
            raise QuotaExceeded(
                gpu_type=quota.gpu_type.slug, limit=quota.limit, admitted=before, asked=amount - part.handed
            )
    part.handed, part.fixed, part.leaving = amount, amount > 0, min(part.leaving, amount)
    part.target = target
    part.amount = max(part.amount, target)
    part.save(update_fields=["amount", "target", "fixed", "handed", "leaving"])
    _bundle_changed(quota.tenant_id, cluster.pk)
    return part


def allotment_leave(*, part: QuotaAllotment, goal: QuotaAllotment | None, amount: int, asked_by: str) -> AllotmentMove:
    """Let ``amount`` of what was handed over to ``part`` go to ``goal`` (or back to the quota).

    It counts as the part's until its cluster has confirmed the lower figure; :func:`allotments_confirmed` then lets
    the goal's part grow. Call it inside a transaction that holds the quota's row lock.

    Raises:
        ValueError: the part has less that is not leaving already.
    """
    part.refresh_from_db()
    if amount > part.handed - part.leaving:
        raise ValueError("more than the part has left")
    part.leaving += amount
    part.target = max(0, part.target - amount)
    part.save(update_fields=["leaving", "target"])
    _bundle_changed(part.tenant_id, part.cluster_id)
    return AllotmentMove.objects.create(
        tenant_id=part.tenant_id, quota_id=part.quota_id, source=part, goal=goal, amount=amount, asked_by=asked_by
    )


def allotments_settle(*, tenant_id: UUID, cluster_id: UUID) -> None:
    """Lower the targets of a tenant's parts on a cluster to what is reserved, handed over or seen there.

    Call it after reservations were released or pods have ended, inside a transaction. ``amount`` follows in
    :func:`allotments_confirmed`, once the cluster's ResourceQuota says the lower figure.
    """
    parts = list(
        QuotaAllotment.objects.filter(tenant_id=tenant_id, cluster_id=cluster_id)
        .select_related("quota")
        .order_by("quota_id", "id")
    )
    quota_locked(tenant_id, types_on(tenant_id, cluster_id))
    taken = quota_taken(tenant_id)
    changed = False
    for part in parts:
        part.refresh_from_db()
        wanted = taken.target(cluster_id, part.namespace, part.quota.gpu_type_id)
        if wanted < part.target:
            part.target = wanted
            part.save(update_fields=["target"])
            changed = True
    if changed:
        _bundle_changed(tenant_id, cluster_id)


def allotments_confirmed(*, tenant_id: UUID, cluster_id: UUID, namespace: str, targets: dict[UUID, int]) -> bool:
    """The cluster's ResourceQuota now says ``targets`` (allotment id → millionths), and no more than that is used
    there: let the amounts follow down, and what was to leave go where it was to go.

    Locks quota rows: call it before anything that comes after them in the order of locks (the namespace's row).

    Returns:
        Whether any amount shrank (then deployments that wait for quota may go on).
    """
    parts = QuotaAllotment.objects.filter(tenant_id=tenant_id, cluster_id=cluster_id, namespace=namespace)
    locked = quota_locked(tenant_id, list(parts.values_list("quota__gpu_type_id", flat=True)))
    quotas = {quota.pk: quota for quota in locked.values()}
    shrank = False
    # A part of another type that came meanwhile is confirmed by whoever looks next.
    for part in parts.filter(quota__in=quotas).order_by("id"):
        # A target that was raised again meanwhile has raised the amount with it: only what was confirmed falls.
        floor = max(part.target, targets.get(part.pk, part.amount))
        if floor < part.amount:
            part.amount = floor
            part.save(update_fields=["amount"])
            shrank = True
        if part.amount == part.target:
            _moves_finish(quotas[part.quota_id], part)
    return shrank


def allotments_given_up(*, tenant_id: UUID, cluster_id: UUID, namespace: str) -> bool:
    """Nothing of the namespace will be confirmed any more (its cluster was abandoned): what was handed over to it is
    free. What is still reserved there counts until it is released. Locks and answers as :func:`allotments_confirmed`.
    """
    # All of the tenant's: whoever hands something over there for the first time comes before this, or finds it gone.
    quota_locked(tenant_id, GPUQuota.objects.filter(tenant_id=tenant_id).values_list("gpu_type_id", flat=True))
    taken = quota_taken(tenant_id)
    parts = QuotaAllotment.objects.filter(tenant_id=tenant_id, cluster_id=cluster_id, namespace=namespace)
    for part in parts.select_related("quota").order_by("id"):
        part.target = min(part.target, taken.reserved.get((cluster_id, namespace, part.quota.gpu_type_id), 0))
        part.save(update_fields=["target"])
    shrank = allotments_confirmed(
        tenant_id=tenant_id, cluster_id=cluster_id, namespace=namespace, targets=dict(parts.values_list("pk", "target"))
    )
    return bool(parts.filter(fixed=True).update(handed=0, leaving=0, fixed=False)) or shrank


def _moves_finish(quota: GPUQuota, part: QuotaAllotment) -> None:
    """Give what has left ``part`` to where it goes, the oldest move first."""
    pending = AllotmentMove.objects.filter(
        tenant_id=part.tenant_id, source=part, state=AllotmentMove.State.PENDING
    ).order_by("id")
    if not pending:
        return
    # Namespaces come before work items in the order of locks, and this marks those of the goals.
    spaces = list(
        TenantNamespace.objects.filter(tenant_id=part.tenant_id)
        .select_related("cluster")
        .order_by("id")
        .select_for_update(of=("self",))
    )
    there = {(space.cluster_id, space.name) for space in spaces if space.takes_cards}
    for move in pending:
        amount = min(move.amount, part.leaving)
        part.handed -= amount
        part.leaving -= amount
        part.fixed = part.handed > 0
        part.save(update_fields=["handed", "leaving", "fixed"])
        move.state, move.ended_at = AllotmentMove.State.DONE, utcnow()
        if amount < move.amount:
            move.state = AllotmentMove.State.FAILED
            move.message = (
                f"Only {cards(amount)} of {cards(move.amount)} cards were left there: the part was given back."
            )
        if move.goal_id is not None and amount:
            goal = QuotaAllotment.objects.select_related("cluster").get(pk=move.goal_id)
            try:
                if (goal.cluster_id, goal.namespace) not in there:
                    raise _Gone(f"Namespace {goal.namespace} on {goal.cluster.slug} is gone, or takes nothing more.")
                allotment_fix(
                    quota=quota,
                    cluster=goal.cluster,
                    namespace=goal.namespace,
                    amount=goal.handed + amount,
                    confirmed=part,
                )
            except (QuotaExceeded, _Gone) as error:
                move.state = AllotmentMove.State.FAILED
                move.message = f"{error} What left {part.namespace} stays free."
        move.save(update_fields=["state", "message", "ended_at"])


class _Gone(Exception):
    """Where a move was to go nothing can be handed over any more."""


def _elsewhere(quota: GPUQuota, part: QuotaAllotment) -> int:
    """The other parts of the quota together."""
    others = QuotaAllotment.objects.filter(tenant_id=quota.tenant_id, quota=quota).exclude(pk=part.pk)
    return others.aggregate(total=Sum("amount"))["total"] or 0


def _bundle_changed(tenant_id: UUID, cluster_id: UUID) -> None:
    with connection.cursor() as cursor:
        # Locked in one order: quotas of two types are changed at once, each by who holds its own lock.
        cursor.execute(
            "UPDATE tenants_tenantnamespace SET generation = generation + 1 WHERE id IN (SELECT id FROM"
            " tenants_tenantnamespace WHERE tenant_id = %s AND cluster_id = %s ORDER BY id FOR UPDATE) RETURNING id",
            [tenant_id, cluster_id],
        )
        ids = [row[0] for row in cursor.fetchall()]
    workqueue.mark_many(workqueue.Mark("namespace", pk, cluster_id, tenant_id) for pk in ids)
