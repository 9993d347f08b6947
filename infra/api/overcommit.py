"""What a HAMi pool hands out of each card's memory, over REST."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from infra.models import NodePool
from infra.selectors.clusters import cluster_by_slug, pool_by_name
from infra.selectors.overcommit import pools_overcommitted
from infra.services.overcommit import pool_overcommit_set
from portal.kernel.api import PlatformView


class OvercommitSerializer(serializers.Serializer[Any]):
    """Percent of each card's memory that a pool hands out."""

    declared = serializers.IntegerField(allow_null=True, read_only=True, help_text="Null: the register decides.")
    in_force = serializers.IntegerField(read_only=True)
    overcommitted = serializers.BooleanField(read_only=True, help_text="Priced by the rate with profile overcommit.")


class NewOvercommitSerializer(serializers.Serializer[Any]):
    """What to declare."""

    percent = serializers.IntegerField(allow_null=True, help_text="Null: go by HAMi's register.")


class OvercommitView(PlatformView):
    """What a pool hands out of each card's memory."""

    @extend_schema(operation_id="pool_overcommit_get", responses=OvercommitSerializer)
    def get(self, request: Request, slug: str, name: str) -> Response:
        """What is declared, and what is in force."""
        return Response(self._shown(pool_by_name(cluster_by_slug(slug), name)))

    @extend_schema(operation_id="pool_overcommit_set", request=NewOvercommitSerializer, responses=OvercommitSerializer)
    def put(self, request: Request, slug: str, name: str) -> Response:
        """Declare it; pods that are bound from then on are priced by it."""
        body = self.read(NewOvercommitSerializer)
        pool = pool_overcommit_set(pool=pool_by_name(cluster_by_slug(slug), name), **body, actor=self.actor)
        return Response(self._shown(pool))

    def _shown(self, pool: NodePool) -> dict[str, Any]:
        found = next(pools_overcommitted(NodePool.objects.filter(pk=pool.pk)), None)
        percent = found.percent if found else 100
        shown = {"declared": pool.overcommit_percent, "in_force": percent, "overcommitted": percent > 100}
        return dict(OvercommitSerializer(shown).data)
