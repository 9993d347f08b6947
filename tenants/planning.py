"""Planning a deployment: rows to the scheduler's request, and its answer. Reads only; nothing is locked or written.

The plan is made from a moment's view. Whoever acts on it checks quota and devices again under their locks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from infra import placement
from infra.placement import ExistingReplica, Plan, Request, Snapshot
from infra.selectors.snapshot import clusters_snapshot, fleet_snapshot
from tenants.manifest import Manifest
from tenants.manifest.asking import engine_specs, tolerations
from tenants.models import ModelReplica, Tenant
from tenants.placements import placement_from_json
from tenants.selectors.profiles import profiles_left
from tenants.selectors.quota import QuotaRoom, quota_rooms


@dataclass(frozen=True)
class Planned:
    """A plan with what it was made from. ``quota`` is by the slug of the GPU type; ``snapshot`` has no nodes where
    nothing was to be placed."""

    plan: Plan
    snapshot: Snapshot
    quota: Mapping[str, QuotaRoom]


def plan_deployment(
    *,
    tenant: Tenant,
    manifest: Manifest,
    replicas: Sequence[ModelReplica],
    reshaping: int | None = None,
) -> Planned:
    """Where the replicas of a deployment go, inside an open scope.

    Args:
        replicas: its live replicas (clusters loaded). Those being deleted keep their index and what they hold.
        reshaping: the index of a replica that shall be planned anew, with what it holds counted as free.
    """
    existing = tuple(_existing(row, row.index == reshaping) for row in replicas if row.deleting_at is None)
    quota = quota_rooms(tenant.pk)
    request = Request(
        name=manifest.name,
        replicas=manifest.replicas,
        engines=engine_specs(manifest),
        existing=existing,
        cluster_selector=dict(manifest.cluster_selector),
        allowed_sites=frozenset(tenant.sites.values_list("slug", flat=True)),
        zone=str(tenant.zone_id),
        tolerations=tolerations(manifest),
        quota_free={name: room.left for name, room in quota.items()} | profiles_left(tenant.pk),
        fill=tenant.state == Tenant.State.ACTIVE and not manifest.model_cache,
    )
    leaving = {row.index for row in replicas if row.deleting_at is not None}
    if len(existing) >= manifest.replicas and reshaping is None:
        # All there: whether they may stay is a matter of their clusters, so the nodes of the fleet are not read.
        snapshot = clusters_snapshot({row.cluster_id for row in replicas})
        plan = placement.place(snapshot, request)
        if not plan.short:
            return Planned(plan, snapshot, quota)
    snapshot = fleet_snapshot()
    plan = placement.place(snapshot, request)
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
