"""What was seen of a replica, written down. Each function runs inside the caller's fenced transaction.

Nothing is written where nothing changed; the deployment is marked where something did that it shows.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from infra.kube.errors import KubeError, Unauthorized, Unreachable, WrongCluster
from infra.models import Reservation
from infra.services.reservations import release
from portal.kernel import workqueue
from portal.kernel.clock import utcnow
from portal.kernel.conditions import Condition, drop_condition, get_condition, set_condition
from tenants.models import ModelReplica
from tenants.observing import Observed, Phase
from tenants.services.allotments import allotments_settle, quota_locked, types_on
from tenants.services.events import event_add
from tenants.services.waking import deployments_wake

READY, APPLIED, REACHABLE = "Ready", "Applied", "Reachable"


def replica_observed(pk: UUID, generation: int, seen: Observed, *, taken_back: str = "") -> None:
    """What applying ``generation`` and looking at it gave. ``taken_back``: fields taken back from other managers."""
    row = _locked(pk)
    if row is None:
        return
    now = utcnow()
    conditions = set_condition(row.conditions, _condition(APPLIED, True, "Applied", "", generation), now=now)
    conditions = set_condition(
        conditions, _condition(READY, seen.ready, seen.reason, seen.message, generation), now=now
    )
    conditions = drop_condition(conditions, REACHABLE)
    fresh = row.observed_generation < generation
    ready_at = (row.ready_at if not fresh else None) or (now if seen.ready else None)
    if taken_back:
        message = f"Changed by somebody on the cluster and taken back: {taken_back}."
        event_add(row.deployment, "DriftRepaired", message, replica_index=row.index, generation=generation)
    _store(
        row,
        phase=seen.phase,
        reason=seen.reason,
        message=seen.message,
        conditions=conditions,
        ready=seen.ready,
        ready_at=ready_at,
        observed_generation=max(row.observed_generation, generation),
    )


def replica_waits(pk: UUID, reason: str, message: str) -> None:
    """Something else must be done before anything can be applied; what was observed before stays as it was."""
    row = _locked(pk)
    if row is None:
        return
    conditions = set_condition(
        row.conditions, _condition(APPLIED, False, reason, message, row.generation), now=utcnow()
    )
    phase = Phase.APPLYING if row.observed_generation == 0 else Phase(row.phase)
    _store(row, phase=phase, reason=reason, message=message, conditions=conditions)


def replica_unreached(pk: UUID, error: KubeError) -> None:
    """The cluster did not answer, or refused. The last state stays; a condition says what is in the way."""
    row = _locked(pk)
    if row is None:
        return
    silent = isinstance(error, Unreachable | Unauthorized | WrongCluster)
    kind = REACHABLE if silent else APPLIED
    conditions = set_condition(
        row.conditions, _condition(kind, False, error.reason, error.sentence, row.generation), now=utcnow()
    )
    phase = Phase(row.phase)
    if not silent and not row.ready and row.deleting_at is None:
        phase = Phase.FAILED
    _store(row, phase=phase, reason=error.reason, message=error.sentence, conditions=conditions)


def replica_leaving(pk: UUID, message: str) -> None:
    """It is being deleted, and this is what is still there."""
    row = _locked(pk)
    if row is not None:
        conditions = drop_condition(row.conditions, REACHABLE)
        _store(row, phase=Phase.DELETING, reason="Deleting", message=message, conditions=conditions, ready=False)


def replica_ended(pk: UUID) -> None:
    """Nothing of it is left on the cluster: give back what it held, and wake those who wait for it."""
    replica = ModelReplica.objects.filter(pk=pk, deleted_at__isnull=True).first()
    if replica is None:
        return
    held = Reservation.objects.filter(replica_id=pk, released_at__isnull=True)
    # Quota rows before nodes before the replica: the order of everybody who takes these locks. All at once, or two
    # replicas of different types would wait for each other.
    types = set(held.values_list("gpu_type_id", flat=True)) | types_on(replica.tenant_id, replica.cluster_id)
    quota_locked(replica.tenant_id, types)
    release(pk)
    allotments_settle(tenant_id=replica.tenant_id, cluster_id=replica.cluster_id)
    row = _locked(pk)
    if row is None:
        return
    row.deleted_at = utcnow()
    row.save(update_fields=["deleted_at"])
    marks = _write(row, phase=Phase.DELETED, reason="Deleted", message="", conditions=row.conditions, ready=False)
    deployments_wake(also=marks)


def replica_stalled(pk: UUID, message: str) -> None:
    """It failed many times in a row: say so (it is still tried)."""
    row = _locked(pk)
    if row is None:
        return
    conditions = set_condition(
        row.conditions, Condition("Stalled", "True", "Failing", message, row.generation), now=utcnow()
    )
    _store(row, phase=Phase(row.phase), reason="Stalled", message=message, conditions=conditions)


def _locked(pk: UUID) -> ModelReplica | None:
    rows = ModelReplica.objects.select_for_update(of=("self",), no_key=True).select_related("deployment")
    return rows.filter(pk=pk, deleted_at__isnull=True).first()


def _condition(kind: str, holds: bool, reason: str, message: str, generation: int) -> Condition:
    return Condition(kind, "True" if holds else "False", reason, message, generation)


def _store(row: ModelReplica, **values: Any) -> None:
    """Write, and mark what it calls for; takes what :func:`_write` takes."""
    workqueue.mark_many(_write(row, **values))


def _write(
    row: ModelReplica,
    *,
    phase: Phase,
    reason: str,
    message: str,
    conditions: list[dict[str, object]],
    ready: bool | None = None,
    ready_at: datetime | None = None,
    observed_generation: int | None = None,
) -> list[workqueue.Mark]:
    """Write what differs, put a step on the timeline when phase or reason changed; the marks that this calls for."""
    before = (row.phase, row.ready, row.observed_generation)
    said = _last_reason(row)
    values: dict[str, object] = {"phase": str(phase), "message": message, "conditions": conditions}
    if ready is not None:
        values |= {"ready": ready, "ready_at": ready_at if ready or ready_at else row.ready_at}
    if observed_generation is not None:
        values |= {"observed_generation": observed_generation, "ready_at": ready_at}
    changed = [name for name, value in values.items() if getattr(row, name) != value]
    if not changed:
        return []
    for name in changed:
        setattr(row, name, values[name])
    row.save(update_fields=changed)
    if before[0] != row.phase or said != reason:
        where = message or f"Replica {row.index} is {row.phase.lower()}."
        event_add(row.deployment, reason, where, replica_index=row.index, generation=row.generation)
    # "spec", because a deployment that waits for a place would see it only after its back-off otherwise.
    cause: Literal["spec", "watch"] = "spec" if before != (row.phase, row.ready, row.observed_generation) else "watch"
    return [workqueue.Mark("deployment", row.deployment_id, tenant_id=row.tenant_id, cause=cause)]


def _last_reason(row: ModelReplica) -> str:
    """The reason that was told last: of the newest condition that is not as it should be, else of Ready."""
    for kind in (REACHABLE, APPLIED, READY):
        condition = get_condition(row.conditions, kind)
        if condition is not None and condition.status == "False":
            return condition.reason
    condition = get_condition(row.conditions, READY)
    return condition.reason if condition else ""
