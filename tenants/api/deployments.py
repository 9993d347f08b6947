"""Model deployments over REST. Apply answers 202: what is valid is accepted, and placed by the workers."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.kernel.parsers import StrictJSONParser
from portal.kernel.problems import BadRequest, Invalid
from portal.kernel.scoping import tenant_scope
from tenants.api import serializers as shapes
from tenants.api.parsers import YamlTextParser
from tenants.api.views import TeamView, flag
from tenants.manifest import to_yaml
from tenants.manifest.loading import MAX_BYTES
from tenants.models import DeploymentEvent, ModelDeployment
from tenants.permissions import Perm
from tenants.selectors.deployments import deployment_detail, deployment_get, deployments_page
from tenants.services.deployments import (
    Applied,
    deployment_apply,
    deployment_delete,
    deployment_etag,
    deployment_scale,
    deployment_set_image,
)
from tenants.services.manifests import ManifestSource
from tenants.services.previews import deployment_preview
from tenants.stored import manifest_of

ADMIT = OpenApiParameter(
    "admit",
    OpenApiTypes.STR,
    enum=["now"],
    description="refuse (409, nothing stored) unless every replica would get a place at this moment",
)
DRY_RUN = OpenApiParameter("dry_run", OpenApiTypes.BOOL, description="check everything, store nothing")
IF_MATCH = OpenApiParameter(
    "If-Match", OpenApiTypes.STR, OpenApiParameter.HEADER, description="the ETag that it must still have"
)
MANIFEST = {
    "application/json": shapes.DeploymentManifestSerializer,
    "application/yaml": OpenApiTypes.STR,
}


class ManifestView(TeamView):
    """A view whose body is a manifest, as JSON or YAML."""

    parser_classes = [StrictJSONParser, YamlTextParser]

    def manifest(self, request: Request) -> ManifestSource:
        """The body: text (YAML) or data (JSON).

        Raises:
            BadRequest: it is no mapping. Invalid: it is longer than a manifest may be.
        """
        data: Any = request.data
        if not isinstance(data, str | dict):
            raise BadRequest("The body must be one ModelDeployment manifest, as a JSON object or as YAML.")
        # Of a text the reader itself says so, of data it can't: how long a manifest takes to check depends on it.
        if isinstance(data, dict) and len(request.body) > MAX_BYTES:
            size = len(request.body)
            raise Invalid(f"The manifest is {size:,} bytes long; at most {MAX_BYTES:,} are read. Split it up.")
        return data

    def apply(self, request: Request, tenant: str, **options: Any) -> Response:
        """Apply the body's manifest."""
        admit = request.query_params.get("admit", "")
        if admit not in ("", "now"):
            raise BadRequest(f"admit={admit}: the only value is now.")
        dry_run = flag(request.query_params, "dry_run")
        done = deployment_apply(
            tenant=self.enter(tenant, Perm.DEPLOYMENT_WRITE),
            manifest=self.manifest(request),
            actor=self.actor,
            admit_now=admit == "now",
            dry_run=dry_run,
            if_match=request.headers.get("If-Match"),
            **options,
        )
        return self.applied(request, done, dry_run=dry_run)

    def applied(self, request: Request, done: Applied, *, dry_run: bool) -> Response:
        """202 with the place to look; 200 where nothing was stored."""
        body = shapes.AppliedSerializer(done).data
        if dry_run:
            assert done.preview is not None
            return Response({**body, "preview": done.preview.as_json()})
        headers = {"ETag": deployment_etag(done.deployment)}
        if done.outcome == "unchanged":
            return Response(body, headers=headers)
        base = request.path.partition("/deployments")[0]
        headers["Location"] = f"{base}/deployments/{done.deployment.name}"
        return Response(body, status=202, headers=headers)


class DeploymentsView(ManifestView):
    """A tenant's model deployments."""

    pagination_class = None

    @extend_schema(
        operation_id="deployment_list",
        parameters=[
            OpenApiParameter("cursor", OpenApiTypes.STR, description="next_cursor of the page before"),
            OpenApiParameter("page_size", OpenApiTypes.INT, description="1 to 200; 50 unless told"),
            OpenApiParameter("search", OpenApiTypes.STR, description="part of the name"),
            OpenApiParameter("phase", OpenApiTypes.STR),
        ],
        responses=shapes.DeploymentListSerializer,
    )
    def get(self, request: Request, tenant: str) -> Response:
        """The newest first."""
        row = self.enter(tenant)
        query = request.query_params
        size = query.get("page_size", "50")
        if not size.isascii() or not size.isdecimal() or len(size) > 3 or not 1 <= int(size) <= 200:
            raise BadRequest("page_size is a number from 1 to 200.")
        with tenant_scope(row.pk):
            page = deployments_page(
                tenant=row,
                cursor=query.get("cursor", ""),
                limit=int(size),
                search=query.get("search", ""),
                phase=query.get("phase", ""),
            )
            rows = shapes.DeploymentSummarySerializer([each.deployment for each in page.rows], many=True).data
        return Response({"results": rows, "next_cursor": page.next_cursor})

    @extend_schema(
        operation_id="deployment_apply",
        parameters=[ADMIT, DRY_RUN],
        request=MANIFEST,
        responses={
            200: OpenApiResponse(shapes.AppliedSerializer, "unchanged, or a dry run"),
            202: shapes.AppliedSerializer,
        },
    )
    def post(self, request: Request, tenant: str) -> Response:
        """Create a deployment, or change the one of that name."""
        return self.apply(request, tenant)


class DeploymentView(ManifestView):
    """One model deployment."""

    @extend_schema(operation_id="deployment_get", responses=shapes.DeploymentSerializer)
    def get(self, request: Request, tenant: str, name: str) -> Response:
        """Its wish, its state, its replicas."""
        row = self.enter(tenant)
        with tenant_scope(row.pk):
            detail = deployment_detail(tenant=row, name=name, events=1)
            detail.deployment.live_replicas = detail.replicas  # type: ignore[attr-defined]  # for the serializer
            body = shapes.DeploymentSerializer(detail.deployment).data
        return Response(body, headers={"ETag": deployment_etag(detail.deployment)})

    @extend_schema(
        operation_id="deployment_replace",
        parameters=[ADMIT, DRY_RUN, IF_MATCH],
        request=MANIFEST,
        responses={
            200: OpenApiResponse(shapes.AppliedSerializer, "unchanged, or a dry run"),
            202: shapes.AppliedSerializer,
        },
    )
    def put(self, request: Request, tenant: str, name: str) -> Response:
        """Apply a manifest to this deployment; it must carry its name."""
        self.enter(tenant, Perm.DEPLOYMENT_WRITE)
        data = self.manifest(request)
        if isinstance(data, dict):
            named = (data.get("metadata") or {}).get("name") if isinstance(data.get("metadata"), dict) else None
            if named != name:
                raise Invalid.field("/metadata/name", f"The manifest names {named}, the address {name}.")
        return self.apply(request, tenant)

    @extend_schema(
        operation_id="deployment_delete", parameters=[IF_MATCH], responses={202: shapes.DeploymentSummarySerializer}
    )
    def delete(self, request: Request, tenant: str, name: str) -> Response:
        """Have it deleted. It is gone when each cluster has confirmed it."""
        row = self.enter(tenant, Perm.DEPLOYMENT_WRITE)
        gone = deployment_delete(tenant=row, name=name, actor=self.actor, if_match=request.headers.get("If-Match"))
        return _summary(gone)


class DeploymentScaleView(TeamView):
    """The number of replicas."""

    @extend_schema(
        operation_id="deployment_scale",
        parameters=[IF_MATCH],
        request=shapes.ScaleSerializer,
        responses={202: shapes.DeploymentSummarySerializer},
    )
    def post(self, request: Request, tenant: str, name: str) -> Response:
        """Ask for another number; 0 holds nothing."""
        row = self.enter(tenant, Perm.DEPLOYMENT_WRITE)
        body = self.read(shapes.ScaleSerializer)
        if_match = request.headers.get("If-Match")
        return _summary(deployment_scale(tenant=row, name=name, **body, actor=self.actor, if_match=if_match))


class DeploymentImageView(TeamView):
    """The image."""

    @extend_schema(
        operation_id="deployment_set_image",
        parameters=[IF_MATCH],
        request=shapes.ImageSerializer,
        responses={202: shapes.DeploymentSummarySerializer},
    )
    def post(self, request: Request, tenant: str, name: str) -> Response:
        """Run another image."""
        row = self.enter(tenant, Perm.DEPLOYMENT_WRITE)
        body = self.read(shapes.ImageSerializer)
        if_match = request.headers.get("If-Match")
        return _summary(deployment_set_image(tenant=row, name=name, **body, actor=self.actor, if_match=if_match))


class DeploymentEventsView(TeamView):
    """The timeline."""

    @extend_schema(operation_id="deployment_events", responses=shapes.EventSerializer(many=True))
    def get(self, request: Request, tenant: str, name: str) -> Response:
        """The latest first."""
        row = self.enter(tenant)
        with tenant_scope(row.pk):
            deployment = deployment_get(tenant=row, name=name)
            events = DeploymentEvent.objects.filter(tenant=row, deployment=deployment)
            return self.page(events, shapes.EventSerializer, ("-last_at", "-id"))


class DeploymentManifestView(TeamView):
    """The manifest as YAML."""

    @extend_schema(operation_id="deployment_manifest", responses={(200, "application/yaml"): OpenApiTypes.STR})
    def get(self, request: Request, tenant: str, name: str) -> HttpResponse:
        """As it can be applied again."""
        row = self.enter(tenant)
        with tenant_scope(row.pk):
            text = to_yaml(manifest_of(deployment_get(tenant=row, name=name)))
        return HttpResponse(text, content_type="application/yaml; charset=utf-8")


class PreviewView(ManifestView):
    """What applying would do."""

    @extend_schema(operation_id="deployment_preview", request=MANIFEST, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request, tenant: str) -> Response:
        """Objects, places, reasons for each pool not chosen, quota afterwards, price, rollout. Stores nothing."""
        row = self.enter(tenant, Perm.DEPLOYMENT_WRITE)
        preview = deployment_preview(tenant=row, manifest=self.manifest(request), actor=self.actor)
        return Response(preview.as_json())


def _summary(deployment: ModelDeployment) -> Response:
    return Response(
        shapes.DeploymentSummarySerializer(deployment).data,
        status=202,
        headers={"ETag": deployment_etag(deployment)},
    )
