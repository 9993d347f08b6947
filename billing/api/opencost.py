"""Ours beside OpenCost's as JSON, how each OpenCost is read, and the hours of a line that it priced."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.platform import FinanceView
from billing.api.serializers import Exact
from billing.api.team import BillBase, window_of
from billing.models import BillLineHour, OpenCostSource
from billing.opencost.compare import Class
from billing.selectors.beside_opencost import Beside, beside_opencost, tenant_namespaces
from billing.selectors.conservation import days_back
from billing.selectors.lines import line_hours
from billing.services.opencost import opencost_set
from infra.models import Cluster, ClusterEndpoint
from portal.kernel.clock import utcnow
from portal.kernel.conditions import get_condition
from portal.kernel.problems import BadRequest, NotFound
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.api.views import TeamView
from tenants.models import Tenant
from tenants.permissions import Perm

REASON = "platform API: OpenCost"
LONGEST_DAYS = 31
WINDOW = [
    OpenApiParameter("start", OpenApiTypes.DATETIME, description="RFC 3339; default: the start of yesterday (UTC)"),
    OpenApiParameter("end", OpenApiTypes.DATETIME, description="RFC 3339, not included"),
]
NARROWED = [
    OpenApiParameter("cluster", OpenApiTypes.STR, description="slug"),
    OpenApiParameter("tenant", OpenApiTypes.STR, description="slug"),
]


class DifferencePartSerializer(serializers.Serializer[Any]):
    """A part of a difference, by its class."""

    name = serializers.ChoiceField(choices=[(one.value, one.value) for one in Class])
    card_hours = Exact()


class BesideSerializer(serializers.Serializer[Any]):
    """A namespace of a cluster on a UTC day. Σ of the parts is the difference, but for rounding."""

    cluster = serializers.CharField()
    namespace = serializers.CharField()
    day = serializers.DateField()
    hours = serializers.IntegerField(help_text="Hours that are compared.")
    our_card_hours = Exact(source="our_hours")
    their_card_hours = Exact(source="their_hours", allow_null=True, help_text="null: OpenCost has no row.")
    difference = Exact(help_text="Theirs less ours.")
    parts = serializers.SerializerMethodField()
    our_cost = Exact(allow_null=True, help_text="null: some of it has no rate.")
    currency = serializers.CharField()
    their_cost = Exact()
    their_currency = serializers.CharField()
    price = Exact(allow_null=True, help_text="The part of the difference in money that is another price.")

    @extend_schema_field(DifferencePartSerializer(many=True))
    def get_parts(self, row: Beside) -> list[dict[str, str]]:
        """What the difference is made of."""
        return [{"name": name.value, "card_hours": Exact().to_representation(hours)} for name, hours in row.parts]


class OpenCostSourceSerializer(serializers.Serializer[Any]):
    """How a cluster's OpenCost is read."""

    cluster = serializers.CharField()
    currency = serializers.CharField(help_text="What its prices are in; its figures carry none.")
    read_until = serializers.DateTimeField(allow_null=True)
    version = serializers.CharField()
    state = serializers.CharField(help_text="Answered, AnswerRefused, NotReached, Paused, or empty: nothing asked yet.")
    message = serializers.CharField()


class OpenCostSettingsSerializer(serializers.Serializer[Any]):
    """What to change."""

    currency = serializers.CharField(max_length=3, required=False, help_text="ISO 4217.")
    read_from = serializers.DateTimeField(required=False, help_text="Have hours read again from this instant on.")


class LineHourSerializer(serializers.ModelSerializer[BillLineHour]):
    """An hour of a line with an hourly rate. Σ of the amounts is the line's, before rounding."""

    cluster = serializers.CharField(source="cluster.slug")
    quantity = Exact()
    unit_cost = Exact(source="unit_cost.price")
    unit_price = Exact(help_text="The unit cost with the rate's margin.")
    amount_exact = Exact()
    basis = serializers.CharField(source="unit_cost.basis")
    revision = serializers.IntegerField(source="unit_cost.answer.revision")

    class Meta:
        model = BillLineHour
        fields = [
            "id", "cluster", "charge_from", "charge_to", "quantity", "unit_cost", "unit_price", "amount_exact", "basis",
            "revision", "unit_cost_id",
        ]  # fmt: skip


class BesideView(FinanceView):
    """Ours beside OpenCost's."""

    pagination_class = None

    @extend_schema(
        operation_id="opencost_compare", parameters=[*WINDOW, *NARROWED], responses=BesideSerializer(many=True)
    )
    def get(self, request: Request) -> Response:
        """By day, cluster and namespace, the latest day first."""
        query = request.query_params
        with system_scope(REASON):
            window = window_of(query, days_back(utcnow(), 2), LONGEST_DAYS)
            cluster, tenant = query.get("cluster"), query.get("tenant")
            row = Cluster.objects.filter(slug=cluster).first() if cluster else None
            team = Tenant.objects.filter(slug=tenant).first() if tenant else None
            if (cluster and row is None) or (tenant and team is None):
                raise BadRequest(f"There is no cluster or tenant of that name: {(cluster or tenant or '')[:60]}.")
            names = tenant_namespaces(team.pk, window) if team else None
            page = beside_opencost(window, cluster_id=row.pk if row else None, namespaces=names)
            return Response(BesideSerializer(page.rows, many=True).data)


class SourcesView(FinanceView):
    """All clusters with an OpenCost."""

    pagination_class = None

    @extend_schema(operation_id="opencost_sources", responses=OpenCostSourceSerializer(many=True))
    def get(self, request: Request) -> Response:
        """By cluster."""
        with system_scope(REASON):
            rows = [_source(one) for one in _endpoints().order_by("cluster__slug")]
            return Response(OpenCostSourceSerializer(rows, many=True).data)


class SourceView(FinanceView):
    """How one cluster's OpenCost is read."""

    @extend_schema(operation_id="opencost_set", request=OpenCostSettingsSerializer, responses=OpenCostSourceSerializer)
    def put(self, request: Request, cluster: str) -> Response:
        """Say in which currency it counts, or have hours read again."""
        row = Cluster.objects.filter(slug=cluster).first()
        if row is None:
            raise NotFound("There is no such cluster.")
        opencost_set(cluster=row, **self.read(OpenCostSettingsSerializer), actor=self.actor)
        with system_scope(REASON):
            return Response(OpenCostSourceSerializer(_source(_endpoints().get(cluster=row))).data)


class TeamBesideView(TeamView):
    """A team's namespaces beside OpenCost's figures."""

    pagination_class = None

    @extend_schema(operation_id="tenant_opencost_compare", parameters=WINDOW, responses=BesideSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """By day, cluster and namespace, the latest day first."""
        row = self.enter(tenant, Perm.BILL_READ)
        window = window_of(request.query_params, days_back(utcnow(), 2), LONGEST_DAYS)
        with tenant_scope(row.pk):
            page = beside_opencost(window, namespaces=tenant_namespaces(row.pk, window))
            return Response(BesideSerializer(page.rows, many=True).data)


class LineHoursView(BillBase):
    """The hours of a line with a rate of OpenCost's unit cost."""

    @extend_schema(operation_id="bill_line_hours", responses=LineHourSerializer(many=True))
    def get(self, request: Request, tenant: str, bill_id: UUID, line_id: UUID) -> Response:
        """In order of time; none where the rate is fixed."""
        row = self.enter(tenant, Perm.BILL_READ)
        with tenant_scope(row.pk):
            rows = line_hours(self.line(row, bill_id, line_id))
            return self.page(rows, LineHourSerializer, ("charge_from", "id"))


def _endpoints() -> Any:
    return ClusterEndpoint.objects.filter(role=ClusterEndpoint.Role.OPENCOST).select_related("cluster")


def _source(endpoint: ClusterEndpoint) -> dict[str, Any]:
    source = OpenCostSource.objects.filter(cluster_id=endpoint.cluster_id).first()
    condition = get_condition(endpoint.conditions, "Reading")
    state = "Paused" if endpoint.paused else condition.reason if condition else ""
    return {
        "cluster": endpoint.cluster.slug,
        "currency": source.currency if source else "USD",
        "read_until": endpoint.read_until,
        "version": endpoint.version,
        "state": state,
        "message": condition.message if condition else "",
    }
