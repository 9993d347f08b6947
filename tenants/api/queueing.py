"""Kueue on the clusters, over REST."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from infra.api.serializers import ConditionSerializer
from infra.models import Cluster
from portal.kernel.api import PlatformView
from portal.kernel.problems import NotFound
from tenants.models import ClusterQueueing
from tenants.services.queueing import queueing_switch


class QueueingSerializer(serializers.ModelSerializer[ClusterQueueing]):
    """Whether a cluster's Kueue is switched on, and what became of it."""

    conditions = ConditionSerializer(many=True, read_only=True)
    queues = serializers.DictField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = ClusterQueueing
        fields = ["enabled", "draining", "api_version", "queues", "conditions", "generation", "observed_generation"]
        read_only_fields = ["draining", "api_version", "generation", "observed_generation"]


class QueueingSwitchSerializer(serializers.Serializer[Any]):
    """On or off."""

    enabled = serializers.BooleanField()


class QueueingView(PlatformView):
    """Kueue on one cluster."""

    @extend_schema(operation_id="cluster_kueue", responses=QueueingSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """Off where nobody has switched it on."""
        cluster = _cluster(slug)
        row = ClusterQueueing.objects.filter(cluster=cluster).first() or ClusterQueueing(cluster=cluster)
        return Response(QueueingSerializer(row).data)

    @extend_schema(
        operation_id="cluster_kueue_switch", request=QueueingSwitchSerializer, responses={202: QueueingSerializer}
    )
    def put(self, request: Request, slug: str) -> Response:
        """Switch it on or off; the reconciler does the rest."""
        body = self.read(QueueingSwitchSerializer)
        row = queueing_switch(cluster=_cluster(slug), enabled=body["enabled"], actor=self.actor)
        return Response(QueueingSerializer(row).data, status=202)


def _cluster(slug: str) -> Cluster:
    row = Cluster.objects.filter(slug=slug).first()
    if row is None:
        raise NotFound(f"There is no cluster {slug}.")
    return row
