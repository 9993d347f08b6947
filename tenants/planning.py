"""Planning a deployment: rows to the scheduler's request, and its answer. Reads only; nothing is locked or written.

The plan is made from a moment's view. Whoever acts on it checks quota and devices again under their locks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from infra import placement
from infra.placement import ExistingReplica, Plan, Request, Snapshot
from infra.selectors.snapshot import fleet_snapshot
from tenants.manifest import Manifest
from tenants.manifest.asking import engine_specs, tolerations
from tenants.models import ModelReplica, Tenant
from tenants.placements import placement_from_json
from tenants.selectors.quota import QuotaLine, quota_lines


@dataclass(frozen=True)
class Planned:
    """A plan with what it was made from. ``quota`` is by the slug of the GPU type."""

    plan: Plan
    snapshot: Snapshot
    quota: Mapping[str, QuotaLine]


def plan_deployment(
    *,
    tenant: Tenant,
    manifest: Manifest,
    replicas: Sequence[ModelReplica],
    reshaping: int | None = None,
    snapshot: Snapshot | None = None,
) -> Planned:
    """Where the replicas of a deployment go, inside an open scope.

    Args:
        replicas: its live replicas (clusters loaded). Those being deleted keep their index and what they hold.
        reshaping: the index of a replica that shall be planned anew, with what it holds counted as free.
        snapshot: made anew where it is not given.
    """
    snapshot = snapshot if snapshot is not None else fleet_snapshot()
    quota = {line.quota.gpu_type.slug: line for line in quota_lines(tenant)}
    request = Request(
        name=manifest.name,
        replicas=manifest.replicas,
        engines=engine_specs(manifest),
        existing=tuple(_existing(row, row.index == reshaping) for row in replicas if row.deleting_at is None),
        cluster_selector=dict(manifest.cluster_selector),
        allowed_sites=frozenset(tenant.sites.values_list("slug", flat=True)),
        zone=str(tenant.zone_id),
        tolerations=tolerations(manifest),
        quota_free={name: line.left for name, line in quota.items()},
        fill=tenant.state == Tenant.State.ACTIVE and not manifest.model_cache,
    )
    plan = placement.place(snapshot, request)
    leaving = {row.index for row in replicas if row.deleting_at is not None}
    return Planned(_without_indexes(plan, leaving), snapshot, quota)


def _existing(row: ModelReplica, reshape: bool) -> ExistingReplica:
    return ExistingReplica(
        index=row.index,
        cluster=row.cluster.slug,
        ready=row.ready,
        current=not reshape,
        engines=placement_from_json(row.placement).engines,
    )


def _without_indexes(plan: Plan, taken: set[int]) -> Plan:
    """The same plan, with other indexes for new places whose index a leaving replica still has."""
    if not taken:
        return plan
    used = taken | {row.index for row in plan.retained} | set(plan.replaced)
    placements = []
    for place in plan.placements:
        index = place.index
        if index not in plan.replaced:
            index = next(number for number in range(len(used) + 1) if number not in used)
            used.add(index)
        placements.append(replace(place, index=index))
    return replace(plan, placements=tuple(placements))
