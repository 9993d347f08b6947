"""Where a cluster's metrics and costs come from, over REST, for platform roles."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from infra.api.serializers import ConditionSerializer
from infra.models import ClusterEndpoint, TelemetryGap, TelemetryHour, TelemetrySource
from infra.selectors import telemetry as selectors
from infra.selectors.clusters import cluster_by_slug
from infra.services import endpoints as services
from portal.kernel.api import PlatformView
from portal.kernel.problems import NotFound


class EndpointSerializer(serializers.ModelSerializer[ClusterEndpoint]):
    """An endpoint; its credentials go in and never come out."""

    conditions = ConditionSerializer(many=True, read_only=True)
    matchers = serializers.DictField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = ClusterEndpoint
        fields = [
            "role", "via", "url", "service", "path_prefix", "auth", "tenant_header", "tenant_value", "matchers",
            "paused", "product", "version", "read_until", "last_answer_at", "last_sample_at", "conditions",
            "generation", "created_at",
        ]  # fmt: skip


class SecretSerializer(serializers.Serializer[Any]):
    """What the kind of credentials needs."""

    token = serializers.CharField(max_length=8000, required=False, allow_blank=True)
    username = serializers.CharField(max_length=200, required=False, allow_blank=True)
    password = serializers.CharField(max_length=1000, required=False, allow_blank=True)
    client_cert = serializers.CharField(max_length=20_000, required=False, allow_blank=True)
    client_key = serializers.CharField(max_length=20_000, required=False, allow_blank=True)


class NewEndpointSerializer(serializers.Serializer[Any]):
    """An endpoint to set: it is asked before it is stored."""

    role = serializers.ChoiceField(choices=ClusterEndpoint.Role.choices)
    via = serializers.ChoiceField(choices=ClusterEndpoint.Via.choices, default=ClusterEndpoint.Via.DIRECT)
    url = serializers.CharField(max_length=400, required=False, allow_blank=True)
    service = serializers.CharField(
        max_length=200, required=False, allow_blank=True, help_text="namespace/service:port, through the API server."
    )
    path_prefix = serializers.CharField(max_length=200, required=False, allow_blank=True)
    auth = serializers.ChoiceField(choices=ClusterEndpoint.Auth.choices, default=ClusterEndpoint.Auth.NONE)
    secret = SecretSerializer(required=False, write_only=True)
    ca_data = serializers.CharField(max_length=100_000, required=False, allow_blank=True)
    tenant_header = serializers.CharField(max_length=60, required=False, allow_blank=True)
    tenant_value = serializers.CharField(max_length=120, required=False, allow_blank=True)
    matchers = serializers.DictField(child=serializers.CharField(max_length=200), required=False)


class EndpointPauseSerializer(serializers.Serializer[Any]):
    """Whether it is asked."""

    paused = serializers.BooleanField()


class GapSerializer(serializers.ModelSerializer[TelemetryGap]):
    """A time for which metrics are missing or do not say all."""

    class Meta:
        model = TelemetryGap
        fields = ["node", "kind", "started_at", "ended_at"]


class TelemetrySerializer(serializers.ModelSerializer[TelemetrySource]):
    """How far a cluster's metrics are read, and how good they are."""

    conditions = ConditionSerializer(many=True, read_only=True)
    unmapped = serializers.ListField(child=serializers.CharField(), read_only=True)
    silent = serializers.ListField(child=serializers.CharField(), read_only=True)
    dropped = serializers.DictField(child=serializers.IntegerField(), read_only=True)

    class Meta:
        model = TelemetrySource
        fields = [
            "kind", "read_until", "interval_ms", "last_sample_at", "unmapped", "silent", "dropped", "dropped_total",
            "conditions",
        ]  # fmt: skip


class TelemetryHourSerializer(serializers.ModelSerializer[TelemetryHour]):
    """What one card, MIG instance or pod on a shared card did in an hour. Null is not known, never zero."""

    memory_avg_mib = serializers.IntegerField(read_only=True, allow_null=True)

    class Meta:
        model = TelemetryHour
        fields = [
            "hour", "node", "uuid", "mig_instance", "mig_profile", "scope", "namespace", "pod", "container", "busy_ms",
            "observed_ms", "memory_avg_mib", "memory_max_mib", "energy_mj", "source",
        ]  # fmt: skip


class EndpointsView(PlatformView):
    """The endpoints of a cluster."""

    pagination_class = None

    @extend_schema(operation_id="endpoint_list", responses=EndpointSerializer(many=True))
    def get(self, request: Request, slug: str) -> Response:
        """At most one Prometheus and one OpenCost."""
        return Response(EndpointSerializer(selectors.endpoints_of(cluster_by_slug(slug)), many=True).data)

    @extend_schema(operation_id="endpoint_set", request=NewEndpointSerializer, responses=EndpointSerializer)
    def post(self, request: Request, slug: str) -> Response:
        """Set the endpoint of a role, or change it; it is asked before it is stored."""
        body = self.read(NewEndpointSerializer)
        row = services.endpoint_set(cluster=cluster_by_slug(slug), **body, actor=self.actor)
        return Response(EndpointSerializer(row).data)


class EndpointView(PlatformView):
    """One endpoint of a cluster."""

    @extend_schema(operation_id="endpoint_get", responses=EndpointSerializer)
    def get(self, request: Request, slug: str, role: str) -> Response:
        """Its state and conditions."""
        return Response(EndpointSerializer(_endpoint(slug, role)).data)

    @extend_schema(operation_id="endpoint_remove", responses={204: None})
    def delete(self, request: Request, slug: str, role: str) -> Response:
        """Forget it and its credentials; what was read stays."""
        services.endpoint_remove(endpoint=_endpoint(slug, role), actor=self.actor)
        return Response(status=204)


class EndpointTestView(PlatformView):
    """Asking an endpoint now."""

    @extend_schema(operation_id="endpoint_test", request=None, responses=EndpointSerializer)
    def post(self, request: Request, slug: str, role: str) -> Response:
        """What it answers is stored as its condition; no answer is a 422 with the sentence."""
        return Response(
            EndpointSerializer(services.endpoint_test(endpoint=_endpoint(slug, role), actor=self.actor)).data
        )


class EndpointPauseView(PlatformView):
    """Whether an endpoint is asked."""

    @extend_schema(operation_id="endpoint_pause", request=EndpointPauseSerializer, responses=EndpointSerializer)
    def post(self, request: Request, slug: str, role: str) -> Response:
        """Pause it, or go on."""
        body = self.read(EndpointPauseSerializer)
        return Response(
            EndpointSerializer(services.endpoint_pause(endpoint=_endpoint(slug, role), **body, actor=self.actor)).data
        )


class TelemetryView(PlatformView):
    """How far a cluster's metrics are read, and how good they are."""

    @extend_schema(operation_id="telemetry_get", responses=TelemetrySerializer)
    def get(self, request: Request, slug: str) -> Response:
        """404 where nothing was read yet."""
        source = selectors.source_of(cluster_by_slug(slug))
        if source is None:
            raise NotFound(f"No metrics of cluster {slug} have been read yet.")
        return Response(TelemetrySerializer(source).data)


class TelemetryGapsView(PlatformView):
    """Gaps in a cluster's metrics."""

    @extend_schema(operation_id="telemetry_gaps", responses=GapSerializer(many=True))
    def get(self, request: Request, slug: str) -> Response:
        """The latest first."""
        return self.page(TelemetryGap.objects.filter(cluster=cluster_by_slug(slug)), GapSerializer, ("-ended_at", "id"))


class TelemetryHoursView(PlatformView):
    """How busy a cluster's cards were, by hour."""

    @extend_schema(operation_id="telemetry_hours", responses=TelemetryHourSerializer(many=True))
    def get(self, request: Request, slug: str) -> Response:
        """The latest hour first."""
        rows = TelemetryHour.objects.filter(cluster=cluster_by_slug(slug))
        return self.page(rows, TelemetryHourSerializer, ("-hour", "id"))


def _endpoint(slug: str, role: str) -> ClusterEndpoint:
    row = selectors.endpoints_of(cluster_by_slug(slug)).filter(role=role).first()
    if row is None:
        raise NotFound(f"No {role} is set for cluster {slug}.")
    return row
