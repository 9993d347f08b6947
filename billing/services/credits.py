"""Credit notes: money given back on a closed bill, which itself stays as it is."""

from __future__ import annotations

from decimal import Decimal

from django.db.models import Sum

from billing.drawing import minor
from billing.models import Bill, BillLine, CreditNote, Issuer
from portal.kernel import audit
from portal.kernel.actors import Actor
from portal.kernel.money import minor_units, quantize
from portal.kernel.problems import Conflict, Invalid
from portal.kernel.scoping import system_scope
from tenants.permissions import Perm, require


def credit_note_create(
    *, bill: Bill, amount: Decimal, reason: str, actor: Actor, line: BillLine | None = None
) -> CreditNote:
    """Give back ``amount`` on a bill, or on one of its lines.

    Raises:
        Forbidden: the actor may not close periods. Invalid: the amount or the reason can't be used.
        Conflict: together with earlier notes it is more than the bill, or the line, asks for.
    """
    require(actor, Perm.BILL_CLOSE)
    if not amount.is_finite() or amount <= 0:
        raise Invalid.field("/amount", "Give a positive amount.")
    if amount != quantize(amount, minor_units(bill.currency)):
        raise Invalid.field("/amount", f"{bill.currency} has {minor_units(bill.currency)} decimals.")
    if not reason.strip():
        raise Invalid.field("/reason", "Say why the money is given back.")
    with system_scope("credit_note_create"):
        # Bills can't be locked (nobody may change them), so notes of one issuer are made one after another.
        issuer = Issuer.objects.select_for_update(of=("self",)).get(periods__bills=bill.pk)
        row = Bill.objects.get(pk=bill.pk)
        part = BillLine.objects.get(pk=line.pk, bill=row) if line else None
        _refuse_too_much(row, part, minor(amount, row.currency))
        count = CreditNote.objects.filter(bill=row).count()
        note = CreditNote.objects.create(
            tenant_id=row.tenant_id, bill=row, line=part, number=_number(issuer, row, count + 1),
            currency=row.currency, amount=amount, amount_minor=minor(amount, row.currency),
            reason=reason.strip(), created_by=actor.label,
        )  # fmt: skip
        audit.record(
            "credit_note_create", actor=actor, tenant_id=row.tenant_id, object_kind="credit_note",
            object_id=note.pk, object_name=note.number,
            after={"bill": row.number, "amount": str(amount), "currency": row.currency, "reason": note.reason},
        )  # fmt: skip
        return note


def _refuse_too_much(bill: Bill, line: BillLine | None, amount_minor: int) -> None:
    given = CreditNote.objects.filter(bill=bill).aggregate(sum=Sum("amount_minor"))["sum"] or 0
    if given + amount_minor > bill.total_minor:
        raise Conflict(
            f"Bill {bill.number} asks for {bill.total} {bill.currency}, of which {given} minor units were given "
            f"back already. A credit can't be more than the rest."
        )
    if line is not None:
        given = CreditNote.objects.filter(line=line).aggregate(sum=Sum("amount_minor"))["sum"] or 0
        if given + amount_minor > line.amount_minor:
            raise Conflict(
                f"Line {line.position} of bill {bill.number} asks for {line.amount} {bill.currency} and can't be "
                f"credited with more."
            )


def _number(issuer: Issuer, bill: Bill, count: int) -> str:
    if issuer.kind == Issuer.Kind.STATEMENT:
        return f"{bill.number}-C{count}"
    number = f"{issuer.number_prefix}{issuer.next_number:06d}"
    issuer.next_number += 1
    issuer.save(update_fields=["next_number"])
    return number
