"""Parts of cards over REST: shares a tenant may ask for, MIG slices by profile, and what is held of both."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from infra.models import GPUType
from infra.shares import PARTS
from portal.kernel.api import View
from portal.kernel.problems import Invalid
from portal.kernel.scoping import tenant_scope
from tenants.api.views import TeamView
from tenants.models import Tenant
from tenants.permissions import Perm, require
from tenants.selectors.profiles import parts_rows
from tenants.services.profile_quotas import quota_profiles_set
from tenants.services.sharing import tenant_sharing_set


class ShareProfileSerializer(serializers.Serializer[Any]):
    """A named part of a card."""

    name = serializers.CharField()
    per_card = serializers.IntegerField(source="of", help_text="How many fit on one card.")
    memory_percent = serializers.CharField(source="percent_text")
    cores_percent = serializers.IntegerField(source="cores")


class SharingSerializer(serializers.Serializer[Any]):
    """Which shares a tenant may ask for, and more keys of its namespaces' ResourceQuota."""

    free_shares = serializers.BooleanField()
    namespace_limits = serializers.DictField(child=serializers.CharField(max_length=64))


class ProfilesSerializer(serializers.Serializer[Any]):
    """MIG instances by profile; a profile that is not named is limited by the cards alone."""

    profiles = serializers.DictField(child=serializers.IntegerField(min_value=0), help_text='{"1g.10gb": 8}')


class ProfileLineSerializer(serializers.Serializer[Any]):
    """A MIG profile: instances held, and the limit."""

    profile = serializers.CharField()
    held = serializers.IntegerField()
    limit = serializers.IntegerField(allow_null=True, help_text="Null: limited by the cards alone.")
    over_by = serializers.IntegerField()


class CardPartsSerializer(serializers.Serializer[Any]):
    """What is held of one GPU type in parts of cards, promised or seen."""

    gpu_type = serializers.CharField(source="gpu_type.slug")
    shares = serializers.IntegerField(source="held.shares", help_text="HAMi shares.")
    memory_mib = serializers.IntegerField(source="held.memory_mib", help_text="Of those shares.")
    cores_percent = serializers.IntegerField(source="held.cores", help_text="Of those shares; 100 is a card.")
    uncapped = serializers.IntegerField(source="held.uncapped", help_text="Shares seen without a limit on cores.")
    profiles = ProfileLineSerializer(many=True)


class ShareProfilesView(View):
    """The named parts of cards."""

    pagination_class = None

    @extend_schema(operation_id="share_profile_list", responses=ShareProfileSerializer(many=True))
    def get(self, request: Request) -> Response:
        """What `share.profile` of a manifest may be, beside MIG profiles."""
        return Response(ShareProfileSerializer(list(PARTS.values()), many=True).data)


class PartsView(TeamView):
    """What a tenant holds in parts of cards."""

    pagination_class = None

    @extend_schema(operation_id="quota_parts", responses=CardPartsSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """By GPU type: HAMi shares with their memory and cores, and MIG slices by profile."""
        row = self.enter(tenant)
        with tenant_scope(row.pk):
            return Response(CardPartsSerializer(parts_rows(row), many=True).data)


class SharingView(TeamView):
    """Which shares a tenant may ask for."""

    @extend_schema(operation_id="tenant_sharing_get", responses=SharingSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """What is set."""
        return Response(self._shown(self.enter(tenant)))

    @extend_schema(operation_id="tenant_sharing_set", request=SharingSerializer, responses=SharingSerializer)
    def patch(self, request: Request, tenant: str) -> Response:
        """Change what is given."""
        row = self.enter(tenant)
        require(self.actor, Perm.TENANT_MANAGE)
        body = self.read(SharingSerializer, partial=True)
        return Response(self._shown(tenant_sharing_set(tenant=row, **body, actor=self.actor)))

    def _shown(self, row: Tenant) -> dict[str, Any]:
        return dict(SharingSerializer(row).data)


class QuotaProfilesView(TeamView):
    """A tenant's quota on MIG profiles of one GPU type."""

    @extend_schema(operation_id="quota_profiles_set", request=ProfilesSerializer, responses=ProfilesSerializer)
    def put(self, request: Request, tenant: str, gpu_type: str) -> Response:
        """Set it; the cards of the type have a quota already. Lowering evicts nothing."""
        row = self.enter(tenant)
        require(self.actor, Perm.TENANT_MANAGE)
        card = GPUType.objects.filter(slug=gpu_type).first()
        if card is None:
            raise Invalid.field("/gpu_type", f"There is no GPU type {gpu_type}. See GET /api/v1/gpu-types.")
        body = self.read(ProfilesSerializer)
        quota = quota_profiles_set(tenant=row, gpu_type=card, **body, actor=self.actor)
        return Response(ProfilesSerializer(quota).data)
