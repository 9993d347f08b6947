"""Runs through a cluster's history over REST, for platform roles."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from infra.models import Rebuild
from infra.selectors.clusters import cluster_by_slug
from infra.selectors.history import rebuild_get, rebuilds
from infra.services import rebuilds as services
from portal.kernel.api import PlatformView


class RebuildSerializer(serializers.ModelSerializer[Rebuild]):
    """One run: everything from ``cursor`` to ``until_at`` is rebuilt; ``progress`` in percent."""

    cluster = serializers.CharField(source="cluster.slug")
    progress = serializers.IntegerField()
    gaps = serializers.ListField(
        child=serializers.ListField(child=serializers.DateTimeField()), help_text="[from, until]: without any scrape."
    )
    notes = serializers.ListField(child=serializers.CharField(), help_text="What could not be read.")

    class Meta:
        model = Rebuild
        fields = (
            "id", "cluster", "state", "progress", "from_at", "until_at", "cursor", "oldest_sample_at", "window_seconds",
            "step_seconds", "windows_done", "queries", "pods", "pods_proved", "nodes", "error_ms", "gaps", "notes",
            "failures", "last_error", "requested_by", "created_at", "started_at", "finished_at",
        )  # fmt: skip


class NewRebuildSerializer(serializers.Serializer[Any]):
    """A run to start."""

    since = serializers.DateTimeField(
        required=False, allow_null=True, help_text="How far back; default: as far as the settings allow."
    )


class RebuildsView(PlatformView):
    """A cluster's runs."""

    @extend_schema(operation_id="rebuild_list", responses=RebuildSerializer(many=True))
    def get(self, request: Request, slug: str) -> Response:
        """The newest first."""
        return self.page(rebuilds(cluster_by_slug(slug)), RebuildSerializer, ("-created_at", "-id"))

    @extend_schema(operation_id="rebuild_start", request=NewRebuildSerializer, responses={202: RebuildSerializer})
    def post(self, request: Request, slug: str) -> Response:
        """Start a run from the watch's begin back."""
        body = self.read(NewRebuildSerializer)
        row = services.rebuild_start(cluster=cluster_by_slug(slug), since=body.get("since"), actor=self.actor)
        return Response(RebuildSerializer(row).data, status=202)


class RebuildView(PlatformView):
    """One run."""

    @extend_schema(operation_id="rebuild_get", responses=RebuildSerializer)
    def get(self, request: Request, slug: str, rebuild_id: UUID) -> Response:
        """How far it is."""
        return Response(RebuildSerializer(rebuild_get(cluster_by_slug(slug), rebuild_id)).data)


class RebuildPauseView(PlatformView):
    """Pausing a run."""

    @extend_schema(operation_id="rebuild_pause", request=None, responses=RebuildSerializer)
    def post(self, request: Request, slug: str, rebuild_id: UUID) -> Response:
        """Stop asking after the window that is being read."""
        row = rebuild_get(cluster_by_slug(slug), rebuild_id)
        return Response(RebuildSerializer(services.rebuild_pause(rebuild=row, actor=self.actor)).data)


class RebuildResumeView(PlatformView):
    """Resuming a run."""

    @extend_schema(operation_id="rebuild_resume", request=None, responses=RebuildSerializer)
    def post(self, request: Request, slug: str, rebuild_id: UUID) -> Response:
        """Go on where it stood."""
        row = rebuild_get(cluster_by_slug(slug), rebuild_id)
        return Response(RebuildSerializer(services.rebuild_resume(rebuild=row, actor=self.actor)).data)


class RebuildCancelView(PlatformView):
    """Cancelling a run."""

    @extend_schema(operation_id="rebuild_cancel", request=None, responses=RebuildSerializer)
    def post(self, request: Request, slug: str, rebuild_id: UUID) -> Response:
        """End it; what it has rebuilt stays."""
        row = rebuild_get(cluster_by_slug(slug), rebuild_id)
        return Response(RebuildSerializer(services.rebuild_cancel(rebuild=row, actor=self.actor)).data)
