"""A team's usage and bills over REST, below ``/tenants/<tenant>``."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpResponse, QueryDict
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from billing import exports
from billing.api import serializers as shapes
from billing.api.files import CSV_ANSWER, FILE_RENDERERS
from billing.models import Bill, BillLine, CreditNote, Issuer
from billing.selectors.bills import bill_lines, bills
from billing.selectors.charges import issuer_of
from billing.selectors.costs import current_period
from billing.selectors.lines import bill_line_parts, line_adds_up
from billing.selectors.statements import OpenPeriod, open_lines, open_periods
from billing.selectors.usage import DIMENSIONS, STANDARD, UsageTable, narrowed, usage_final_until, usage_table
from infra.models.hardware import SharingMode
from portal.kernel.clock import Interval, format_rfc3339, parse_rfc3339, utcnow
from portal.kernel.problems import BadRequest, NotFound
from portal.kernel.scoping import tenant_scope
from tenants.api.views import TeamView
from tenants.models import Tenant
from tenants.permissions import Perm

LONGEST_DAYS = 400
LARGEST_PAGE = 1000
USAGE_PARAMETERS = [
    OpenApiParameter("start", OpenApiTypes.DATETIME, description="RFC 3339; default: the start of the month"),
    OpenApiParameter("end", OpenApiTypes.DATETIME, description="RFC 3339, not included; default: the month's end"),
    OpenApiParameter("by", OpenApiTypes.STR, many=True, enum=DIMENSIONS, description="rows; default: the first four"),
    OpenApiParameter("deployment", OpenApiTypes.STR, description="id or name, or ns: and a namespace"),
    OpenApiParameter("gpu_type", OpenApiTypes.STR, description="slug"),
    OpenApiParameter("sharing", OpenApiTypes.STR, enum=SharingMode.values),
]
PAGE_PARAMETERS = [
    OpenApiParameter("offset", OpenApiTypes.INT, description="rows to leave out; default 0"),
    OpenApiParameter("limit", OpenApiTypes.INT, description=f"rows, up to {LARGEST_PAGE}; default 100"),
]


def instant_of(name: str, text: str) -> datetime:
    """An instant of a query.

    Raises:
        BadRequest: it is none, or so far away that nothing was ever measured there.
    """
    try:
        instant = parse_rfc3339(text)
    except ValueError as error:
        raise BadRequest(f"{name}: {error}.") from error
    if not 2000 <= instant.year < 2200:
        raise BadRequest(f"{name}={text}: nothing was measured in that year.")
    return instant


def window_of(query: QueryDict, standard: Interval, longest_days: int = LONGEST_DAYS) -> Interval:
    """``start`` and ``end`` of a query.

    Raises:
        BadRequest: no instants, the wrong way round, or too far apart.
    """
    start = instant_of("start", str(query["start"])) if query.get("start") else standard.start
    end = instant_of("end", str(query["end"])) if query.get("end") else max(standard.end, start)
    if end < start:
        raise BadRequest(f"end={format_rfc3339(end)} is before start={format_rfc3339(start)}.")
    if (end - start).days > longest_days:
        raise BadRequest(f"start and end are more than {longest_days} days apart. Ask for less.")
    return Interval(start, end)


def number_of(query: QueryDict, name: str, standard: int, largest: int) -> int:
    """A whole number of a query, from 0.

    Raises:
        BadRequest: it is none, or too large.
    """
    text = query.get(name, "")
    if not text:
        return standard
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) > largest:
        raise BadRequest(f"{name}={text[:40]}: give a whole number from 0 to {largest}.")
    return int(text)


class _Usage(TeamView):
    """What both forms of the usage share."""

    pagination_class = None

    def asked(self, request: Request, tenant: Tenant, issuer: Issuer) -> tuple[Interval, UsageTable]:
        """The window and the table, within a scope of the tenant."""
        query = request.query_params
        window = window_of(query, current_period(issuer, utcnow()))
        by = query.getlist("by") or list(STANDARD)
        for name in by:
            if name not in DIMENSIONS:
                raise BadRequest(f"by={name[:40]}: use {', '.join(DIMENSIONS)}.")
        only = narrowed(
            tenant.pk, deployment=query.get("deployment", ""), gpu_type=query.get("gpu_type", ""),
            sharing=query.get("sharing", ""),
        )  # fmt: skip
        if only is None:
            raise BadRequest("deployment, gpu_type or sharing names nothing that is known.")
        return window, usage_table(tenant.pk, issuer, window, by=by, only=only)


def issuer_or_404(tenant: Tenant) -> Issuer:
    """Who bills the tenant.

    Raises:
        NotFound: nobody does yet.
    """
    issuer = issuer_of(tenant.pk)
    if issuer is None:
        raise NotFound(f"Nobody bills {tenant.slug} yet: there is no issuer.")
    return issuer


class UsageView(_Usage):
    """Usage of final hours."""

    @extend_schema(operation_id="usage_get", parameters=USAGE_PARAMETERS, responses=shapes.UsageSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """By day, deployment, type of card and mode."""
        row = self.enter(tenant, Perm.BILL_READ)
        with tenant_scope(row.pk):
            issuer = issuer_or_404(row)
            window, table = self.asked(request, row, issuer)
            body = {
                "start": window.start, "end": window.end, "final_until": usage_final_until(row.pk),
                "currency": issuer.currency, "time_zone": issuer.time_zone, "total": table.total,
                "past": table.past, "rows": table.rows,
            }  # fmt: skip
            return Response(shapes.UsageSerializer(body).data)


class UsageFileView(_Usage):
    """Usage as a file."""

    renderer_classes = FILE_RENDERERS

    @extend_schema(operation_id="usage_csv", parameters=USAGE_PARAMETERS, responses=CSV_ANSWER)
    def get(self, request: Request, tenant: str) -> HttpResponse:
        """The same rows as CSV."""
        row = self.enter(tenant, Perm.BILL_READ)
        with tenant_scope(row.pk):
            issuer = issuer_or_404(row)
            _, table = self.asked(request, row, issuer)
            return exports.usage_csv(row.slug, issuer.currency, table.rows).response()


def open_period_body(tenant: Tenant, one: OpenPeriod) -> dict[str, Any]:
    """An open period for its serializer, within a scope of the tenant."""
    preview = one.preview
    return {
        "period": str(one.period), "issuer": preview.issuer.slug, "currency": preview.issuer.currency,
        "start": one.period.starts_at, "end": one.period.ends_at, "current": one.is_current,
        "total": preview.total.amount, "final": preview.recorded.amount, "open": preview.running_amount.amount,
        "known_until": preview.running.known_until, "unpriced": len(preview.unpriced),
        "lines": open_lines(tenant.pk, preview),
    }  # fmt: skip


class ChargesView(TeamView):
    """What is not on a bill yet."""

    pagination_class = None

    @extend_schema(operation_id="charges_list", responses=shapes.OpenPeriodSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """Open periods with their lines, the open hour included; the latest first."""
        row = self.enter(tenant, Perm.BILL_READ)
        with tenant_scope(row.pk):
            bodies = [open_period_body(row, one) for one in open_periods(row.pk)]
            return Response(shapes.OpenPeriodSerializer(bodies, many=True).data)


class BillsView(TeamView):
    """Closed bills."""

    @extend_schema(operation_id="bill_list", responses=shapes.BillSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """The newest first."""
        row = self.enter(tenant, Perm.BILL_READ)
        with tenant_scope(row.pk):
            rows = bills().filter(tenant=row).select_related("period__issuer", "tenant")
            return self.page(rows, shapes.BillSerializer, ("-closed_at", "-id"))


class BillBase(TeamView):
    """A view of one bill."""

    def bill(self, tenant: Tenant, bill_id: UUID) -> Bill:
        """The tenant's bill, within its scope."""
        rows = bills().filter(tenant=tenant).select_related("period__issuer", "tenant")
        row = rows.filter(pk=bill_id).first()
        if row is None:
            raise NotFound(f"{tenant.slug} has no such bill.")
        return row

    def line(self, tenant: Tenant, bill_id: UUID, line_id: UUID) -> BillLine:
        """A line of it, within its scope."""
        rows = BillLine.objects.filter(tenant=tenant, bill_id=bill_id, pk=line_id)
        row = rows.select_related("bill", "gpu_type", "gpu_rate", "rate").first()
        if row is None:
            raise NotFound(f"{tenant.slug} has no such line.")
        return row


class BillView(BillBase):
    """One bill."""

    @extend_schema(operation_id="bill_get", responses=shapes.BillSerializer)
    def get(self, request: Request, tenant: str, bill_id: UUID) -> Response:
        """The bill without its lines."""
        row = self.enter(tenant, Perm.BILL_READ)
        with tenant_scope(row.pk):
            return Response(shapes.BillSerializer(self.bill(row, bill_id)).data)


class BillFileView(BillBase):
    """A bill as a file."""

    pagination_class = None
    renderer_classes = FILE_RENDERERS

    @extend_schema(operation_id="bill_csv", responses=CSV_ANSWER)
    def get(self, request: Request, tenant: str, bill_id: UUID) -> HttpResponse:
        """Its lines as CSV."""
        row = self.enter(tenant, Perm.BILL_READ)
        with tenant_scope(row.pk):
            return exports.bill_csv(self.bill(row, bill_id)).response()


class BillLinesView(BillBase):
    """A bill's lines."""

    @extend_schema(operation_id="bill_lines", responses=shapes.BillLineSerializer(many=True))
    def get(self, request: Request, tenant: str, bill_id: UUID) -> Response:
        """In print order."""
        row = self.enter(tenant, Perm.BILL_READ)
        with tenant_scope(row.pk):
            return self.page(bill_lines(self.bill(row, bill_id)), shapes.BillLineSerializer, ("position",))


class BillLineView(BillBase):
    """One line."""

    @extend_schema(operation_id="bill_line_get", responses=shapes.BillLineSerializer)
    def get(self, request: Request, tenant: str, bill_id: UUID, line_id: UUID) -> Response:
        """The line."""
        row = self.enter(tenant, Perm.BILL_READ)
        with tenant_scope(row.pk):
            return Response(shapes.BillLineSerializer(self.line(row, bill_id, line_id)).data)


class LineAllocationsView(BillBase):
    """What a line is made of."""

    pagination_class = None

    @extend_schema(
        operation_id="bill_line_allocations", parameters=PAGE_PARAMETERS, responses=shapes.LinePartsSerializer
    )
    def get(self, request: Request, tenant: str, bill_id: UUID, line_id: UUID) -> Response:
        """Allocations by their first moment; the sum is of all of them."""
        row = self.enter(tenant, Perm.BILL_READ)
        offset = number_of(request.query_params, "offset", 0, 10_000_000)
        limit = number_of(request.query_params, "limit", 100, LARGEST_PAGE)
        with tenant_scope(row.pk):
            line = self.line(row, bill_id, line_id)
            parts = bill_line_parts(line, limit=limit, offset=offset)
            body = {
                "count": parts.count, "offset": offset, "quantity": parts.shown_quantity,
                "adds_up": line_adds_up(line, parts), "rows": parts.rows,
            }  # fmt: skip
            return Response(shapes.LinePartsSerializer(body).data)


class LineFileView(BillBase):
    """A line's allocations as a file."""

    pagination_class = None
    renderer_classes = FILE_RENDERERS

    @extend_schema(operation_id="bill_line_csv", responses=CSV_ANSWER)
    def get(self, request: Request, tenant: str, bill_id: UUID, line_id: UUID) -> HttpResponse:
        """All of them as CSV: with it the line can be computed again."""
        row = self.enter(tenant, Perm.BILL_READ)
        with tenant_scope(row.pk):
            line = self.line(row, bill_id, line_id)
            return exports.line_file(line).response()


class TeamCreditNotesView(BillBase):
    """Money given back on a bill."""

    @extend_schema(operation_id="bill_credit_notes", responses=shapes.CreditNoteSerializer(many=True))
    def get(self, request: Request, tenant: str, bill_id: UUID) -> Response:
        """The newest first."""
        row = self.enter(tenant, Perm.BILL_READ)
        with tenant_scope(row.pk):
            notes = CreditNote.objects.filter(bill=self.bill(row, bill_id)).select_related("bill", "line")
            return self.page(notes, shapes.CreditNoteSerializer, ("-created_at", "-id"))
