"""Faults of cards and nodes over REST, for platform roles."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from infra.health import FaultClass
from infra.models import Cluster, HealthEvent
from infra.selectors.health import health_events
from infra.services.health import health_event_end
from portal.kernel.api import PlatformView
from portal.kernel.problems import BadRequest, NotFound


class HealthEventSerializer(serializers.ModelSerializer[HealthEvent]):
    """A fault of a card, or of a node (``device`` empty). ``ended_at`` null: it lasts."""

    cluster = serializers.CharField(source="cluster.slug")
    node = serializers.CharField(source="node.name")
    affects = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField()), help_text="Pods then: namespace, name, uid."
    )

    class Meta:
        model = HealthEvent
        fields = [
            "id", "cluster", "node", "device", "kind", "code", "fault_class", "started_at", "not_before", "ended_at",
            "ended_by", "source", "message", "affects",
        ]  # fmt: skip


class EndSerializer(serializers.Serializer[Any]):
    """What was done."""

    reason = serializers.CharField(max_length=150)


class HealthEventsView(PlatformView):
    """Faults that were told."""

    @extend_schema(
        operation_id="health_event_list",
        parameters=[
            OpenApiParameter("cluster", OpenApiTypes.STR, description="slug"),
            OpenApiParameter("fault_class", OpenApiTypes.STR, enum=[one.value for one in FaultClass]),
            OpenApiParameter("lasting", OpenApiTypes.BOOL, description="only what has not ended"),
            OpenApiParameter("q", OpenApiTypes.STR, description="part of a node's name or card's UUID, or a code"),
        ],
        responses=HealthEventSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """The latest first."""
        query = request.query_params
        cluster = None
        if slug := query.get("cluster"):
            cluster = Cluster.objects.filter(slug=slug).first()
            if cluster is None:
                raise BadRequest(f"cluster={slug[:60]}: there is none of that name.")
        fault_class = query.get("fault_class", "")
        if fault_class and fault_class not in set(FaultClass):
            raise BadRequest(f"fault_class={fault_class[:40]}: classes are {', '.join(FaultClass)}.")
        rows = health_events(
            cluster_id=cluster.pk if cluster else None, fault_class=fault_class,
            lasting=query.get("lasting", "").lower() in ("1", "true", "yes"), text=query.get("q", "")[:100],
        )  # fmt: skip
        return self.page(rows, HealthEventSerializer, ("-started_at", "-id"))


class HealthEventEndView(PlatformView):
    """The end of a fault, by a person's word."""

    @extend_schema(operation_id="health_event_end", request=EndSerializer, responses=HealthEventSerializer)
    def post(self, request: Request, event_id: UUID) -> Response:
        """The card was reset or changed: it counts as available again from now on."""
        event = HealthEvent.objects.filter(pk=event_id).first()
        if event is None:
            raise NotFound("There is no such event.")
        done = health_event_end(event=event, **self.read(EndSerializer), actor=self.actor)
        row = HealthEvent.objects.select_related("cluster", "node").get(pk=done.pk)
        return Response(HealthEventSerializer(row).data)
