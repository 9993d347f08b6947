"""Credits for faults: found from the fleet's health events, settled when the time is over, decided by rule or person.

A held card with a reset- or node-class fault is credited from the fault to the pod's end; never for what a program
does to itself (XID 13, 31, 43, 45 and the like are of other classes). A pod that restarts within minutes of a fault of
its node is credited too, though it is not known to have held the faulty card: a loop that a node causes is not its own.

Until it is on a bill a credit follows the evidence, as the usage does: nobody is given back what he is not charged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.conf import settings
from django.db.models import Q

from billing.locks import last_usage_seq
from billing.models import BillingPeriod, Bucket, DeviceAllocation, FaultCredit, Issuer, MeterProgress
from billing.prices import book_of, stored_rates
from billing.rating import Line
from billing.selectors.charges import issuer_of
from billing.selectors.fault_credits import amount_of, credit_lines_of, credits_open, held_of
from infra.health import FaultClass
from infra.models import HealthEvent, PodObservation
from infra.models.evidence import EvidenceSource
from infra.pod_reading import load_evidence
from portal.kernel import audit
from portal.kernel.actors import Actor
from portal.kernel.clock import Interval, Period, next_period, period_of, utcnow
from portal.kernel.problems import Conflict, Invalid
from portal.kernel.scoping import system_scope
from tenants.permissions import Perm, require

LOOK_BACK = timedelta(days=70)
"""How far back faults are looked at: a month, its grace, and a month's late evidence."""
ROBOT = Actor.system("fault credits")


@dataclass(frozen=True, slots=True)
class _Due:
    """An allocation that a fault concerns."""

    event: HealthEvent
    allocation: DeviceAllocation
    because: str


def fault_credits_update(*, now: datetime | None = None) -> int:
    """Bring the credits to the evidence; how many rows were written. In a transaction of its own."""
    now = now or utcnow()
    with system_scope("fault credits"):
        found = _due(now)
        final = dict(MeterProgress.objects.values_list("cluster_id", "final_until"))
        issuers: dict[UUID, Issuer | None] = {}
        written = _follow()
        for one in sorted(found.values(), key=lambda due: (due.event.started_at, str(due.allocation.pk))):
            tenant_id = one.allocation.tenant_id
            assert tenant_id is not None  # charged time is somebody's
            if tenant_id not in issuers:
                issuers[tenant_id] = issuer_of(tenant_id)
            issuer = issuers[tenant_id]
            until = final.get(one.allocation.cluster_id)
            if issuer is not None and until is not None:
                written += _propose(one, issuer, until)
        return written


def _due(now: datetime) -> dict[UUID, _Due]:
    """Allocation → the first fault that concerns it."""
    events = HealthEvent.objects.filter(
        fault_class__in=settings.AIF_HEALTH_CREDITED, started_at__gte=now - LOOK_BACK,
        kind__in=[HealthEvent.Kind.XID, HealthEvent.Kind.CONDITION],
    ).select_related("node", "cluster")  # fmt: skip
    found: dict[UUID, _Due] = {}
    for event in events.order_by("started_at", "id"):
        then = DeviceAllocation.objects.filter(
            Q(ended_at__isnull=True) | Q(ended_at__gt=event.started_at), cluster_id=event.cluster_id,
            bucket=Bucket.TENANTS, tenant__isnull=False, node_id=event.node_id, bound_at__lte=event.started_at,
        ).exclude(source=EvidenceSource.RETROACTIVE).select_related("gpu_type", "node", "cluster")  # fmt: skip
        restarted = _restarted(event) if event.fault_class == FaultClass.NODE else set()
        for allocation in then:
            if not event.device:
                because = FaultCredit.Because.NODE
            elif allocation.device_uuid == event.device:
                because = FaultCredit.Because.CARD
            elif allocation.pod_uid in restarted:
                because = FaultCredit.Because.RESTART
            else:
                continue
            found.setdefault(allocation.pk, _Due(event, allocation, because))
    return found


def _restarted(event: HealthEvent) -> set[str]:
    """Pods of the node of which a container ended, to start again, within the minutes after the fault."""
    until = event.started_at + timedelta(minutes=settings.AIF_FAULT_RESTART_MINUTES)
    rows = PodObservation.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=event.started_at), cluster_id=event.cluster_id,
        node_name=event.node.name, scheduled_at__lte=event.started_at,
    )  # fmt: skip
    found = set()
    for row in rows:
        ends = (
            moment
            for container in load_evidence(row.evidence).containers
            if container.restarts
            for moment in (container.last_finished_at, container.back_off_after)
        )
        if any(moment is not None and event.started_at < moment <= until for moment in ends):
            found.add(row.uid)
    return found


def _propose(due: _Due, issuer: Issuer, final: datetime) -> int:
    """The credits of one allocation, month by month, as far as hours are final."""
    event, allocation = due.event, due.allocation
    start = max(event.started_at, allocation.started_at)
    end = min(allocation.ended_at or final, final)
    written = 0
    for month in _months(start, end, issuer.time_zone):
        part = Interval(max(start, month.start), min(end, month.end))
        ended = allocation.ended_at is not None and allocation.ended_at <= final
        written += _write(due, issuer, month, part, settled=ended or final >= month.end)
    return written


def _months(start: datetime, end: datetime, tz_name: str) -> Iterable[Period]:
    month = period_of(start, tz_name)
    while start < end and month.start < end:
        yield month
        month = next_period(month)


def _write(due: _Due, issuer: Issuer, month: Period, part: Interval, *, settled: bool) -> int:
    event, allocation, tenant_id = due.event, due.allocation, due.allocation.tenant_id
    assert tenant_id is not None  # charged time is somebody's
    row = (
        FaultCredit.objects.select_for_update()
        .filter(tenant_id=tenant_id, allocation_id=allocation.pk, month=month.start)
        .first()
    )
    if row is not None and (row.period_id is not None or row.state == FaultCredit.State.REJECTED):
        return 0
    is_new, decided = row is None, row is not None and row.settled and row.amount is not None
    row = row or FaultCredit(tenant_id=tenant_id, allocation_id=allocation.pk, month=month.start)
    before = None if is_new else _concerns(row)
    amount = row.amount
    row.issuer, row.event_id, row.because = issuer, event.pk, due.because
    row.fault, row.fault_class, row.happened_at = event.title, event.fault_class, event.started_at
    row.cluster_name, row.node_name, row.device = event.cluster.slug, event.node.name, event.device
    row.namespace, row.pod_name, row.deployment_id = allocation.namespace, allocation.pod_name, allocation.deployment_id
    row.charge_from, row.charge_to, row.settled, row.currency = part.start, part.end, settled, issuer.currency
    row.held = held_of(allocation)
    if decided and before == _concerns(row):
        return 0  # it is approved, or waits for finance
    rates = stored_rates(issuer)
    row.amount = amount_of(credit_lines_of(row, rates, book_of(issuer, rates, part, last_usage_seq())))
    if (before, amount) == (_concerns(row), row.amount):
        return 0
    if row.state == FaultCredit.State.APPROVED:  # something else was approved
        row.state, row.decided_by, row.decided_at, row.decided_why = FaultCredit.State.PROPOSED, "", None, ""
    if settled and row.amount is not None and row.amount <= Decimal(settings.AIF_FAULT_CREDIT_LIMIT):
        row.state, row.decided_by, row.decided_at = FaultCredit.State.APPROVED, ROBOT.label, utcnow()
        row.decided_why = f"Not above {settings.AIF_FAULT_CREDIT_LIMIT} {issuer.currency}."
    row.save()
    if row.state == FaultCredit.State.APPROVED:
        _record(row, ROBOT)
    return 1


def _concerns(row: FaultCredit) -> tuple[object, ...]:
    """What is decided about."""
    return row.charge_from, row.charge_to, row.settled, row.held, row.deployment_id, row.issuer_id


def _follow() -> int:
    """Take back credits, on no bill yet, of time that later evidence gave to somebody else, or that another issuer
    bills; how many."""
    rows = FaultCredit.objects.select_for_update(of=("self",)).filter(
        period__isnull=True, state__in=[FaultCredit.State.PROPOSED, FaultCredit.State.APPROVED]
    )
    found = list(rows.order_by("id"))
    allocations = _allocations(found)
    issuers = {tenant_id: issuer_of(tenant_id) for tenant_id in {row.tenant_id for row in found}}
    gone = 0
    for row in found:
        held = allocations.get(row.allocation_id)
        charged = held is not None and held.started_at < row.charge_to and _until(held) > row.charge_from
        issuer = issuers[row.tenant_id]
        if charged and issuer is not None and issuer.pk == row.issuer_id:
            continue
        audit.record(
            "fault_credit_take_back", actor=ROBOT, tenant_id=row.tenant_id, object_kind="fault_credit",
            object_id=row.pk, object_name=row.sentence,
            before={"amount": str(row.amount), "currency": row.currency, "state": row.state, "pod": row.pod_name},
        )  # fmt: skip
        row.delete()
        gone += 1
    return gone


def _allocations(rows: Iterable[FaultCredit]) -> Mapping[UUID, DeviceAllocation]:
    """What the credits are of, as it is now, by id."""
    found = DeviceAllocation.objects.filter(pk__in={row.allocation_id for row in rows}, bucket=Bucket.TENANTS)
    return {row.pk: row for row in found.select_related("gpu_type")}


def _until(allocation: DeviceAllocation) -> datetime:
    return allocation.ended_at or datetime.max.replace(tzinfo=UTC)


def fault_credit_decide(*, credit: FaultCredit, approve: bool, reason: str, actor: Actor) -> FaultCredit:
    """Approve or reject a proposed credit.

    Raises:
        Forbidden: the actor may not close periods. Invalid: no reason. Conflict: it is decided, or not settled yet.
    """
    require(actor, Perm.BILL_CLOSE)
    if not reason.strip():
        raise Invalid.field("/reason", "Say why: the team reads it.")
    with system_scope("fault_credit_decide"):
        row = FaultCredit.objects.select_for_update(of=("self",)).get(pk=credit.pk)
        if row.state != FaultCredit.State.PROPOSED:
            raise Conflict(f"This credit was {row.state} by {row.decided_by}.")
        if not row.settled:
            raise Conflict("The pod still runs: how much it is stands only when it, or the month, has ended.")
        if approve and row.amount is None:
            raise Conflict("The time has no price yet. Enter a rate, then it can be approved.")
        row.state = FaultCredit.State.APPROVED if approve else FaultCredit.State.REJECTED
        row.decided_by, row.decided_at, row.decided_why = actor.label, utcnow(), reason.strip()
        row.save(update_fields=["state", "decided_by", "decided_at", "decided_why"])
        _record(row, actor)
    return row


def fault_credits_take(period: BillingPeriod, window: Interval, *, is_first: bool, tenant_ids: Collection[UUID]) -> int:
    """Put the approved credits of these tenants on the bills of a period that is being closed; how many. In the close's
    transaction: what is approved from here on is on the next one.

    One that no longer is what its allocation is charged stays, and is decided again.
    """
    rows = credits_open(period.issuer, window, is_first=is_first).filter(tenant_id__in=list(tenant_ids))
    found = list(rows.select_for_update(of=("self",)).order_by("id"))
    allocations = _allocations(found)
    stand = []
    for row in found:
        held = allocations.get(row.allocation_id)
        whole = held is not None and held.started_at <= row.charge_from and _until(held) >= row.charge_to
        if whole and held is not None and held_of(held) == row.held:
            stand.append(row.pk)
    return FaultCredit.objects.filter(pk__in=stand).update(period=period)


def fault_credits_settle(lines: Iterable[Line]) -> None:
    """Note what the lines of a close take off: hourly prices may have been corrected since they were approved."""
    taken: dict[str, list[Line]] = {}
    for line in lines:
        if line.credit_id:
            taken.setdefault(line.credit_id, []).append(line)
    for credit_id, own in taken.items():
        FaultCredit.objects.filter(pk=credit_id).update(amount=amount_of(own))


def _record(row: FaultCredit, actor: Actor) -> None:
    audit.record(
        f"fault_credit_{row.state}", actor=actor, tenant_id=row.tenant_id, object_kind="fault_credit", object_id=row.pk,
        object_name=row.sentence,
        after={"amount": str(row.amount), "currency": row.currency, "reason": row.decided_why, "pod": row.pod_name},
    )  # fmt: skip
