"""A team's bills: the running month first, then the closed ones; a bill opens to lines, a line to allocations."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import Sum
from django.http import HttpResponse
from django.views.decorators.http import require_safe

from billing import exports
from billing.models import Bill, BillLine, CreditNote
from billing.selectors.bills import bill_lines
from billing.selectors.bills import bills as tenant_bills
from billing.selectors.lines import bill_line_parts, estimated_hours, line_adds_up, line_hours
from billing.selectors.statements import OpenPeriod, open_lines, open_periods, shares_of
from billing.web.paging import SIZE, page_from, page_number, page_of
from portal.kernel.problems import NotFound
from portal.kernel.scoping import tenant_scope
from portal.kernel.web import actor_of
from tenants.permissions import Perm, may
from tenants.web.pages import TeamRequest, team_page, team_render

SHOWN = 8
SHOWN_HOURS = 48


@require_safe
@team_page(Perm.BILL_READ)
def bills(request: TeamRequest) -> HttpResponse:
    """Charges so far, and every closed bill."""

    def context() -> dict[str, Any]:
        running = []
        for one in open_periods(request.tenant.pk):
            lines = open_lines(request.tenant.pk, one.preview)
            shares = shares_of(lines)
            running.append((one, shares[:SHOWN], len(shares) - SHOWN))
        offset = (page_number(request) - 1) * SIZE
        rows = tenant_bills().filter(tenant=request.tenant).annotate(credit=Sum("credit_notes__amount"))
        return {"running": running, "page": page_from(request, list(rows[offset : offset + SIZE + 1]))}

    return team_render(request, "billing/bills.html", context)


@require_safe
@team_page(Perm.BILL_READ)
def running(request: TeamRequest, period: str) -> HttpResponse:
    """An open month as its bill would be now, line by line."""

    def context() -> dict[str, Any]:
        one = _open(request, period)
        lines = open_lines(request.tenant.pk, one.preview)
        return {"one": one, "page": page_of(request, lines), "currency": one.preview.issuer.currency}

    return team_render(request, "billing/running.html", context)


@require_safe
@team_page(Perm.BILL_READ)
def running_csv(request: TeamRequest, period: str) -> HttpResponse:
    """The same as a file."""
    with tenant_scope(request.tenant.pk):
        one = _open(request, period)
        export = exports.running_csv(request.tenant.slug, one, open_lines(request.tenant.pk, one.preview))
    return export.response()


def _open(request: TeamRequest, label: str) -> OpenPeriod:
    for one in open_periods(request.tenant.pk):
        if str(one.period) == label:
            return one
    raise NotFound(f"{request.tenant.slug} has no open period {label}. A closed one is among its bills.")


@require_safe
@team_page(Perm.BILL_READ)
def bill(request: TeamRequest, bill_id: UUID) -> HttpResponse:
    """A closed bill with its lines, late usage and credits marked."""

    def context() -> dict[str, Any]:
        row = bill_of(request, bill_id)
        offset = (page_number(request) - 1) * SIZE
        sums = BillLine.objects.filter(bill=row).aggregate(minor=Sum("amount_minor"), total=Sum("amount"))
        notes = list(CreditNote.objects.filter(bill=row).select_related("line").order_by("created_at"))
        actor = actor_of(request)
        return {
            "bill": row,
            "page": page_from(request, list(bill_lines(row)[offset : offset + SIZE + 1])),
            "sum": sums["total"],
            "adds_up": (sums["minor"] or 0) == row.total_minor,
            "notes": notes,
            "net": row.total - sum(note.amount for note in notes),
            "may_credit": actor is not None and may(actor, Perm.BILL_CLOSE),
        }

    return team_render(request, "billing/bill.html", context)


@require_safe
@team_page(Perm.BILL_READ)
def bill_csv(request: TeamRequest, bill_id: UUID) -> HttpResponse:
    """The bill's lines as a file."""
    with tenant_scope(request.tenant.pk):
        export = exports.bill_csv(bill_of(request, bill_id))
    return export.response()


@require_safe
@team_page(Perm.BILL_READ)
def line(request: TeamRequest, bill_id: UUID, line_id: UUID) -> HttpResponse:
    """A line, and the allocations that it is made of."""

    def context() -> dict[str, Any]:
        row = line_of(request, bill_id, line_id)
        parts = bill_line_parts(row, limit=SIZE + 1, offset=(page_number(request) - 1) * SIZE)
        hours, estimated = line_hours(row), estimated_hours(row)
        count = hours.count() or len(estimated)
        return {
            "hours": hours[:SHOWN_HOURS],
            "estimated": estimated[:SHOWN_HOURS],
            "hour_count": count,
            "more_hours": count > SHOWN_HOURS,
            "shown_hours": SHOWN_HOURS,
            "line": row,
            "bill": row.bill,
            "parts": parts,
            "page": page_from(request, parts.rows, parts.count),
            "adds_up": line_adds_up(row, parts),
            "notes": CreditNote.objects.filter(line=row).order_by("created_at"),
        }

    return team_render(request, "billing/line.html", context)


@require_safe
@team_page(Perm.BILL_READ)
def line_csv(request: TeamRequest, bill_id: UUID, line_id: UUID) -> HttpResponse:
    """All allocations of a line as a file: with it the line can be computed again."""
    with tenant_scope(request.tenant.pk):
        row = line_of(request, bill_id, line_id)
        export = exports.line_file(row)
    return export.response()


@require_safe
@team_page(Perm.BILL_READ)
def line_hours_csv(request: TeamRequest, bill_id: UUID, line_id: UUID) -> HttpResponse:
    """The hours of a line with their unit costs as a file."""
    with tenant_scope(request.tenant.pk):
        export = exports.line_hours_csv(line_of(request, bill_id, line_id))
    return export.response()


def bill_of(request: TeamRequest, bill_id: UUID) -> Bill:
    """The tenant's bill of that id, within its scope.

    Raises:
        NotFound: there is none, or it is another tenant's.
    """
    row = tenant_bills().select_related("period__issuer").filter(tenant=request.tenant, pk=bill_id).first()
    if row is None:
        raise NotFound(f"{request.tenant.slug} has no such bill.")
    return row


def line_of(request: TeamRequest, bill_id: UUID, line_id: UUID) -> BillLine:
    """A line of one of the tenant's bills, within its scope.

    Raises:
        NotFound: there is none, or it is another tenant's.
    """
    row = (
        BillLine.objects.filter(tenant=request.tenant, bill_id=bill_id, pk=line_id)
        .select_related("bill__period__issuer", "gpu_type", "rate", "gpu_rate")
        .first()
    )
    if row is None:
        raise NotFound(f"{request.tenant.slug} has no such line.")
    return row
