"""Credits for faults over REST."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.serializers import Exact
from billing.models import FaultCredit
from billing.selectors.fault_credits import fault_credits
from billing.services.fault_credits import fault_credit_decide
from portal.kernel.actors import PLATFORM_FINANCE
from portal.kernel.api import PlatformView
from portal.kernel.problems import BadRequest, NotFound
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.api.views import TeamView
from tenants.permissions import Perm

REASON = "platform API: credits for faults"
_STATE = OpenApiParameter("state", OpenApiTypes.STR, enum=FaultCredit.State.values)


class FaultCreditSerializer(serializers.ModelSerializer[FaultCredit]):
    """Time in which a held card was at fault. ``settled``: its end stands. ``period``: the bill that has it."""

    tenant = serializers.CharField(source="tenant.slug")
    fault = serializers.CharField(source="sentence", help_text="The fault, its card and node, and its time.")
    amount = Exact(allow_null=True, help_text="What it takes off; null: it has no price yet.")
    period = serializers.CharField(default=None, allow_null=True)

    class Meta:
        model = FaultCredit
        fields = [
            "id", "tenant", "fault", "fault_class", "happened_at", "because", "node_name", "device", "namespace",
            "pod_name", "deployment_id", "charge_from", "charge_to", "settled", "currency", "amount", "state",
            "decided_by", "decided_at", "decided_why", "period",
        ]  # fmt: skip


class DecisionSerializer(serializers.Serializer[Any]):
    """What is decided, and why."""

    approve = serializers.BooleanField()
    reason = serializers.CharField(max_length=500)


def _state(request: Request) -> str:
    state = request.query_params.get("state", "")
    if state and state not in FaultCredit.State.values:
        raise BadRequest(f"state={state[:40]}: states are {', '.join(FaultCredit.State.values)}.")
    return state


class FaultCreditsView(PlatformView):
    """All teams' credits."""

    writers = (PLATFORM_FINANCE,)

    @extend_schema(operation_id="fault_credit_list", parameters=[_STATE], responses=FaultCreditSerializer(many=True))
    def get(self, request: Request) -> Response:
        """The latest fault first."""
        with system_scope(REASON):
            return self.page(fault_credits(state=_state(request)), FaultCreditSerializer, ("-happened_at", "-id"))


class FaultCreditDecideView(PlatformView):
    """A decision on a credit above the limit."""

    writers = (PLATFORM_FINANCE,)

    @extend_schema(operation_id="fault_credit_decide", request=DecisionSerializer, responses=FaultCreditSerializer)
    def post(self, request: Request, credit_id: UUID) -> Response:
        """Approve it (it is on the next bill) or reject it."""
        body = self.read(DecisionSerializer)
        with system_scope(REASON):
            row = FaultCredit.objects.filter(pk=credit_id).first()
        if row is None:
            raise NotFound("There is no such credit.")
        fault_credit_decide(credit=row, **body, actor=self.actor)
        with system_scope(REASON):
            done = fault_credits().get(pk=row.pk)
            return Response(FaultCreditSerializer(done).data)


class TeamFaultCreditsView(TeamView):
    """A team's credits."""

    @extend_schema(
        operation_id="tenant_fault_credit_list", parameters=[_STATE], responses=FaultCreditSerializer(many=True)
    )
    def get(self, request: Request, tenant: str) -> Response:
        """The latest fault first."""
        row = self.enter(tenant, Perm.BILL_READ)
        with tenant_scope(row.pk):
            rows = fault_credits(tenant_id=row.pk, state=_state(request))
            return self.page(rows, FaultCreditSerializer, ("-happened_at", "-id"))
