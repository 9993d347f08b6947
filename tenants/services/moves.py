"""Cards handed over to namespaces, and moved between them: shrink, confirm, grow.

The source's part is lowered at once and its cluster told; until that has confirmed the lower figure, what leaves
counts as the source's. Then the goal's part grows, in the same transaction (``allotments_confirmed``). So the parts
together are never more than the limit, whichever cluster is slow.
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.models import Cluster, GPUType
from portal.kernel import audit
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow
from portal.kernel.problems import Conflict, Invalid
from portal.kernel.scoping import system_scope
from tenants.models import AllotmentMove, GPUQuota, QuotaAllotment, Tenant, TenantNamespace
from tenants.permissions import Perm, require
from tenants.services.allotments import (
    CARD,
    QuotaExceeded,
    allotment_fix,
    allotment_leave,
    cards,
    quota_locked,
    require_type_there,
)


@dataclass(frozen=True)
class Spot:
    """A namespace of a cluster: one end of a move."""

    cluster: Cluster
    namespace: str

    def __str__(self) -> str:
        return f"namespace {self.namespace} on {self.cluster.slug}"


def allotment_move(
    *,
    tenant: Tenant,
    gpu_type: GPUType,
    source: Spot | None,
    goal: Spot | None,
    amount: int,
    actor: Actor,
) -> AllotmentMove:
    """Move ``amount`` (millionths, whole cards) of the tenant's quota on ``gpu_type`` from one namespace to another.

    No ``source``: out of what is free of the quota. No ``goal``: back to it. Moved can be what was handed over;
    what deployments hold follows them.

    Raises:
        Invalid: no whole cards, no such namespace, or both ends the same.
        Conflict: the source has less than that to give, or the quota has less left; with the numbers.
    """
    require(actor, Perm.QUOTA_REQUEST, tenant)
    _check_amount(amount)
    if source == goal:
        raise Invalid.field("/goal", "Name two ends that differ; leave one out for what is free of the quota.")
    with system_scope("allotment_move"):
        quota = quota_locked(tenant.pk, [gpu_type.pk]).get(gpu_type.pk)
        if quota is None:
            raise Conflict(f"Tenant {tenant.slug} has no quota on {gpu_type.slug}. Ask for one first.")
        for pointer, spot in (("/source", source), ("/goal", goal)):
            _check_spot(tenant, spot, pointer)
        if goal is not None:
            require_type_there(goal.cluster, gpu_type, "/goal")
        move = _start(quota, source, goal, amount, actor)
        audit.record(
            "allotment_move",
            actor=actor,
            tenant_id=tenant.pk,
            object_kind="quota",
            object_id=quota.pk,
            object_name=gpu_type.slug,
            after={
                "from": "" if source is None else str(source),
                "to": "" if goal is None else str(goal),
                "cards": cards(amount),
                "state": move.state,
            },
        )
        return move


def _start(quota: GPUQuota, source: Spot | None, goal: Spot | None, amount: int, actor: Actor) -> AllotmentMove:
    if source is None:
        assert goal is not None
        part = _part(quota, goal)
        try:
            part = allotment_fix(
                quota=quota, cluster=goal.cluster, namespace=goal.namespace, amount=part.handed + amount
            )
        except QuotaExceeded as error:
            raise Conflict(str(error), code="QuotaExceeded") from error
        return AllotmentMove.objects.create(
            tenant_id=quota.tenant_id,
            quota=quota,
            goal=part,
            amount=amount,
            state=AllotmentMove.State.DONE,
            asked_by=actor.label,
            ended_at=utcnow(),
        )
    part = _part(quota, source)
    spare = part.handed - part.leaving
    if amount > spare:
        raise Conflict(
            f"{cards(spare)} cards of {quota.gpu_type.slug} were handed over to {source} and can be moved; "
            f"{cards(amount)} were asked for. What deployments hold there goes with them: scale or delete those, or "
            "take the cards from what is free of the quota."
        )
    return allotment_leave(
        part=part, goal=None if goal is None else _part(quota, goal), amount=amount, asked_by=actor.label
    )


def _part(quota: GPUQuota, spot: Spot) -> QuotaAllotment:
    part, _ = QuotaAllotment.objects.get_or_create(
        tenant_id=quota.tenant_id, quota=quota, cluster=spot.cluster, namespace=spot.namespace
    )
    return part


def _check_amount(amount: int) -> None:
    if amount <= 0 or amount % CARD:
        raise Invalid.field("/amount", "Give a whole number of cards, at least 1: namespaces are given whole cards.")


def _check_spot(tenant: Tenant, spot: Spot | None, pointer: str) -> None:
    if spot is None:
        return
    rows = TenantNamespace.objects.filter(
        tenant=tenant, cluster=spot.cluster, name=spot.namespace, deleting_at__isnull=True
    )
    if not rows.exists():
        raise Invalid.field(pointer, f"Tenant {tenant.slug} has no {spot}.")
    if pointer == "/goal" and (spot.cluster.mode != Cluster.Mode.MANAGE or spot.cluster.abandoned_at is not None):
        raise Invalid.field(pointer, f"Cluster {spot.cluster.slug} is not managed: nothing is given there.")
