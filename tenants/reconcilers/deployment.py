"""Placing a deployment: plan (pure, from a moment's view) → admit and reserve each replica → roll out → sum up.

What somebody else was faster at is planned again, a bounded number of times; what does not fit waits, says why, and
is looked at again when something is freed, or by itself after a while.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from infra.placement import Placement
from infra.services.reservations import NoCapacity
from portal.kernel.clock import utcnow
from portal.kernel.conditions import Condition, set_condition
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import Claimed, Done, Outcome, RetryAfter, register
from tenants import waiting
from tenants.asks import Ask, asks_of
from tenants.failpoints import reached
from tenants.manifest.asking import engine_specs
from tenants.models import ModelDeployment, ModelReplica, Tenant
from tenants.planning import Planned, plan_deployment
from tenants.rollout import ReplicaState, Step, next_step
from tenants.selectors.capacity import lent_to_others
from tenants.services import placing
from tenants.services.allotments import QuotaExceeded, cards
from tenants.services.waits import waits_end, waits_set
from tenants.status import Status, overall
from tenants.stored import manifest_of, replica_manifest, replica_spec, same_shape

KIND = "deployment"
RACES = 8
AT_FIRST, SOONEST, LATEST = 1.0, 30.0, 300.0


@dataclass
class View:
    """A deployment with its live replicas (also those being deleted), as of one moment."""

    deployment: ModelDeployment
    replicas: list[ModelReplica]

    @property
    def staying(self) -> list[ModelReplica]:
        """Those that are not being deleted."""
        return [replica for replica in self.replicas if replica.deleting_at is None]

    @property
    def stranded(self) -> dict[int, str]:
        """Those on a cluster that was given up: index → why they end."""
        return {
            replica.index: f"Cluster {replica.cluster.slug} was abandoned: {replica.cluster.abandoned_reason}"
            for replica in self.staying
            if replica.cluster.abandoned_at is not None
        }


@dataclass
class Decision:
    """What to do with a view. ``short_reason`` and ``short`` say why some replicas have no place."""

    planned: Planned
    step: Step
    placements: list[Placement]
    short_reason: str = ""
    short: str = ""
    explanation: list[dict[str, Any]] = field(default_factory=list)
    refused: Placement | None = None  # found a place that the quota did not hold when it was to be taken


def _stalled(item: Claimed, message: str) -> None:
    with system_scope("stalled"):
        row = ModelDeployment.objects.select_for_update(no_key=True).filter(pk=item.object_id).first()
        if row is not None:
            condition = Condition("Stalled", "True", "Failing", message, row.generation)
            row.conditions = set_condition(row.conditions, condition, now=utcnow())
            row.save(update_fields=["conditions"])


@register(KIND, lease_seconds=90, on_stalled=_stalled)
def reconcile(item: Claimed) -> Outcome:
    """Bring the replicas of one deployment to what its row wants."""
    reached("deployment-claimed")
    lost: Exception | None = None
    for _ in range(RACES):
        view = _view(item)
        if view is None:
            return Done()
        try:
            if view.deployment.deleting_at is not None:
                return _delete(item, view)
            return _bring(item, view)
        except (placing.Stale, NoCapacity) as error:
            lost = error
    # Others were faster every time; the next look is soon, and this says so meanwhile.
    return RetryAfter(1.0, f"Planned {RACES} times, and each time something had changed: {lost}")


def _view(item: Claimed) -> View | None:
    with system_scope("deployment"):
        rows = ModelDeployment.objects.select_related("tenant").filter(pk=item.object_id, deleted_at__isnull=True)
        row = next(iter(rows), None)
        return View(row, _replicas(row)) if row is not None else None


def _replicas(deployment: ModelDeployment) -> list[ModelReplica]:
    live = ModelReplica.objects.filter(tenant_id=deployment.tenant_id, deployment=deployment, deleted_at__isnull=True)
    return list(live.select_related("cluster").order_by("index"))


def _delete(item: Claimed, view: View) -> Outcome:
    with item.fenced():
        if view.replicas:
            sentences = {replica.index: "The deployment is being deleted." for replica in view.staying}
            if sentences:
                placing.replicas_end(view.deployment, sentences, "Deleting")
            left = ", ".join(f"replica {one.index} on {one.cluster.slug}" for one in view.replicas)
            message = next((one.message for one in view.replicas if one.deleting_at is not None and one.message), "")
            values = {"waiting": f"Waits for {left} to end. {message}".strip(), "waiting_since": None}
            placing.deployment_status(placing.deployment_current(view.deployment), values, None)
            waits_end(view.deployment)
        else:
            placing.deployment_ended(view.deployment)
            waits_end(view.deployment)
    reached("deployment-deleted")
    return Done()  # the end of each replica marks the deployment again


def _bring(item: Claimed, view: View) -> Outcome:
    if view.stranded:
        with item.fenced():
            placing.replicas_end(view.deployment, view.stranded, "ClusterAbandoned")
        raise placing.Stale("Replicas on an abandoned cluster end.")
    decision = decide(view)
    reached("deployment-planned")
    _act(item, view, decision)
    reached("deployment-reserved")
    with item.fenced():
        row = placing.deployment_current(view.deployment)
        fresh = View(row, _replicas(row))
        status = _status(fresh, decision)
        values = _values(row, decision, status, utcnow())
        known = row.waiting_since is not None
        asks = _asks(row, decision) if decision.short or known else None
        placing.deployment_status(row, values, _event(row, decision))
        if asks is not None:
            waits_set(row, asks)
    reached("deployment-recorded")
    if decision.short:
        # What was freed between the plan and now woke nobody: that this waits was not written down yet.
        return RetryAfter(_patience(values["waiting_since"]) if known else AT_FIRST, status.waiting)
    return Done()


def decide(view: View) -> Decision:
    """What to do now: the plan, the next step of a rollout, and why something waits. Reads only."""
    deployment = view.deployment
    manifest = manifest_of(deployment)
    spec = replica_spec(manifest)
    states = []
    for replica in view.staying:
        current = replica.spec == spec
        states.append(
            ReplicaState(
                index=replica.index,
                current=current,
                in_place=current or same_shape(replica_manifest(replica, deployment.name, deployment.tenant), manifest),
                serves=replica.ready,
                settled=replica.ready and replica.observed_generation >= replica.generation,
                message=replica.message,
            )
        )
    leaving = len(view.replicas) - len(view.staying)
    with system_scope("place"):
        planned = plan_deployment(tenant=deployment.tenant, manifest=manifest, replicas=view.replicas)
        ending = {removal.index for removal in planned.plan.removals}
        step = next_step([state for state in states if state.index not in ending], leaving=leaving + len(ending))
        if step.replace is not None:
            step = _checked(step, view)
    decision = Decision(planned, step, list(planned.plan.placements))
    decision.explanation = [
        {
            "cluster": one.cluster,
            "pool": one.pool,
            "rule": str(one.rule),
            "sentence": one.sentence,
            "facts": dict(one.facts),
        }
        for one in planned.plan.explanations
    ]
    if planned.plan.short:
        decision.short_reason, decision.short = _why(deployment.tenant, manifest.model_cache, planned)
    return decision


def _checked(step: Step, view: View) -> Step:
    """A replica is only given up for another shape if that shape has a place, with what it holds counted as free."""
    deployment = view.deployment
    trial = plan_deployment(
        tenant=deployment.tenant,
        manifest=manifest_of(deployment),
        replicas=view.replicas,
        reshaping=step.replace,
    )
    if any(placement.index == step.replace for placement in trial.plan.placements):
        return step
    sentence = waiting.waiting_sentence(trial.plan)
    return Step(step.update, None, f"Replica {step.replace} keeps what it has: its new shape has no place. {sentence}")


def _why(tenant: Tenant, model_cache: str, planned: Planned) -> tuple[str, str]:
    if tenant.state != Tenant.State.ACTIVE:
        return waiting.TENANT_SUSPENDED, f"Tenant {tenant.slug} is {tenant.state}: nothing new is placed."
    if model_cache:
        return waiting.CACHE_NOT_FOUND, (
            f"Tenant {tenant.slug} has no model cache {model_cache}. Leave spec.modelCacheRef out, or make the cache."
        )
    reason, sentence = waiting.waiting_reason(planned.plan), waiting.waiting_sentence(planned.plan)
    if reason == waiting.NO_CAPACITY:
        for one in lent_to_others(tenant, waiting.nearest(planned.plan.explanations), planned.quota):
            sentence += (
                f" Of {one.gpu_type}, {cards(one.promised)} more cards are guaranteed to {tenant.slug}, and other "
                f"teams have borrowed {cards(one.lent)} beyond their guarantees. Nothing that runs is taken from "
                "them: ask a platform-admin."
            )
    return reason, sentence


def _act(item: Claimed, view: View, decision: Decision) -> None:
    """Removals first (they free nothing yet, but nothing must wait for them), then places, then the rollout.

    Raises:
        Stale, NoCapacity: plan again; what was done so far stays and is found by the next plan.
    """
    deployment, plan = view.deployment, decision.planned.plan
    if plan.removals:
        with item.fenced():
            sentences = {removal.index: removal.sentence for removal in plan.removals}
            placing.replicas_end(deployment, sentences, "Removed")
    for placement in decision.placements:
        try:
            with item.fenced():
                placing.replica_place(deployment, placement)
        except QuotaExceeded as error:
            # Not planned again: the next plan would see the same quota. Nothing more of it fits either.
            decision.short_reason, decision.short = waiting.QUOTA_EXCEEDED, str(error)
            decision.refused = placement
            # It may be that parts elsewhere are larger than what is held there; as they shrink, this is woken.
            with item.fenced():
                placing.parts_settle(deployment.tenant_id)
            break
        reached("deployment-one-reserved")
    if decision.step.update:
        with item.fenced():
            placing.replicas_update(deployment, decision.step.update)
    if decision.step.replace is not None:
        with item.fenced():
            sentence = "Its devices change: it ends here and is placed anew."
            placing.replicas_end(deployment, {decision.step.replace: sentence}, "Replaced")


def _asks(deployment: ModelDeployment, decision: Decision) -> tuple[Ask, ...]:
    """What it has no place for now: the evidence that cards were waited for."""
    return asks_of(
        decision.planned.plan,
        decision.planned.snapshot,
        engine_specs(manifest_of(deployment)),
        zone=str(deployment.tenant.zone_id),
        reason=decision.short_reason,
        refused=decision.refused,
    )


def _status(view: View, decision: Decision) -> Status:
    spec = replica_spec(manifest_of(view.deployment))
    return overall(
        wanted=view.deployment.replicas,
        replicas=view.staying,
        current=[one.spec == spec and one.observed_generation >= one.generation for one in view.staying],
        leaving=len(view.replicas) - len(view.staying),
        short_reason=decision.short_reason,
        short=decision.short,
        rollout=decision.step.waits,
    )


def _values(deployment: ModelDeployment, decision: Decision, status: Status, now: datetime) -> dict[str, Any]:
    generation = deployment.generation
    exceeded = decision.short_reason == waiting.QUOTA_EXCEEDED
    conditions = deployment.conditions
    for condition in (
        Condition(
            "Admitted",
            "False" if exceeded else "True",
            decision.short_reason if exceeded else "WithinQuota",
            decision.short if exceeded else "",
            generation,
        ),
        Condition(
            "Placed",
            "False" if decision.short else "True",
            decision.short_reason or waiting.PLACED,
            decision.short,
            generation,
        ),
        Condition("Ready", "True" if status.phase == "Ready" else "False", status.reason, status.waiting, generation),
    ):
        conditions = set_condition(conditions, condition, now=now)
    return {
        "conditions": conditions,
        "phase": status.phase,
        "waiting": status.waiting,
        "waiting_since": (deployment.waiting_since or now) if decision.short else None,
        "ready_replicas": status.ready_replicas,
        "explanation": decision.explanation,
        "observed_generation": generation,
    }


def _event(deployment: ModelDeployment, decision: Decision) -> tuple[str, str] | None:
    """A step on the timeline where the reason for waiting is another one than before."""
    if not decision.short:
        return None
    placed = next((one for one in deployment.conditions if one["type"] == "Placed"), None)
    if placed is not None and (placed["reason"], placed["message"]) == (decision.short_reason, decision.short):
        return None
    return decision.short_reason, decision.short


def _patience(since: datetime) -> float:
    """Seconds until a waiting deployment looks again by itself: longer the longer it has waited."""
    return min(LATEST, max(SOONEST, (utcnow() - since).total_seconds() / 5))
