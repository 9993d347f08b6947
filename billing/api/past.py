"""The statement of the past over REST: months before clusters were watched, rebuilt from history, on no bill."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.serializers import Exact
from billing.api.team import issuer_or_404
from billing.selectors.past import (
    past_month,
    past_month_named,
    past_months,
    past_tenants,
    platform_past_month_named,
    platform_past_months,
)
from billing.selectors.periods import issuer_named
from portal.kernel.api import PlatformView
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.api.views import TeamView
from tenants.permissions import Perm

REASON = "platform API: the past"


class PastLineSerializer(serializers.Serializer[Any]):
    """A line: what was held, at the rate of then."""

    label = serializers.CharField(help_text="Name of the deployment, or the namespace.")  # type: ignore[assignment]  # a field of that name
    kind = serializers.CharField(source="line.kind.value")
    deployment = serializers.CharField(source="line.subject.deployment")
    cost_code = serializers.CharField(source="line.subject.cost_code")
    what = serializers.SerializerMethodField()
    charge_from = serializers.DateTimeField(source="line.segment.start")
    charge_to = serializers.DateTimeField(source="line.segment.end")
    quantity = Exact(source="line.quantity")
    error = Exact(help_text="By how much the quantity may be too small; it is in no amount.")
    unit = serializers.CharField(source="line.unit")
    unit_price = Exact(source="line.unit_price", allow_null=True)
    amount = Exact(allow_null=True, help_text="Null: there was no rate then.")
    reason = serializers.CharField(source="line.reason", help_text="Why there is no price.")

    def get_what(self, row: Any) -> str:
        """Type, mode and profile of the card."""
        return str(row.line.key or "")


class PastMonthSerializer(serializers.Serializer[Any]):
    """A month that was rebuilt from history. It is on no bill and owed by nobody."""

    month = serializers.CharField(source="month.label")
    start = serializers.DateTimeField(source="month.start")
    end = serializers.DateTimeField(source="month.end")
    currency = serializers.CharField(source="total.currency")
    total = Exact(source="total.amount", help_text="At the rates of then.")
    gpu_hours = Exact()
    proved_hours = Exact(help_text="Of them, those that the Kubernetes API itself proves.")
    error_hours = Exact(help_text="By how much gpu_hours may be too small.")
    unpriced = serializers.IntegerField(help_text="Lines without a rate; in no amount.")


class PastMonthLinesSerializer(PastMonthSerializer):
    """The same with its lines."""

    lines = PastLineSerializer(many=True)


class PastTenantSerializer(serializers.Serializer[Any]):
    """A tenant's month."""

    tenant = serializers.CharField(source="tenant.slug")
    statement = PastMonthSerializer()


class PlatformPastSerializer(serializers.Serializer[Any]):
    """The months with rebuilt time."""

    months = serializers.ListField(child=serializers.CharField())


class PastMonthsView(TeamView):
    """A tenant's months before its clusters were watched."""

    pagination_class = None

    @extend_schema(operation_id="past_list", responses=PastMonthSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """The newest first; not paged."""
        row = self.enter(tenant, Perm.BILL_READ)
        with tenant_scope(row.pk):
            issuer = issuer_or_404(row)
            found = [past_month(row.pk, issuer, month) for month in past_months(row.pk, issuer)]
            return Response(PastMonthSerializer(found, many=True).data)


class PastMonthView(TeamView):
    """One of them."""

    @extend_schema(operation_id="past_get", responses=PastMonthLinesSerializer)
    def get(self, request: Request, tenant: str, period: str) -> Response:
        """The month with its lines."""
        row = self.enter(tenant, Perm.BILL_READ)
        with tenant_scope(row.pk):
            return Response(PastMonthLinesSerializer(past_month_named(row.pk, issuer_or_404(row), period)).data)


class PlatformPastView(PlatformView):
    """All tenants' past."""

    @extend_schema(operation_id="platform_past_list", responses=PlatformPastSerializer)
    def get(self, request: Request, issuer: str) -> Response:
        """The months of the issuer, the newest first."""
        with system_scope(REASON):
            months = [month.label for month in platform_past_months(issuer_named(issuer))]
            return Response(PlatformPastSerializer({"months": months}).data)


class PlatformPastMonthView(PlatformView):
    """All tenants in one month."""

    pagination_class = None

    @extend_schema(operation_id="platform_past_get", responses=PastTenantSerializer(many=True))
    def get(self, request: Request, issuer: str, period: str) -> Response:
        """By slug; not paged."""
        with system_scope(REASON):
            row = issuer_named(issuer)
            found = past_tenants(row, platform_past_month_named(row, period))
            return Response(PastTenantSerializer(found, many=True).data)
