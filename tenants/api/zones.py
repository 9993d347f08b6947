"""Trust zones, pools kept for them, and what a tenant may run, over REST."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from infra.models import NodePool
from infra.selectors.clusters import cluster_by_slug
from portal.kernel.api import PlatformView
from portal.kernel.problems import Invalid, NotFound
from portal.kernel.scoping import system_scope
from tenants.api.views import TeamView
from tenants.models import Tenant, Zone
from tenants.permissions import Perm, require
from tenants.selectors.zones import ZoneView as View
from tenants.selectors.zones import zone_views
from tenants.services.rules import tenant_rules_set
from tenants.services.zones import pool_keep, zone_delete, zone_update


class CardSharingSerializer(serializers.Serializer[Any]):
    """Tenants on one card; ``card`` empty: MIG slices of one node."""

    cluster = serializers.CharField()
    node = serializers.CharField()
    card = serializers.CharField(allow_blank=True)
    tenants = serializers.ListField(child=serializers.CharField())


class ZoneDetailSerializer(serializers.Serializer[Any]):
    """A zone with who is in it. ``dedicated``: one tenant alone, which shares no card with anybody."""

    slug = serializers.CharField(source="zone.slug")
    name = serializers.CharField(source="zone.name")
    tenants = serializers.ListField(child=serializers.CharField())
    pools = serializers.ListField(child=serializers.CharField(), help_text="Kept for it: cluster/pool.")
    dedicated = serializers.BooleanField()
    sharing = CardSharingSerializer(many=True)


class ZoneNameSerializer(serializers.Serializer[Any]):
    """Another name."""

    name = serializers.CharField(max_length=120)


class PoolZoneSerializer(serializers.Serializer[Any]):
    """The zone that a pool is kept for; null: everybody's."""

    zone = serializers.CharField(max_length=40, allow_null=True)


class KeptPoolSerializer(serializers.Serializer[Any]):
    """A pool, and the zone that it is kept for."""

    cluster = serializers.CharField()
    pool = serializers.CharField()
    zone = serializers.CharField(allow_null=True)


class RulesSerializer(serializers.Serializer[Any]):
    """What a tenant may run. ``image_registries`` null: any; empty: none at all."""

    image_registries = serializers.ListField(child=serializers.CharField(max_length=255), allow_null=True)
    pin_image_digests = serializers.BooleanField()
    allow_remote_code = serializers.BooleanField()


class RulesSetSerializer(RulesSerializer):
    """The rules, and the live deployments that break them."""

    broken = serializers.ListField(child=serializers.CharField(), help_text="Deployments whose pods are refused.")


class ZoneDetailView(PlatformView):
    """One trust zone."""

    @extend_schema(operation_id="zone_get", responses=ZoneDetailSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """Tenants, pools, and who shares cards with whom now."""
        return Response(_dumped(_zone(slug)))

    @extend_schema(operation_id="zone_update", request=ZoneNameSerializer, responses=ZoneDetailSerializer)
    def patch(self, request: Request, slug: str) -> Response:
        """Rename it."""
        return Response(_dumped(zone_update(zone=_zone(slug), **self.read(ZoneNameSerializer), actor=self.actor)))

    @extend_schema(operation_id="zone_delete", responses={204: None})
    def delete(self, request: Request, slug: str) -> Response:
        """Delete it; refused while a tenant is in it or a pool is kept for it."""
        zone_delete(zone=_zone(slug), actor=self.actor)
        return Response(status=204)


class PoolZoneView(PlatformView):
    """For whom a pool is kept."""

    @extend_schema(operation_id="cluster_pool_keep", request=PoolZoneSerializer, responses=KeptPoolSerializer)
    def put(self, request: Request, slug: str, name: str) -> Response:
        """Keep it for a zone, or (null) for nobody. Refused while others hold cards there; they are named."""
        pool = NodePool.objects.select_related("cluster").filter(cluster=cluster_by_slug(slug), name=name).first()
        if pool is None:
            raise NotFound(f"There is no pool {name} on cluster {slug}.")
        wanted = self.read(PoolZoneSerializer)["zone"]
        zone = Zone.objects.filter(slug=wanted).first() if wanted else None
        if wanted and zone is None:
            raise Invalid.field("/zone", f"There is no zone {wanted}. See GET /api/v1/zones.")
        pool_keep(pool=pool, zone=zone, actor=self.actor)
        body = {"cluster": slug, "pool": name, "zone": zone.slug if zone else None}
        return Response(KeptPoolSerializer(body).data)


class TenantRulesView(TeamView):
    """What a tenant may run."""

    @extend_schema(operation_id="tenant_rules", responses=RulesSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """The rules, as its members may read them."""
        return Response(RulesSerializer(self.enter(tenant)).data)

    @extend_schema(operation_id="tenant_rules_set", request=RulesSerializer, responses=RulesSetSerializer)
    def put(self, request: Request, tenant: str) -> Response:
        """Set them. What runs is not ended; pods that break them are not made again."""
        row = self.enter(tenant)
        require(self.actor, Perm.TENANT_MANAGE)
        done = tenant_rules_set(tenant=row, **self.read(RulesSerializer), actor=self.actor)
        return Response(RulesSetSerializer(_rules(done.tenant) | {"broken": done.broken}).data)


def _rules(row: Tenant) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("image_registries", "pin_image_digests", "allow_remote_code")}


def _zone(slug: str) -> Zone:
    zone = Zone.objects.filter(slug=slug).first()
    if zone is None:
        raise NotFound(f"There is no zone {slug}.")
    return zone


def _dumped(zone: Zone) -> dict[str, Any]:
    with system_scope("zone"):
        view: View = zone_views([zone])[0]
    return dict(
        ZoneDetailSerializer(
            {
                "zone": zone,
                "tenants": [tenant.slug for tenant in view.tenants],
                "pools": [f"{pool.cluster.slug}/{pool.name}" for pool in view.pools],
                "dedicated": view.dedicated,
                "sharing": view.sharing,
            }
        ).data
    )
