"""Rules for groups of the identity provider, as JSON. For platform roles."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kernel.api import PlatformView
from portal.kernel.problems import Invalid
from tenants.models import GroupMapping, Tenant
from tenants.services.mappings import mapping_add, mapping_remove


class GroupMappingSerializer(serializers.ModelSerializer[GroupMapping]):
    """A rule: whoever's claim holds the value has the role."""

    tenant: serializers.SlugRelatedField[Tenant] = serializers.SlugRelatedField(
        slug_field="slug", read_only=True, allow_null=True
    )
    role = serializers.CharField(read_only=True, help_text="In the tenant; empty: it gives a platform role.")

    class Meta:
        model = GroupMapping
        fields = ["id", "claim", "match", "value", "tenant", "role", "platform_role", "created_by", "created_at"]
        read_only_fields = fields


class NewGroupMappingSerializer(serializers.Serializer[Any]):
    """A rule to make: a tenant with a role, or a platform role."""

    claim = serializers.CharField(max_length=200)
    match = serializers.ChoiceField(choices=GroupMapping.Match.choices, default=GroupMapping.Match.EXACT)
    value = serializers.CharField(max_length=400)
    tenant = serializers.CharField(required=False, allow_null=True, default=None, help_text="The tenant's short name.")
    role = serializers.CharField(required=False, allow_blank=True, default="", help_text="owner, developer, …")
    platform_role = serializers.CharField(required=False, allow_blank=True, default="")


class GroupMappingsView(PlatformView):
    """All rules."""

    @extend_schema(operation_id="group_mapping_list", responses=GroupMappingSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Rules by claim and value."""
        rows = GroupMapping.objects.select_related("tenant")
        return self.page(rows, GroupMappingSerializer, ("claim", "value", "id"))

    @extend_schema(
        operation_id="group_mapping_add",
        request=NewGroupMappingSerializer,
        responses={201: GroupMappingSerializer},
    )
    def post(self, request: Request) -> Response:
        """Make a rule. It takes effect at each person's next sign-in or refresh."""
        body = self.read(NewGroupMappingSerializer)
        slug = body.pop("tenant")
        tenant = Tenant.objects.filter(slug=slug).first() if slug else None
        if slug and tenant is None:
            raise Invalid.field("/tenant", f"There is no tenant {slug}.")
        mapping = mapping_add(**body, tenant=tenant, actor=self.actor)
        return Response(
            GroupMappingSerializer(mapping).data, status=201, headers={"Location": f"{request.path}/{mapping.pk}"}
        )


class GroupMappingView(PlatformView):
    """One rule."""

    @extend_schema(operation_id="group_mapping_remove", responses={204: None})
    def delete(self, request: Request, mapping_id: UUID) -> Response:
        """Take it away, and at once the roles that only it gave."""
        mapping_remove(mapping_id=mapping_id, actor=self.actor)
        return Response(status=204)
