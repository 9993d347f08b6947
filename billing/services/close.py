"""Closing a period: every tenant's bill at once, or none. Doing it again changes nothing.

The bills are made of the usage with a sequence number up to ``seq_upto``, read before every writer that had drawn a
lower number was waited for (:mod:`billing.locks`). What comes later is on the next bill, with its own charge period.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from billing.drawing import Charges, digest, draw, minor
from billing.locks import UNIT_COSTS, drain_usage_writers, last_usage_seq
from billing.models import Bill, BillingPeriod, BillLine, BillLineHour, Issuer, RateCard
from billing.rating import DrawnUp, Line
from billing.selectors.bills import clusters_behind, unmetered_pods
from billing.selectors.charges import charges_of, delimiters_of, tenants_billed_by
from billing.selectors.periods import closes_at, unsettled
from billing.services.fault_credits import fault_credits_settle, fault_credits_take
from billing.services.periods import periods_ensure
from infra.models import GPUType
from portal.kernel import audit
from portal.kernel.actors import Actor
from portal.kernel.clock import format_rfc3339, utcnow
from portal.kernel.ids import uuid7
from portal.kernel.problems import Conflict
from portal.kernel.scoping import system_scope
from tenants.models import ModelDeployment, Tenant
from tenants.permissions import Perm, require

MOST_TOLD = 20
"""Unpriced lines that a refusal names; the page of unpriced usage has them all."""


@dataclass(frozen=True, slots=True)
class Closed:
    """What a close did. ``made`` is 0 where the period was closed already."""

    period: BillingPeriod
    made: int


def period_close(*, period: BillingPeriod, actor: Actor, accept_behind: bool = False) -> Closed:
    """Close a period and make its bills.

    Args:
        accept_behind: close although clusters have not told about all of the period; what they tell later is late
            usage, on the next bill.

    Raises:
        Forbidden: the actor may not close periods.
        Conflict: too early (the grace has not passed); an earlier period is open, or a later one closed; clusters
            are behind; usage without a rate, or that could not be metered (``extra["unpriced"]`` lists it).
    """
    require(actor, Perm.BILL_CLOSE)
    with system_scope("period_close"):
        row = BillingPeriod.objects.select_for_update(of=("self",)).select_related("issuer").get(pk=period.pk)
        if row.state == BillingPeriod.State.CLOSED:
            return Closed(row, 0)
        _refuse_early(row)
        _refuse_out_of_order(row)
        if not accept_behind:
            _refuse_behind(row)
        row.state = BillingPeriod.State.CLOSING
        row.save(update_fields=["state"])
    try:
        with system_scope("period_close"):
            upto = last_usage_seq()
            # Only now: whoever has usage up to there is among them, also a tenant that came a moment ago.
            tenant_ids = tenants_billed_by(row.issuer)
            drain_usage_writers([*tenant_ids, UNIT_COSTS])
        return _make_bills(row, tenant_ids, upto, actor)
    except Conflict:
        with system_scope("period_close"):
            BillingPeriod.objects.filter(pk=row.pk, state=BillingPeriod.State.CLOSING).update(
                state=BillingPeriod.State.OPEN
            )
        raise


def _make_bills(period: BillingPeriod, tenant_ids: list[UUID], upto: int, actor: Actor) -> Closed:
    with system_scope("period_close"):
        row = BillingPeriod.objects.select_for_update(of=("self",)).select_related("issuer").get(pk=period.pk)
        if row.state == BillingPeriod.State.CLOSED:
            return Closed(row, 0)  # somebody else was faster
        issuer = Issuer.objects.select_for_update().get(pk=row.issuer_id)
        # A price that is being set now is waited for; from here on none can be set in this period.
        RateCard.objects.select_for_update().filter(issuer=issuer).first()
        bounds = delimiters_of(row, upto)
        fault_credits_take(row, bounds.window, is_first=bounds.is_first, tenant_ids=tenant_ids)
        found = charges_of(issuer, bounds, tenant_ids=tenant_ids)
        _refuse_unpriced(row, found)
        fault_credits_settle(line for charges in found.values() for line in charges.lines)
        now = utcnow()
        bills: list[Bill] = []
        lines: list[BillLine] = []
        hours: list[BillLineHour] = []
        writer = _LineWriter(found)
        for tenant_id in tenant_ids:
            if tenant_id not in found or not found[tenant_id].lines:
                continue
            drawn = draw(found[tenant_id], issuer.currency)
            late = len(found[tenant_id].late)
            bill = Bill(
                id=uuid7(), tenant_id=tenant_id, period=row, kind=issuer.kind, currency=issuer.currency,
                number=_number(issuer, row, writer.slugs[tenant_id]), total=drawn.total,
                total_minor=minor(drawn.total, issuer.currency), seq_after=bounds.after, seq_upto=bounds.upto,
                digest=digest(drawn, late), closed_at=now, closed_by=actor.label,
            )  # fmt: skip
            bills.append(bill)
            written = writer.lines(bill, drawn, late)
            lines += written
            hours += writer.hours(written, drawn)
        Bill.objects.bulk_create(bills)
        BillLine.objects.bulk_create(lines, batch_size=2000)
        BillLineHour.objects.bulk_create(hours, batch_size=5000)
        issuer.save(update_fields=["next_number"])
        row.state, row.seq_upto = BillingPeriod.State.CLOSED, upto
        row.closed_at, row.closed_by = now, actor.label
        row.save(update_fields=["state", "seq_upto", "closed_at", "closed_by"])
        audit.record(
            "period_close",
            actor=actor,
            tenant_id=None,
            object_kind="billing_period",
            object_id=row.pk,
            object_name=f"{issuer.slug} {row}",
            after={"bills": len(bills), "seq_upto": upto},
        )
        return Closed(row, len(bills))


def _refuse_early(period: BillingPeriod) -> None:
    at = closes_at(period, period.issuer)
    if utcnow() < at:
        raise Conflict(
            f"Period {period} of {period.issuer.name} can be closed from {format_rfc3339(at)}: it ends at "
            f"{format_rfc3339(period.ends_at)}, and {period.issuer.grace_hours} h are left for late evidence."
        )


def _refuse_out_of_order(period: BillingPeriod) -> None:
    later = BillingPeriod.objects.filter(
        issuer=period.issuer, starts_at__gt=period.starts_at, state=BillingPeriod.State.CLOSED
    ).first()
    if later is not None:
        raise Conflict(
            f"Period {later} was closed already. What is found now of {period} comes as late usage on the next bill."
        )
    for earlier in unsettled(periods_ensure(period.issuer)):
        if earlier.starts_at < period.starts_at:
            raise Conflict(f"Period {earlier} of {period.issuer.name} is still open. Close it first.")


def _refuse_behind(period: BillingPeriod) -> None:
    behind = clusters_behind(period)
    if behind:
        raise Conflict(
            f"Period {period} can't be closed yet: usage is not final until {format_rfc3339(period.ends_at)} on "
            f"{', '.join(behind)}. Wait for it, abandon a cluster that is gone, or accept that what comes later is on "
            f"the next bill.",
            code="ClustersBehind",
            clusters=behind,
        )


def _refuse_unpriced(period: BillingPeriod, found: dict[UUID, Charges]) -> None:
    lines = [line for charges in found.values() for line in charges.unpriced]
    unmetered = [
        {"namespace": one.namespace, "pod": one.pod, "reason": one.reason}
        for one in unmetered_pods(before=period.ends_at)
    ]
    if not lines and not unmetered:
        return
    reasons = sorted({line.reason for line in lines} | {entry["reason"] for entry in unmetered})
    raise Conflict(
        f"Period {period} can't be closed: {len(lines)} lines have no price and {len(unmetered)} pods could not be "
        f"metered. {'; '.join(reasons[:3])}.",
        code="Unpriced",
        unpriced=[_told(line) for line in lines[:MOST_TOLD]],
        unmetered=unmetered[:MOST_TOLD],
    )


def _told(line: Line) -> dict[str, str]:
    return {
        "tenant": line.subject.tenant,
        "what": str(line.key),
        "quantity": str(line.quantity),
        "unit": line.unit,
        "reason": line.reason,
    }


def _number(issuer: Issuer, period: BillingPeriod, slug: str) -> str:
    """Invoices count without gaps, under the issuer's lock; a statement is named after its period and tenant."""
    if issuer.kind == Issuer.Kind.STATEMENT:
        return f"{issuer.number_prefix}{period}-{slug}"
    number = f"{issuer.number_prefix}{issuer.next_number:06d}"
    issuer.next_number += 1
    return number


class _LineWriter:
    """Stored lines from drawn ones, with the names that are printed beside the ids."""

    def __init__(self, found: dict[UUID, Charges]) -> None:
        self.slugs = dict(Tenant.objects.values_list("pk", "slug"))
        self.types = dict(GPUType.objects.values_list("slug", "pk"))
        ids = {line.subject.deployment for charges in found.values() for line in charges.lines}
        rows = ModelDeployment.objects.filter(pk__in=ids - {""}).values_list("pk", "name")
        self.names = {str(pk): name for pk, name in rows}

    def lines(self, bill: Bill, drawn: DrawnUp, late: int) -> list[BillLine]:
        """The bill's lines in print order; the first ``late`` are corrections of closed periods."""
        rows = []
        for position, one in enumerate(drawn.lines, start=1):
            line, key = one.line, one.line.key
            assert line.unit_price is not None  # only priced lines are drawn up
            assert line.amount is not None
            deployment_id = UUID(line.subject.deployment) if line.subject.deployment else None
            rows.append(
                BillLine(
                    tenant_id=bill.tenant_id, bill=bill, position=position, kind=line.kind,
                    deployment_id=deployment_id, deployment_name=self.names.get(line.subject.deployment, ""),
                    namespace=line.subject.namespace, gpu_type_id=self.types.get(key.gpu_type) if key else None,
                    sharing=key.sharing if key else "", profile=key.profile if key else "",
                    cost_code=line.subject.cost_code, charge_from=line.segment.start, charge_to=line.segment.end,
                    rate_id=UUID(line.rate_id), gpu_rate_id=UUID(line.gpu_rate_id) if line.gpu_rate_id else None,
                    unit=line.unit, unit_price=line.unit_price, quantity=line.quantity, amount_exact=line.amount,
                    amount_minor=minor(one.amount, bill.currency), amount=one.amount, correction=position <= late,
                    note=line.reason[:250] if line.credit_id else "",
                    credit_id=UUID(line.credit_id) if line.credit_id else None,
                )
            )  # fmt: skip
        return rows

    @staticmethod
    def hours(lines: list[BillLine], drawn: DrawnUp) -> list[BillLineHour]:
        """The hours of lines with an hourly rate, each with the unit cost that it was priced with."""
        return [
            BillLineHour(
                tenant_id=row.tenant_id, line=row, cluster_id=UUID(hour.cluster), charge_from=hour.segment.start,
                charge_to=hour.segment.end, unit_cost_id=UUID(hour.unit_cost_id), unit_price=hour.unit_price,
                quantity=hour.quantity, amount_exact=hour.amount,
            )
            for row, one in zip(lines, drawn.lines, strict=True)
            for hour in one.line.hours
            if hour.unit_price is not None and hour.amount is not None  # only priced lines are drawn up
        ]  # fmt: skip
