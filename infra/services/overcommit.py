"""How much memory the HAMi pools hand out of each card: as their registers say, or as somebody declared."""

from __future__ import annotations

from dataclasses import replace

from django.db import transaction

from infra.models import CapacitySpan, Device, GPUType, Node, NodePool
from infra.models.hardware import SharingMode
from infra.permissions import require_platform_admin
from infra.services.capacity import capacity_set, state_of
from infra.services.changes import lock_changes
from infra.shares import overcommit_percent, physical_mib
from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow
from portal.kernel.problems import Conflict, Invalid

LARGEST = 1000
"""Ten times a card's memory: beyond that a figure is a typing error."""


def node_overcommit(node: Node, gpu_type: GPUType | None, sharing: str) -> int:
    """Percent of its cards' memory that a node hands out; 100 where it shares none.

    What is declared for its pool wins. Else the card that hands out most counts, against its physical memory, or that
    of its type where only the register tells of the card.
    """
    if sharing != SharingMode.HAMI:
        return 100
    if node.pool is not None and node.pool.overcommit_percent is not None:
        return node.pool.overcommit_percent
    known = gpu_type.memory_mib if gpu_type is not None else 0
    cards = Device.objects.filter(node=node, gone_at__isnull=True, register_memory_mib__isnull=False)
    return max(
        (
            overcommit_percent(register or 0, physical_mib(memory, register, known))
            for register, memory in cards.values_list("register_memory_mib", "memory_mib")
        ),
        default=100,
    )


def pool_overcommit_set(*, pool: NodePool, percent: int | None, actor: Actor) -> NodePool:
    """Declare what a HAMi pool hands out of each card's memory; None: go by the register again.

    From now on: pods that are bound afterwards are priced by it. What was recorded stays.

    Raises:
        Forbidden: not a platform-admin. Conflict: the pool's cards are not shared by HAMi.
        Invalid: not from 100 to 1,000 percent.
    """
    require_platform_admin(actor, "pool_overcommit_set", object_kind="pool", object_name=pool.name)
    if percent is not None and not 100 <= percent <= LARGEST:
        raise Invalid.field("/percent", f"Give percent of a card's memory, from 100 (none too much) to {LARGEST}.")
    with transaction.atomic():
        changes = lock_changes(pool.cluster_id)
        row = NodePool.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=pool.pk)
        if row.sharing != SharingMode.HAMI:
            raise Conflict(
                f"Pool {row.name} hands out {row.get_sharing_display()}: only HAMi hands out more memory than there is."
            )
        before, row.overcommit_percent = row.overcommit_percent, percent
        if before == percent:
            return row
        row.save(update_fields=["overcommit_percent"])
        now = utcnow()
        nodes = Node.objects.filter(pool=row, gone_at__isnull=True).select_related("pool__gpu_type").order_by("pk")
        for node in nodes:
            span = CapacitySpan.objects.filter(node=node, ended_at__isnull=True).select_related("gpu_type").first()
            if span is not None:
                factor = node_overcommit(node, span.gpu_type, span.sharing)
                state = replace(state_of(span), overcommit_percent=factor)
                capacity_set(node, state, at=now, changes=changes, source=span.source)
        changes.save()
        workqueue.mark("metering", row.cluster_id, cause="watch")
        audit.record(
            "pool_overcommit_set",
            actor=actor,
            tenant_id=None,
            object_kind="pool",
            object_id=row.pk,
            object_name=f"{row.cluster.slug}/{row.name}",
            before={"percent": before},
            after={"percent": percent},
        )
        return row
