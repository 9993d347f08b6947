"""What credentials may do, over REST: before connecting, and of a connected cluster."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from infra.api import serializers as shapes
from infra.models import Cluster
from infra.rights import RightsReport
from infra.selectors.clusters import cluster_by_slug
from infra.services.preflight import preflight
from infra.services.rights import cluster_check_rights
from portal.kernel.api import PlatformView


class PreflightView(PlatformView):
    """A kubeconfig, checked right by right."""

    @extend_schema(
        operation_id="cluster_preflight",
        request=shapes.PreflightSerializer,
        responses=shapes.PreflightedSerializer,
    )
    def post(self, request: Request) -> Response:
        """Ask the cluster for its version, its identity and each right. Nothing is connected and nothing stored."""
        facts = preflight(**self.read(shapes.PreflightSerializer), actor=self.actor)
        return Response(shapes.PreflightedSerializer(facts).data)


class ClusterRightsView(PlatformView):
    """The rights on a connected cluster."""

    @extend_schema(operation_id="cluster_rights", responses=shapes.ClusterRightsSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """The last check."""
        return Response(shapes.ClusterRightsSerializer(_last(cluster_by_slug(slug))).data)

    @extend_schema(operation_id="cluster_check_rights", request=None, responses={202: shapes.ClusterRightsSerializer})
    def post(self, request: Request, slug: str) -> Response:
        """Have them asked for now; the condition ``RightsComplete`` tells the outcome."""
        cluster = cluster_check_rights(cluster=cluster_by_slug(slug), actor=self.actor)
        return Response(shapes.ClusterRightsSerializer(_last(cluster)).data, status=202)


def _last(cluster: Cluster) -> dict[str, object]:
    return {"checked_at": cluster.rights_checked_at, "rights": RightsReport.load(cluster.rights)}
