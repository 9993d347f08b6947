"""Keeping the history of waiting: what a deployment has no place for, as spans that never overlap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, Sum

from infra.models import NodePool, Reservation
from infra.shares import percent_mib
from portal.kernel.clock import utcnow
from tenants.asks import Ask
from tenants.models import GPUQuota, ModelDeployment, WaitSpan
from tenants.selectors.quota import quota_taken
from tenants.waiting import QUOTA_EXCEEDED

LOOKED_AT = 20
"""Tenants whose own pods are looked at when the owner of an unused guarantee is sought."""

_SAYS = (
    "reason", "rule", "cluster_id", "pool_id", "gpu_type_id", "sharing", "count", "pods", "profile", "memory_mib",
    "cores", "owner_tenant_id",
)  # fmt: skip


def waits_set(deployment: ModelDeployment, asks: Sequence[Ask]) -> None:
    """From now on the deployment waits for exactly these. In the caller's transaction, which holds its row's lock."""
    open_spans = {
        span.part: span
        for span in WaitSpan.objects.filter(
            tenant_id=deployment.tenant_id, deployment=deployment, ended_at__isnull=True
        )
    }
    if not open_spans and not asks:
        return
    now = utcnow()
    wanted = _facts(deployment.tenant_id, asks)
    for part, span in open_spans.items():
        if wanted.get(part) != {name: getattr(span, name) for name in _SAYS}:
            _end(span, now)
        else:
            del wanted[part]
    WaitSpan.objects.bulk_create(
        WaitSpan(tenant_id=deployment.tenant_id, deployment=deployment, part=part, started_at=now, **facts)
        for part, facts in sorted(wanted.items())
    )


def waits_end(deployment: ModelDeployment) -> None:
    """It waits for nothing any more."""
    waits_set(deployment, ())


def _end(span: WaitSpan, now: datetime) -> None:
    span.ended_at = max(now, span.started_at)
    span.save(update_fields=["ended_at"])


def _facts(tenant_id: UUID, asks: Iterable[Ask]) -> dict[str, dict[str, Any]]:
    """Part → what its span says."""
    asks = list(asks)
    pools = {
        (pool.cluster.slug, pool.name): pool
        for pool in NodePool.objects.filter(
            cluster__slug__in={ask.cluster for ask in asks}, name__in={ask.pool for ask in asks}
        ).select_related("cluster", "gpu_type")
    }
    owners: dict[UUID, UUID | None] = {}
    found: dict[str, dict[str, Any]] = {}
    for ask in asks:
        pool = pools.get((ask.cluster, ask.pool))
        gpu_type = pool.gpu_type if pool else None
        memory = ask.memory_mib
        if ask.memory_percent:
            memory = percent_mib(gpu_type.memory_mib, ask.memory_percent) if gpu_type else 0
        owner = None
        if ask.reason == QUOTA_EXCEEDED and gpu_type is not None:
            if gpu_type.pk not in owners:
                owners[gpu_type.pk] = unused_guarantee_owner(gpu_type.pk, tenant_id)
            owner = owners[gpu_type.pk]
        # A pool of MIG nodes cut in one way (strategy single) hands its slices out as whole devices.
        sharing = pool.sharing if pool and ask.sharing == "whole" else ask.sharing
        found[ask.part] = {
            "reason": ask.reason, "rule": ask.rule, "pool_id": pool.pk if pool else None,
            "cluster_id": pool.cluster_id if pool else None,
            "gpu_type_id": gpu_type.pk if gpu_type else None, "sharing": sharing, "count": ask.count,
            "pods": ask.pods, "profile": ask.profile, "memory_mib": memory, "cores": ask.cores,
            "owner_tenant_id": owner,
        }  # fmt: skip
    return found


def unused_guarantee_owner(gpu_type_id: UUID, asking: UUID) -> UUID | None:
    """Whose guarantee on the type is used least, in cards; None where every other tenant uses all of its own.

    Within a system scope. What tenants hold without a reservation, or was handed over to
    a namespace of theirs, counts as used.
    """
    reserved = dict(
        Reservation.objects.filter(gpu_type_id=gpu_type_id, released_at__isnull=True)
        .values_list("tenant_id")
        .annotate(total=Sum("share"))
    )
    rows = GPUQuota.objects.filter(gpu_type_id=gpu_type_id, guaranteed__gt=0).exclude(tenant_id=asking)
    guarantees = dict(rows.values_list("tenant_id", "guaranteed"))
    unused = [
        (guaranteed - (reserved.get(tenant_id) or 0), tenant_id)
        for tenant_id, guaranteed in rows.order_by(F("guaranteed").desc(), "tenant_id").values_list(
            "tenant_id", "guaranteed"
        )
    ]
    best: tuple[int, UUID] | None = None
    for unreserved, tenant_id in sorted((one for one in unused if one[0] > 0), key=lambda one: -one[0])[:LOOKED_AT]:
        if best is not None and best[0] >= unreserved:
            break
        left = guarantees[tenant_id] - quota_taken(tenant_id).total(gpu_type_id)
        if left > 0 and (best is None or left > best[0]):
            best = (left, tenant_id)
    return best[1] if best else None
