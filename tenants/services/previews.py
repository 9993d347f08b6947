"""What applying a manifest would do, before anybody says yes: objects, places and reasons, quota, price, rollout."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from django.db.models import Max

from infra.models import AppliedObject
from infra.placement import Explanation, Placement, Plan
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow
from portal.kernel.scoping import tenant_scope
from tenants.manifest import Manifest, to_spec
from tenants.models import ModelDeployment, ModelReplica, Tenant
from tenants.permissions import Perm, require
from tenants.placements import placement_from_json
from tenants.planning import Planned, plan_deployment
from tenants.pricing import Cost, cost_per_hour
from tenants.services.allotments import cards
from tenants.services.manifests import ManifestSource, manifest_accept
from tenants.stored import manifest_of, replica_manifest, replica_spec, same_shape
from tenants.waiting import waiting_reason


@dataclass(frozen=True, slots=True)
class Place:
    """Where one replica goes (``new``) or is. ``millionths`` of cards in all."""

    replica: int
    cluster: str
    pools: tuple[str, ...]
    nodes: tuple[str, ...]
    gpu_types: tuple[str, ...]
    millionths: int
    new: bool


@dataclass(frozen=True, slots=True)
class NotChosen:
    """A cluster, or one pool of it (``pool`` None: all), that gets no new replica, and the sentence why."""

    cluster: str
    pool: str | None
    rule: str
    sentence: str


@dataclass(frozen=True, slots=True)
class QuotaAfter:
    """The quota on one GPU type, in millionths of a card: what is taken now, and what would be."""

    gpu_type: str
    limit: int
    before: int
    after: int

    @property
    def sentence(self) -> str:
        """``6 of 8 cards of nvidia-h100 are taken, 8 afterwards.``"""
        return (
            f"{cards(self.before)} of {cards(self.limit)} cards of {self.gpu_type} are taken, "
            f"{cards(self.after)} afterwards."
        )


@dataclass(frozen=True)
class Preview:
    """The answer to "what would happen"."""

    change: Literal["created", "configured", "unchanged"]
    creates: tuple[str, ...]
    places: tuple[Place, ...]
    not_chosen: tuple[NotChosen, ...]
    short: int
    reason: str
    summary: str
    quota: tuple[QuotaAfter, ...]
    cost: Cost
    rollout: str

    @property
    def fits(self) -> bool:
        """Whether every replica has, or would get, a place now."""
        return self.short == 0

    def as_json(self) -> dict[str, Any]:
        """For the API: Decimals as texts."""
        data: dict[str, Any] = asdict(self)
        data["fits"] = self.fits
        data["cost"]["amount"] = None if self.cost.amount is None else str(self.cost.amount)
        data["quota"] = [{**row, "sentence": one.sentence} for row, one in zip(data["quota"], self.quota, strict=True)]
        return data


def deployment_preview(*, tenant: Tenant, manifest: ManifestSource, actor: Actor) -> Preview:
    """What applying the manifest would do. Stores nothing.

    Raises:
        Invalid: as :func:`tenants.services.deployments.deployment_apply`.
    """
    require(actor, Perm.DEPLOYMENT_WRITE, tenant)
    return preview_manifest(tenant, manifest_accept(tenant, manifest))


def preview_manifest(tenant: Tenant, wanted: Manifest, *, at: datetime | None = None) -> Preview:
    """As :func:`deployment_preview`, for a manifest that was accepted."""
    at = at or utcnow()
    with tenant_scope(tenant.pk):
        existing = ModelDeployment.objects.filter(tenant=tenant, name=wanted.name, deleted_at__isnull=True).first()
        rows: list[ModelReplica] = []
        if existing is not None:
            existing.tenant = tenant
            live = ModelReplica.objects.filter(tenant=tenant, deployment=existing, deleted_at__isnull=True)
            rows = list(live.select_related("cluster").order_by("index"))
        planned = plan_deployment(tenant=tenant, manifest=wanted, replicas=rows)
        return Preview(
            change=_change(existing, wanted),
            creates=_creates(tenant, wanted, planned.plan),
            places=_places(planned.plan, rows),
            not_chosen=tuple(map(_not_chosen, planned.plan.explanations)),
            short=planned.plan.short,
            reason=waiting_reason(planned.plan),
            summary=planned.plan.summary(),
            quota=_quota(planned, rows),
            cost=cost_per_hour([*_kept(planned.plan, rows), *planned.plan.placements], at),
            rollout=_rollout(existing, wanted, planned, rows),
        )


def _change(existing: ModelDeployment | None, wanted: Manifest) -> Literal["created", "configured", "unchanged"]:
    if existing is None:
        return "created"
    same = existing.spec == to_spec(wanted) and existing.labels == dict(wanted.labels)
    return "unchanged" if same else "configured"


def _creates(tenant: Tenant, wanted: Manifest, plan: Plan) -> tuple[str, ...]:
    """Sentences; names of objects hold the replica's id, which is not made yet."""
    out = []
    for placement in plan.placements:
        where = f"on {placement.cluster} in namespace {tenant.namespace}"
        for engine in wanted.engines:
            kind = "LeaderWorkerSet" if len(engine.members) > 1 else "Deployment"
            out.append(f"{kind} and Service for engine {engine.name} of replica {placement.index} {where}")
    return tuple(out)


def _kept(plan: Plan, rows: Sequence[ModelReplica]) -> list[Placement]:
    kept = {replica.index for replica in plan.retained}
    return [placement_from_json(row.placement) for row in rows if row.deleting_at is None and row.index in kept]


def _places(plan: Plan, rows: Sequence[ModelReplica]) -> tuple[Place, ...]:
    both = [(one, False) for one in _kept(plan, rows)] + [(one, True) for one in plan.placements]
    return tuple(
        Place(
            replica=placement.index,
            cluster=placement.cluster,
            pools=tuple(sorted({engine.pool for engine in placement.engines})),
            nodes=placement.nodes,
            gpu_types=tuple(sorted(placement.millionths)),
            millionths=sum(placement.millionths.values()),
            new=new,
        )
        for placement, new in sorted(both, key=lambda pair: pair[0].index)
    )


def _not_chosen(explanation: Explanation) -> NotChosen:
    return NotChosen(explanation.cluster, explanation.pool, str(explanation.rule), explanation.sentence)


def _quota(planned: Planned, rows: Sequence[ModelReplica]) -> tuple[QuotaAfter, ...]:
    """For each type that is touched: what would be admitted once what leaves has left."""
    change: dict[str, int] = {}
    for placement in planned.plan.placements:
        for name, amount in placement.millionths.items():
            change[name] = change.get(name, 0) + amount
    leaving = {removal.index for removal in planned.plan.removals}
    for row in rows:
        if row.deleting_at is not None or row.index in leaving:
            for name, amount in placement_from_json(row.placement).millionths.items():
                change[name] = change.get(name, 0) - amount
    rooms = planned.quota
    touched = sorted(set(change) | {name for one in _kept(planned.plan, rows) for name in one.millionths})
    return tuple(
        QuotaAfter(name, rooms[name].limit, rooms[name].admitted, rooms[name].admitted + change.get(name, 0))
        for name in touched
        if name in rooms
    )


def _rollout(existing: ModelDeployment | None, wanted: Manifest, planned: Planned, rows: Sequence[ModelReplica]) -> str:
    """How the change reaches what runs, in a sentence."""
    live = [row for row in rows if row.deleting_at is None]
    if existing is None or not live:
        return "Nothing runs yet: replicas start as they get their places."
    parts: list[str] = []
    outdated = [row for row in live if row.spec != replica_spec(wanted)]
    leaving = {removal.index for removal in planned.plan.removals}
    outdated = [row for row in outdated if row.index not in leaving]
    if outdated:
        inplace = all(same_shape(replica_manifest(row, wanted.name, existing.tenant), wanted) for row in outdated)
        spare = _spare(planned, outdated)
        how = "one replica down at a time" if inplace else "one replica after the other ends and is placed anew"
        parts.append(f"{'A spare card is not needed' if spare else 'No spare card'}: {how}{_about(outdated)}.")
    if planned.plan.placements and not outdated:
        parts.append(f"{len(planned.plan.placements)} more start as they get their places.")
    if planned.plan.removals:
        parts.append(" ".join(removal.sentence for removal in planned.plan.removals))
    if existing.replicas != wanted.replicas or manifest_of(existing) != wanted:
        return " ".join(parts) or "Nothing that runs is touched."
    return "Nothing changes."


def _spare(planned: Planned, outdated: Sequence[ModelReplica]) -> bool:
    """Whether the quota would hold one more of these replicas beside those that run."""
    needed = placement_from_json(outdated[0].placement).millionths
    return all(name in planned.quota and planned.quota[name].left >= amount for name, amount in needed.items())


def _about(outdated: Sequence[ModelReplica]) -> str:
    """``, about 6 min``: as long as they took from their last apply to Ready, where that was seen."""
    applied = dict(
        AppliedObject.objects.filter(
            owner_kind="replica", owner_id__in=[row.pk for row in outdated], deleted_at__isnull=True
        )
        .exclude(kind="Service")
        .values_list("owner_id")
        .annotate(last=Max("applied_at"))
    )
    took = [
        (row.ready_at - applied[row.pk]).total_seconds()
        for row in outdated
        if row.ready_at is not None and row.pk in applied and row.ready_at > applied[row.pk]
    ]
    if not took:
        return ""
    minutes = max(1, round(statistics.median(took) * len(outdated) / 60))
    return f", about {minutes} min"
