"""Tenants over REST: a tenant in the address is resolved first (404 for outsiders), then the permission (403)."""

from __future__ import annotations

from typing import Any

from django.http import QueryDict
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from infra.models import GPUType, Site
from portal.kernel.api import PlatformView, View
from portal.kernel.models import AuditEvent
from portal.kernel.problems import BadRequest, Invalid
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.api import serializers as shapes
from tenants.models import Member, Tenant, Zone
from tenants.permissions import Perm, require, tenant_for, tenants_of
from tenants.selectors.quota import quota_lines
from tenants.services.members import member_remove, member_set
from tenants.services.quotas import quota_set
from tenants.services.tenants import (
    tenant_create,
    tenant_set_state,
    tenant_update,
)
from tenants.services.zones import tenant_set_zone, zone_create

BY_SLUG = ("slug", "id")


def flag(query: QueryDict, name: str) -> bool:
    """A yes-or-no query parameter.

    Raises:
        BadRequest: neither yes nor no.
    """
    value = query.get(name, "").lower()
    if value in ("", "0", "false", "no"):
        return False
    if value in ("1", "true", "yes"):
        return True
    raise BadRequest(f"{name}={value}: use true or false.")


class TeamView(View):
    """A view below ``/tenants/<tenant>``."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse an outsider before an answer that was kept for a repeated request is given again."""
        self.perform_authentication(request)
        self.check_permissions(request)
        if "tenant" in kwargs:
            self.enter(kwargs["tenant"])
        super().initial(request, *args, **kwargs)

    def enter(self, slug: str, perm: Perm = Perm.TENANT_READ) -> Tenant:
        """The tenant, if the actor may enter it with that permission."""
        return tenant_for(self.actor, slug, perm)


class ZonesView(PlatformView):
    """Trust zones."""

    @extend_schema(operation_id="zone_list", responses=shapes.ZoneSerializer(many=True))
    def get(self, request: Request) -> Response:
        """All zones."""
        return self.page(Zone.objects.all(), shapes.ZoneSerializer, BY_SLUG)

    @extend_schema(operation_id="zone_create", request=shapes.NewZoneSerializer, responses={201: shapes.ZoneSerializer})
    def post(self, request: Request) -> Response:
        """Make a zone."""
        zone = zone_create(**self.read(shapes.NewZoneSerializer), actor=self.actor)
        return Response(shapes.ZoneSerializer(zone).data, status=201)


class TenantsView(View):
    """Tenants: all of them for platform roles, one's own for everybody else."""

    @extend_schema(operation_id="tenant_list", responses=shapes.TenantSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Tenants by slug."""
        rows = Tenant.objects.select_related("zone").prefetch_related("sites")
        if not self.actor.is_platform():
            rows = rows.filter(pk__in=[tenant.pk for tenant in tenants_of(self.actor)])
        return self.page(rows, shapes.TenantSerializer, BY_SLUG)

    @extend_schema(
        operation_id="tenant_create", request=shapes.NewTenantSerializer, responses={201: shapes.TenantSerializer}
    )
    def post(self, request: Request) -> Response:
        """Make a tenant."""
        require(self.actor, Perm.TENANT_MANAGE)
        body = self.read(shapes.NewTenantSerializer)
        body["zone"] = _zone(body["zone"])
        body["sites"] = _sites(body["sites"])
        tenant = tenant_create(**body, actor=self.actor)
        return Response(shapes.TenantSerializer(tenant).data, status=201)


class TenantView(TeamView):
    """One tenant."""

    @extend_schema(operation_id="tenant_get", responses=shapes.TenantSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """The tenant."""
        return Response(shapes.TenantSerializer(self.enter(tenant)).data)

    @extend_schema(
        operation_id="tenant_update", request=shapes.ChangedTenantSerializer, responses=shapes.TenantSerializer
    )
    def patch(self, request: Request, tenant: str) -> Response:
        """Change name, sites or cost code."""
        row = self.enter(tenant)
        require(self.actor, Perm.TENANT_MANAGE)
        body = self.read(shapes.ChangedTenantSerializer, partial=True)
        if "sites" in body:
            body["sites"] = _sites(body["sites"])
        return Response(shapes.TenantSerializer(tenant_update(tenant=row, **body, actor=self.actor)).data)


class TenantStateView(TeamView):
    """Suspend a tenant, or make it active."""

    @extend_schema(
        operation_id="tenant_set_state", request=shapes.TenantStateSerializer, responses=shapes.TenantSerializer
    )
    def post(self, request: Request, tenant: str) -> Response:
        """Set the state."""
        row = self.enter(tenant)
        require(self.actor, Perm.TENANT_MANAGE)
        body = self.read(shapes.TenantStateSerializer)
        return Response(shapes.TenantSerializer(tenant_set_state(tenant=row, **body, actor=self.actor)).data)


class TenantZoneView(TeamView):
    """Move a tenant to another trust zone."""

    @extend_schema(
        operation_id="tenant_set_zone", request=shapes.TenantZoneSerializer, responses=shapes.TenantSerializer
    )
    def post(self, request: Request, tenant: str) -> Response:
        """Set the zone; refused while it shares a card, or runs in a pool that is kept for another zone."""
        row = self.enter(tenant)
        require(self.actor, Perm.TENANT_MANAGE)
        body = self.read(shapes.TenantZoneSerializer)
        moved = tenant_set_zone(tenant=row, zone=_zone(body["zone"]), actor=self.actor)
        return Response(shapes.TenantSerializer(moved).data)


class MembersView(TeamView):
    """The people of a tenant."""

    @extend_schema(operation_id="member_list", responses=shapes.MemberSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """By when they came."""
        rows = Member.objects.filter(tenant=self.enter(tenant)).select_related("user")
        return self.page(rows, shapes.MemberSerializer, ("created_at", "id"))


class MemberView(TeamView):
    """One member."""

    @extend_schema(operation_id="member_set", request=shapes.RoleSerializer, responses=shapes.MemberSerializer)
    def put(self, request: Request, tenant: str, username: str) -> Response:
        """Give a user a role."""
        row = self.enter(tenant, Perm.MEMBER_MANAGE)
        member = member_set(tenant=row, username=username, **self.read(shapes.RoleSerializer), actor=self.actor)
        return Response(shapes.MemberSerializer(member).data)

    @extend_schema(operation_id="member_remove", responses={204: None})
    def delete(self, request: Request, tenant: str, username: str) -> Response:
        """Take a user out."""
        member_remove(tenant=self.enter(tenant, Perm.MEMBER_MANAGE), username=username, actor=self.actor)
        return Response(status=204)


class QuotasView(TeamView):
    """A tenant's quotas."""

    pagination_class = None

    @extend_schema(operation_id="quota_list", responses=shapes.QuotaLineSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """By GPU type: guaranteed, limit, admitted, used, and the parts on clusters."""
        row = self.enter(tenant)
        with tenant_scope(row.pk):
            return Response(shapes.QuotaLineSerializer(quota_lines(row), many=True).data)


class QuotaView(TeamView):
    """A tenant's quota on one GPU type."""

    @extend_schema(operation_id="quota_set", request=shapes.NewQuotaSerializer, responses=shapes.QuotaSetSerializer)
    def put(self, request: Request, tenant: str, gpu_type: str) -> Response:
        """Set it. Lowering evicts nothing."""
        row = self.enter(tenant)
        require(self.actor, Perm.TENANT_MANAGE)
        card = GPUType.objects.filter(slug=gpu_type).first()
        if card is None:
            raise Invalid.field("/gpu_type", f"There is no GPU type {gpu_type}. See GET /api/v1/gpu-types.")
        body = self.read(shapes.NewQuotaSerializer)
        done = quota_set(tenant=row, gpu_type=card, **body, actor=self.actor)
        return Response(shapes.QuotaSetSerializer(done).data)


class AuditView(TeamView):
    """What was done in a tenant."""

    @extend_schema(
        operation_id="tenant_audit",
        parameters=[
            OpenApiParameter("verb", OpenApiTypes.STR, description="exactly this verb"),
            OpenApiParameter("outcome", OpenApiTypes.STR, enum=["done", "refused"]),
        ],
        responses=shapes.AuditSerializer(many=True),
    )
    def get(self, request: Request, tenant: str) -> Response:
        """The newest first."""
        row = self.enter(tenant, Perm.AUDIT_READ)
        with tenant_scope(row.pk):
            return self.page(_filtered(request, AuditEvent.objects.filter(tenant_id=row.pk)), *_AUDIT_PAGE)


class PlatformAuditView(PlatformView):
    """What was done anywhere."""

    @extend_schema(
        operation_id="platform_audit",
        parameters=[
            OpenApiParameter("verb", OpenApiTypes.STR, description="exactly this verb"),
            OpenApiParameter("outcome", OpenApiTypes.STR, enum=["done", "refused"]),
        ],
        responses=shapes.AuditSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """The newest first."""
        require(self.actor, Perm.PLATFORM_AUDIT_READ)
        with system_scope("platform audit"):
            return self.page(_filtered(request, AuditEvent.objects.all()), *_AUDIT_PAGE)


_AUDIT_PAGE: Any = (shapes.AuditSerializer, ("-id",))


def _filtered(request: Request, rows: Any) -> Any:
    for name in ("verb", "outcome"):
        if value := request.query_params.get(name):
            rows = rows.filter(**{name: value})
    return rows


def _zone(slug: str) -> Zone:
    zone = Zone.objects.filter(slug=slug).first()
    if zone is None:
        raise Invalid.field("/zone", f"There is no zone {slug}. See GET /api/v1/zones.")
    return zone


def _sites(slugs: list[str]) -> list[Site]:
    found = {site.slug: site for site in Site.objects.filter(slug__in=slugs)}
    errors = [
        {"pointer": f"/sites/{number}", "detail": f"There is no site {slug}. See GET /api/v1/sites."}
        for number, slug in enumerate(slugs)
        if slug not in found
    ]
    if errors:
        raise Invalid(errors=errors)
    return list(found.values())
