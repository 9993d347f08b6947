"""For whoever is on call, over REST: parts, the switch for all writing, the work queue. For platform roles."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from infra.models import Cluster
from infra.selectors.operations import cluster_parts, credential_states, database_clock, write_stop
from infra.selectors.work import WorkState, work_items
from infra.services.operations import writes_resume, writes_stop
from infra.services.work import work_item_retry
from portal.kernel import health
from portal.kernel.api import PlatformView
from portal.kernel.models import WorkItem
from portal.kernel.problems import BadRequest
from portal.kernel.scoping import system_scope


class ClusterPartSerializer(serializers.Serializer[Any]):
    """A cluster as a part. ``reached`` null: not known. ``credentials_state``: expired, soon, good or unknown."""

    cluster = serializers.CharField()
    reached = serializers.BooleanField(allow_null=True)
    message = serializers.CharField()
    paused = serializers.BooleanField()
    credentials_state = serializers.CharField()
    credentials_end_at = serializers.DateTimeField(allow_null=True)
    credentials_renewed_at = serializers.DateTimeField(allow_null=True, help_text="When the portal will renew them.")


class WriteStopSerializer(serializers.Serializer[Any]):
    """Whether all writing is stopped; ``by_setting``: by AIF_STOP_WRITES, so not to be resumed here."""

    stopped = serializers.BooleanField()
    by = serializers.CharField()
    reason = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True)
    by_setting = serializers.BooleanField()


class OperationsSerializer(serializers.Serializer[Any]):
    """Parts by name with their state (``ok`` where all is well), clusters, and the switch."""

    parts = serializers.DictField(child=serializers.CharField())
    clusters = ClusterPartSerializer(many=True)
    write_stop = WriteStopSerializer()


class ReasonSerializer(serializers.Serializer[Any]):
    """Why all writing is stopped; everybody on the platform's pages reads it."""

    reason = serializers.CharField(max_length=500)


class WorkItemSerializer(serializers.ModelSerializer[WorkItem]):
    """An item of the work queue. ``attempts``: failures in a row. ``next_attempt_at`` null: parked until marked."""

    class Meta:
        model = WorkItem
        fields: ClassVar[list[str]] = [
            "id", "kind", "object_id", "cluster_id", "tenant_id", "cause", "attempts", "last_error", "marked_at",
            "next_attempt_at", "lease_owner", "lease_until", "stalled_at", "finished_at",
        ]  # fmt: skip


def _write_stop() -> dict[str, Any]:
    found = write_stop()
    if found is None:
        return {"stopped": False, "by": "", "reason": "", "at": None, "by_setting": False}
    return {
        "stopped": True, "by": found.by, "reason": found.reason, "at": found.at, "by_setting": found.by_setting,
    }  # fmt: skip


class OperationsView(PlatformView):
    """The parts of the installation."""

    pagination_class = None

    @extend_schema(operation_id="operations_get", responses=OperationsSerializer)
    def get(self, request: Request) -> Response:
        """What readiness tells, with names."""
        now = database_clock()
        needed = health.needed_parts()
        credentials = {one.cluster.pk: one for one in credential_states(now)}
        answer = {
            "parts": {**needed, **health.informing_parts(needed["database"] == health.OK)},
            "clusters": [
                {
                    "cluster": part.cluster.slug,
                    "reached": part.reached,
                    "message": part.message,
                    "paused": part.cluster.paused,
                    "credentials_state": credentials[part.cluster.pk].state,
                    "credentials_end_at": part.cluster.credential_expires_at,
                    "credentials_renewed_at": credentials[part.cluster.pk].renew_at,
                }
                for part in cluster_parts(now)
                if part.cluster.pk in credentials
            ],
            "write_stop": _write_stop(),
        }
        return Response(OperationsSerializer(answer).data)


class WriteStopView(PlatformView):
    """The switch that stops all writing to clusters."""

    @extend_schema(operation_id="write_stop_get", responses=WriteStopSerializer)
    def get(self, request: Request) -> Response:
        """Whether it is stopped."""
        return Response(WriteStopSerializer(_write_stop()).data)

    @extend_schema(operation_id="write_stop", request=ReasonSerializer, responses=WriteStopSerializer)
    def post(self, request: Request) -> Response:
        """Stop: nothing is written to any cluster from now on. Reading and metering go on."""
        writes_stop(**self.read(ReasonSerializer), actor=self.actor)
        return Response(WriteStopSerializer(_write_stop()).data)


class WriteResumeView(PlatformView):
    """The end of the stop."""

    @extend_schema(operation_id="write_resume", request=None, responses=WriteStopSerializer)
    def post(self, request: Request) -> Response:
        """Write again; what waited is looked at now."""
        writes_resume(actor=self.actor)
        return Response(WriteStopSerializer(_write_stop()).data)


class WorkItemsView(PlatformView):
    """The work queue."""

    @extend_schema(
        operation_id="work_item_list",
        parameters=[
            OpenApiParameter("state", OpenApiTypes.STR, enum=WorkState.values, description="open where left out"),
            OpenApiParameter("kind", OpenApiTypes.STR, description="of the reconciler"),
            OpenApiParameter("cluster", OpenApiTypes.STR, description="slug"),
            OpenApiParameter("tenant_id", OpenApiTypes.UUID),
        ],
        responses=WorkItemSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Items that wait, fail or are worked on."""
        query = request.query_params
        state = query.get("state") or WorkState.OPEN
        if state not in WorkState.values:
            raise BadRequest(f"state={state[:40]}: states are {', '.join(WorkState.values)}.")
        cluster = None
        if slug := query.get("cluster"):
            cluster = Cluster.objects.filter(slug=slug).first()
            if cluster is None:
                raise BadRequest(f"cluster={slug[:60]}: there is none of that name.")
        try:
            tenant_id = UUID(query["tenant_id"]) if query.get("tenant_id") else None
        except ValueError:
            raise BadRequest(f"tenant_id={query['tenant_id'][:60]}: this is no UUID.") from None
        rows = work_items(
            state=state, kind=query.get("kind", "")[:40], cluster_id=cluster.pk if cluster else None,
            tenant_id=tenant_id,
        )  # fmt: skip
        return self.page(rows, WorkItemSerializer, ("-attempts", "id"))


class WorkItemRetryView(PlatformView):
    """One item, now."""

    @extend_schema(operation_id="work_item_retry", request=None, responses=WorkItemSerializer)
    def post(self, request: Request, item_id: UUID) -> Response:
        """Have it looked at now, whatever its back-off says."""
        with system_scope("retry of a work item"):
            item = work_item_retry(item_id=item_id, actor=self.actor)
            return Response(WorkItemSerializer(item).data)
