"""Rates, periods and conservation over REST, for platform roles; finance changes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from billing import exports
from billing.api import capacity
from billing.api import serializers as shapes
from billing.api.files import CSV_ANSWER, FILE_RENDERERS
from billing.api.team import instant_of, window_of
from billing.models import Bill, BillingPeriod, BillLine, CreditNote, Issuer, Rate, RateCard
from billing.selectors.bills import bills, period_states
from billing.selectors.conservation import (
    capacity_by_type,
    capacity_hours,
    days_back,
    latest_hour,
    unmapped_namespaces,
)
from billing.selectors.periods import closes_at, issuer_named, period_named
from billing.selectors.ratecard import rates_of, unpriced_keys
from billing.selectors.statements import TenantStatement, period_blockers, period_statements
from billing.services.close import period_close
from billing.services.credits import credit_note_create
from billing.services.periods import period_ensure
from billing.services.rates import rate_end, rate_set
from billing.services.setup import account_set, issuer_ensure
from infra.models import Cluster, GPUType
from portal.kernel.actors import PLATFORM_FINANCE
from portal.kernel.api import PlatformView
from portal.kernel.clock import Interval, utcnow
from portal.kernel.problems import BadRequest, Conflict, Invalid, NotFound
from portal.kernel.scoping import system_scope
from tenants.api.views import flag
from tenants.permissions import tenant_for

REASON = "platform API: billing"
WINDOW = [
    OpenApiParameter("start", OpenApiTypes.DATETIME, description="RFC 3339; default: a week of days until now"),
    OpenApiParameter("end", OpenApiTypes.DATETIME, description="RFC 3339, not included"),
    OpenApiParameter("cluster", OpenApiTypes.STR, description="slug"),
    OpenApiParameter("gpu_type", OpenApiTypes.STR, description="slug"),
]
LONGEST_DAYS = 92


class FinanceView(PlatformView):
    """Any platform role reads, finance (and a platform-admin) changes."""

    writers = (PLATFORM_FINANCE,)


class IssuersView(FinanceView):
    """Who bills."""

    @extend_schema(operation_id="issuer_list", responses=shapes.IssuerSerializer(many=True))
    def get(self, request: Request) -> Response:
        """All issuers."""
        return self.page(Issuer.objects.all(), shapes.IssuerSerializer, ("slug", "id"))

    @extend_schema(
        operation_id="issuer_create", request=shapes.NewIssuerSerializer, responses={201: shapes.IssuerSerializer}
    )
    def post(self, request: Request) -> Response:
        """Make one, with an empty rate card."""
        body = self.read(shapes.NewIssuerSerializer)
        body["currency"] = body["currency"].upper()
        if Issuer.objects.filter(slug=body["slug"]).exists():
            raise Conflict(f"There is an issuer {body['slug']} already.")
        return Response(shapes.IssuerSerializer(issuer_ensure(**body, actor=self.actor)).data, status=201)


class IssuerView(FinanceView):
    """One issuer."""

    @extend_schema(operation_id="issuer_get", responses=shapes.IssuerSerializer)
    def get(self, request: Request, issuer: str) -> Response:
        """The issuer."""
        return Response(shapes.IssuerSerializer(issuer_named(issuer)).data)


class AccountView(FinanceView):
    """Which issuer bills a tenant."""

    @extend_schema(operation_id="account_set", request=shapes.AccountSerializer, responses=shapes.AccountSerializer)
    def put(self, request: Request, tenant: str) -> Response:
        """From its next close on."""
        row = tenant_for(self.actor, tenant)
        slug = self.read(shapes.AccountSerializer)["issuer"]
        issuer = Issuer.objects.filter(slug=slug).first()
        if issuer is None:
            raise Invalid.field("/issuer", f"There is no issuer {slug}. See GET /api/v1/billing/issuers.")
        account = account_set(tenant=row, issuer=issuer, actor=self.actor)
        return Response({"issuer": account.issuer.slug})


class RatesView(FinanceView):
    """An issuer's rate card."""

    @extend_schema(
        operation_id="rate_list",
        parameters=[OpenApiParameter("at", OpenApiTypes.DATETIME, description="only what is in force then")],
        responses=shapes.RateSerializer(many=True),
    )
    def get(self, request: Request, issuer: str) -> Response:
        """Current, past and future rates, the latest first."""
        rows = rates_of(issuer_named(issuer))
        if text := request.query_params.get("at"):
            at = instant_of("at", text)
            rows = rows.filter(valid_from__lte=at).exclude(valid_to__lte=at)
        return self.page(rows, shapes.RateSerializer, ("-valid_from", "id"))

    @extend_schema(operation_id="rate_set", request=shapes.NewRateSerializer, responses={201: shapes.RateSerializer})
    def post(self, request: Request, issuer: str) -> Response:
        """Set a price from an instant on; the one in force ends there."""
        row = issuer_named(issuer)
        body = self.read(shapes.NewRateSerializer)
        if body["gpu_type"]:
            body["gpu_type"] = _gpu_type(body["gpu_type"])
        else:
            body["gpu_type"] = None
        rate = rate_set(card=RateCard.objects.select_related("issuer").get(issuer=row), **body, actor=self.actor)
        return Response(shapes.RateSerializer(rate).data, status=201)


class RateEndView(FinanceView):
    """The end of a rate."""

    @extend_schema(operation_id="rate_end", request=shapes.RateEndSerializer, responses=shapes.RateSerializer)
    def post(self, request: Request, rate_id: UUID) -> Response:
        """Let it end without another one."""
        rate = Rate.objects.select_related("card__issuer", "gpu_type").filter(pk=rate_id).first()
        if rate is None:
            raise NotFound("There is no such rate.")
        done = rate_end(rate=rate, **self.read(shapes.RateEndSerializer), actor=self.actor)
        return Response(shapes.RateSerializer(done).data)


class UnpricedView(FinanceView):
    """What has no rate."""

    pagination_class = None

    @extend_schema(operation_id="unpriced_list", responses=shapes.UnpricedSerializer(many=True))
    def get(self, request: Request, issuer: str) -> Response:
        """What was used without a price in open periods, then what is only there."""
        row = issuer_named(issuer)
        with system_scope(REASON):
            return Response(shapes.UnpricedSerializer(unpriced_keys(row), many=True).data)


class PeriodsView(FinanceView):
    """An issuer's months."""

    pagination_class = None

    @extend_schema(operation_id="period_list", responses=shapes.PeriodStateSerializer(many=True))
    def get(self, request: Request, issuer: str) -> Response:
        """All of them, the latest first."""
        row = issuer_named(issuer)
        with system_scope(REASON):
            return Response(shapes.PeriodStateSerializer(period_states(row), many=True).data)


class PeriodView(FinanceView):
    """One month."""

    @extend_schema(operation_id="period_get", responses=shapes.PeriodDetailSerializer)
    def get(self, request: Request, issuer: str, period: str) -> Response:
        """Every tenant's bill or running total, and what keeps the month from being closed."""
        row = period_named(issuer_named(issuer), period)
        with system_scope(REASON):
            statements = period_statements(row)
            closed = row.state == BillingPeriod.State.CLOSED
            unpriced = sum(one.unpriced for one in statements)
            body = {
                "period": row, "closes_at": closes_at(row, row.issuer), "statements": statements,
                "blockers": [] if closed else period_blockers(row, unpriced=unpriced, reasons=_reasons(statements)),
            }  # fmt: skip
            return Response(shapes.PeriodDetailSerializer(body).data)


class PeriodCloseView(FinanceView):
    """The close of a month."""

    @extend_schema(operation_id="period_close", request=shapes.CloseSerializer, responses=shapes.ClosedSerializer)
    def post(self, request: Request, issuer: str, period: str) -> Response:
        """Make every tenant's bill at once, or none. Doing it again changes nothing."""
        row = period_named(issuer_named(issuer), period)
        body = self.read(shapes.CloseSerializer)
        done = period_close(period=period_ensure(row.issuer, row.starts_at), **body, actor=self.actor)
        return Response(shapes.ClosedSerializer(done).data)


class PeriodFileView(FinanceView):
    """A month as a file."""

    pagination_class = None
    renderer_classes = FILE_RENDERERS

    @extend_schema(operation_id="period_csv", responses=CSV_ANSWER)
    def get(self, request: Request, issuer: str, period: str) -> HttpResponse:
        """A closed month: the lines of all bills. An open one: what final hours cost so far, by tenant."""
        row = period_named(issuer_named(issuer), period)
        with system_scope(REASON):
            if row.state == BillingPeriod.State.CLOSED:
                return exports.period_csv(row).response()
            return exports.statements_csv(row, period_statements(row)).response()


class AllBillsView(FinanceView):
    """Closed bills of all tenants."""

    @extend_schema(
        operation_id="platform_bill_list",
        parameters=[
            OpenApiParameter("issuer", OpenApiTypes.STR, description="slug"),
            OpenApiParameter("period", OpenApiTypes.STR, description="such as 2026-11"),
            OpenApiParameter("tenant", OpenApiTypes.STR, description="slug"),
        ],
        responses=shapes.BillSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """The newest first."""
        query = request.query_params
        with system_scope(REASON):
            rows = bills().select_related("period__issuer", "tenant")
            if slug := query.get("issuer"):
                rows = rows.filter(period__issuer__slug=slug)
            if slug := query.get("tenant"):
                rows = rows.filter(tenant__slug=slug)
            if label := query.get("period"):
                year, _, month = label.partition("-")
                if not (year.isascii() and year.isdigit() and month.isascii() and month.isdigit() and len(label) == 7):
                    raise BadRequest(f"period={label[:40]}: write it like 2026-11.")
                rows = rows.filter(period__year=int(year), period__month=int(month))
            return self.page(rows, shapes.BillSerializer, ("-closed_at", "-id"))


class CreditNotesView(FinanceView):
    """Money given back on a bill."""

    @extend_schema(
        operation_id="credit_note_create",
        request=shapes.NewCreditNoteSerializer,
        responses={201: shapes.CreditNoteSerializer},
    )
    def post(self, request: Request, bill_id: UUID) -> Response:
        """Give money back, on the bill or on a line of it. Send an Idempotency-Key."""
        body = self.read(shapes.NewCreditNoteSerializer)
        position = body.pop("line")
        with system_scope(REASON):
            bill = Bill.objects.filter(pk=bill_id).first()
            line = BillLine.objects.filter(bill_id=bill_id, position=position).first() if position else None
        if bill is None:
            raise NotFound("There is no such bill.")
        if position and line is None:
            raise Invalid.field("/line", f"Bill {bill.number} has no line {position}.")
        note = credit_note_create(bill=bill, line=line, **body, actor=self.actor)
        with system_scope(REASON):
            row = CreditNote.objects.select_related("bill", "line").get(pk=note.pk)
            return Response(shapes.CreditNoteSerializer(row).data, status=201)


class _Hours(FinanceView):
    """What both views of where the hours go share."""

    def asked(self, request: Request, days: int) -> tuple[Interval, dict[str, UUID | None]]:
        """The window, and what narrows it."""
        query = request.query_params
        window = window_of(query, days_back(latest_hour() or utcnow(), days), LONGEST_DAYS)
        found: dict[str, UUID | None] = {"cluster_id": None, "gpu_type_id": None}
        models: tuple[tuple[str, Any], ...] = (("cluster", Cluster), ("gpu_type", GPUType))
        for name, model in models:
            if slug := query.get(name):
                row = model.objects.filter(slug=slug).first()
                if row is None:
                    raise BadRequest(f"{name}={slug[:60]}: there is none of that name.")
                found[f"{name}_id"] = row.pk
        return window, found


class ConservationView(_Hours):
    """Where the cards' hours went."""

    pagination_class = None

    @extend_schema(
        operation_id="conservation_list", parameters=WINDOW, responses=capacity.TypeCapacitySerializer(many=True)
    )
    def get(self, request: Request) -> Response:
        """By day, cluster, type and mode; the latest first."""
        with system_scope(REASON):
            window, narrow = self.asked(request, 7)
            rows = capacity_by_type(window, by_day=True, **narrow)
            return Response(capacity.TypeCapacitySerializer(rows, many=True).data)


class ConservationHoursView(_Hours):
    """Where the cards' hours went, by node and hour."""

    @extend_schema(
        operation_id="conservation_hours",
        parameters=[
            *WINDOW,
            OpenApiParameter("wrong", OpenApiTypes.BOOL, description="only what does not add up"),
        ],
        responses=capacity.CapacityHourSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """The latest hour first."""
        with system_scope(REASON):
            window, narrow = self.asked(request, 7)
            rows = capacity_hours(window, wrong=flag(request.query_params, "wrong"), **narrow)
            return self.page(rows, capacity.CapacityHourSerializer, ("-hour", "id"))


class UnattributedView(_Hours):
    """Usage that is nobody's."""

    pagination_class = None

    @extend_schema(
        operation_id="unattributed_list", parameters=WINDOW[:2], responses=capacity.UnattributedSerializer(many=True)
    )
    def get(self, request: Request) -> Response:
        """Namespaces without a tenant, the largest first."""
        with system_scope(REASON):
            window, _ = self.asked(request, 7)
            return Response(capacity.UnattributedSerializer(unmapped_namespaces(window), many=True).data)


def _reasons(statements: Iterable[TenantStatement]) -> list[str]:
    """Why lines have no price, over all tenants."""
    return sorted({reason for one in statements for reason in one.reasons})


def _gpu_type(slug: str) -> GPUType:
    row = GPUType.objects.filter(slug=slug).first()
    if row is None:
        raise Invalid.field("/gpu_type", f"There is no GPU type {slug}. See GET /api/v1/gpu-types.")
    return row
