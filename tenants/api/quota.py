"""Quotas over REST: of what they are made, requests, moves of parts, and the platform's view of all of them."""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from infra.models import Cluster, GPUType
from portal.kernel.api import PlatformView
from portal.kernel.problems import Invalid, NotFound
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.api import quota_shapes as shapes
from tenants.api.views import TeamView
from tenants.models import QuotaComment, QuotaRequest, Tenant
from tenants.permissions import Perm
from tenants.selectors.capacity import capacity_lines
from tenants.selectors.holdings import quota_makings
from tenants.selectors.requests import moves_of, request_of, requests_of, requests_open
from tenants.services.moves import Spot, allotment_move
from tenants.services.quota_requests import (
    quota_request_approve,
    quota_request_change,
    quota_request_comment,
    quota_request_create,
    quota_request_deny,
    quota_request_submit,
    quota_request_withdraw,
)

NEWEST = ("-created_at", "-id")


class QuotaMakingsView(TeamView):
    """What a quota's figures are made of."""

    @extend_schema(operation_id="quota_makings", responses=shapes.MakingsSerializer)
    def get(self, request: Request, tenant: str, gpu_type: str) -> Response:
        """Reservations by deployment, pods without one, and parts that were handed over."""
        row, card = self.enter(tenant), _type(gpu_type)
        with tenant_scope(row.pk):
            return Response(shapes.MakingsSerializer(quota_makings(row, [card])[card.pk]).data)


class QuotaRequestsView(TeamView):
    """A tenant's quota requests."""

    @extend_schema(operation_id="quota_request_list", responses=shapes.QuotaRequestSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """The newest first."""
        row = self.enter(tenant)
        with tenant_scope(row.pk):
            return self.page(requests_of(row), shapes.QuotaRequestSerializer, NEWEST)

    @extend_schema(
        operation_id="quota_request_create",
        request=shapes.NewQuotaRequestSerializer,
        responses={201: shapes.QuotaRequestSerializer},
    )
    def post(self, request: Request, tenant: str) -> Response:
        """Ask for another quota."""
        row = self.enter(tenant, Perm.QUOTA_REQUEST)
        body = self.read(shapes.NewQuotaRequestSerializer)
        body["gpu_type"] = _type(body["gpu_type"], "/gpu_type")
        made = quota_request_create(tenant=row, actor=self.actor, **body)
        return Response(shapes.QuotaRequestSerializer(made).data, status=201)


class QuotaRequestView(TeamView):
    """One quota request."""

    @extend_schema(operation_id="quota_request_get", responses=shapes.QuotaRequestSerializer)
    def get(self, request: Request, tenant: str, request_id: UUID) -> Response:
        """The request."""
        row = self.enter(tenant)
        with tenant_scope(row.pk):
            return Response(shapes.QuotaRequestSerializer(_request(row, request_id)).data)

    @extend_schema(
        operation_id="quota_request_change",
        request=shapes.ChangedQuotaRequestSerializer,
        responses=shapes.QuotaRequestSerializer,
    )
    def patch(self, request: Request, tenant: str, request_id: UUID) -> Response:
        """Change a draft."""
        row = self.enter(tenant, Perm.QUOTA_REQUEST)
        body = self.read(shapes.ChangedQuotaRequestSerializer, partial=True)
        done = quota_request_change(tenant=row, request_id=request_id, actor=self.actor, **body)
        return Response(shapes.QuotaRequestSerializer(done).data)


class QuotaRequestSubmitView(TeamView):
    """Hand a draft in."""

    @extend_schema(operation_id="quota_request_submit", request=None, responses=shapes.QuotaRequestSerializer)
    def post(self, request: Request, tenant: str, request_id: UUID) -> Response:
        """Submit."""
        row = self.enter(tenant, Perm.QUOTA_REQUEST)
        done = quota_request_submit(tenant=row, request_id=request_id, actor=self.actor)
        return Response(shapes.QuotaRequestSerializer(done).data)


class QuotaRequestWithdrawView(TeamView):
    """Take a request back."""

    @extend_schema(operation_id="quota_request_withdraw", request=None, responses=shapes.QuotaRequestSerializer)
    def post(self, request: Request, tenant: str, request_id: UUID) -> Response:
        """Withdraw what is not decided yet."""
        row = self.enter(tenant, Perm.QUOTA_REQUEST)
        done = quota_request_withdraw(tenant=row, request_id=request_id, actor=self.actor)
        return Response(shapes.QuotaRequestSerializer(done).data)


class QuotaRequestApproveView(TeamView):
    """Grant a request (platform-admins who had no hand in it)."""

    @extend_schema(
        operation_id="quota_request_approve",
        request=shapes.QuotaDecisionSerializer,
        responses=shapes.QuotaRequestSerializer,
    )
    def post(self, request: Request, tenant: str, request_id: UUID) -> Response:
        """Approve. The quota is set with it, or when its time box begins."""
        row = self.enter(tenant)
        comment = self.read(shapes.QuotaDecisionSerializer)["comment"]
        done = quota_request_approve(tenant=row, request_id=request_id, comment=comment, actor=self.actor)
        return Response(shapes.QuotaRequestSerializer(done).data)


class QuotaRequestDenyView(TeamView):
    """Refuse a request (platform-admins who had no hand in it)."""

    @extend_schema(
        operation_id="quota_request_deny",
        request=shapes.QuotaDecisionSerializer,
        responses=shapes.QuotaRequestSerializer,
    )
    def post(self, request: Request, tenant: str, request_id: UUID) -> Response:
        """Deny, and say why."""
        row = self.enter(tenant)
        comment = self.read(shapes.QuotaDecisionSerializer)["comment"]
        done = quota_request_deny(tenant=row, request_id=request_id, comment=comment, actor=self.actor)
        return Response(shapes.QuotaRequestSerializer(done).data)


class QuotaCommentsView(TeamView):
    """What was written to a request."""

    @extend_schema(operation_id="quota_request_comments", responses=shapes.QuotaCommentSerializer(many=True))
    def get(self, request: Request, tenant: str, request_id: UUID) -> Response:
        """The oldest first."""
        row = self.enter(tenant)
        with tenant_scope(row.pk):
            rows = QuotaComment.objects.filter(request=_request(row, request_id))
            return self.page(rows, shapes.QuotaCommentSerializer, ("created_at", "id"))

    @extend_schema(
        operation_id="quota_request_comment",
        request=shapes.QuotaCommentSerializer,
        responses={201: shapes.QuotaCommentSerializer},
    )
    def post(self, request: Request, tenant: str, request_id: UUID) -> Response:
        """Write to it."""
        row = self.enter(tenant)
        text = self.read(shapes.QuotaCommentSerializer)["text"]
        made = quota_request_comment(tenant=row, request_id=request_id, text=text, actor=self.actor)
        return Response(shapes.QuotaCommentSerializer(made).data, status=201)


class MovesView(TeamView):
    """Cards on their way between namespaces."""

    @extend_schema(operation_id="allotment_move_list", responses=shapes.MoveSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """The newest first."""
        row = self.enter(tenant)
        with tenant_scope(row.pk):
            return self.page(moves_of(row), shapes.MoveSerializer, NEWEST)

    @extend_schema(
        operation_id="allotment_move", request=shapes.NewMoveSerializer, responses={202: shapes.MoveSerializer}
    )
    def post(self, request: Request, tenant: str) -> Response:
        """Move whole cards; they arrive once the cluster that they leave has confirmed the lower figure."""
        row = self.enter(tenant, Perm.QUOTA_REQUEST)
        body = self.read(shapes.NewMoveSerializer)
        done = allotment_move(
            tenant=row,
            gpu_type=_type(body["gpu_type"], "/gpu_type"),
            source=_spot(body["source"], "/source"),
            goal=_spot(body["goal"], "/goal"),
            amount=body["amount"],
            actor=self.actor,
        )
        with tenant_scope(row.pk):
            return Response(shapes.MoveSerializer(moves_of(row).get(pk=done.pk)).data, status=202)


class PlatformQuotaRequestsView(PlatformView):
    """The platform's inbox."""

    @extend_schema(
        operation_id="platform_quota_request_list",
        parameters=[
            OpenApiParameter(
                "state", OpenApiTypes.STR, enum=[value for value in QuotaRequest.State if value != "draft"],
                description="instead of those that wait for a decision",
            )
        ],
        responses=shapes.QuotaRequestSerializer(many=True),
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """What waits for a decision, the oldest first."""
        state = request.query_params.get("state", "")
        with system_scope("quota requests"):
            if not state or state == QuotaRequest.State.SUBMITTED:
                return self.page(requests_open(), shapes.QuotaRequestSerializer, ("submitted_at", "id"))
            rows = QuotaRequest.objects.exclude(state=QuotaRequest.State.DRAFT).filter(state=state)
            return self.page(rows.select_related("tenant", "gpu_type"), shapes.QuotaRequestSerializer, NEWEST)


class QuotaCapacityView(PlatformView):
    """All quotas beside the cards that there are."""

    pagination_class = None

    @extend_schema(operation_id="quota_capacity", responses=shapes.CapacitySerializer(many=True))
    def get(self, request: Request) -> Response:
        """By GPU type, with a warning figure where more is guaranteed than is in service."""
        with system_scope("quotas and cards"):
            return Response(shapes.CapacitySerializer(capacity_lines(), many=True).data)


def _type(slug: str, pointer: str = "") -> GPUType:
    row = GPUType.objects.filter(slug=slug).first()
    if row is None:
        sentence = f"There is no GPU type {slug}. See GET /api/v1/gpu-types."
        raise Invalid.field(pointer, sentence) if pointer else NotFound(sentence)
    return row


def _spot(given: dict[str, str] | None, pointer: str) -> Spot | None:
    if given is None:
        return None
    cluster = Cluster.objects.filter(slug=given["cluster"]).first()
    if cluster is None:
        raise Invalid.field(f"{pointer}/cluster", f"There is no namespace {given['namespace']} on {given['cluster']}.")
    return Spot(cluster, given["namespace"])


def _request(tenant: Tenant, request_id: UUID) -> QuotaRequest:
    row = request_of(tenant, request_id)
    if row is None:
        raise NotFound("There is no such quota request.")
    return row
