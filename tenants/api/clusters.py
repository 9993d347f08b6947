"""Tenant clusters over REST. A change answers 202: the workers bring it about, and the row says how far they are."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from infra.api.serializers import ConditionSerializer
from infra.models import Cluster
from portal.kernel.api import PlatformView
from portal.kernel.idempotency import HEADER
from portal.kernel.problems import BadRequest, Invalid, NotFound
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.api.serializers import CardsField
from tenants.api.views import TeamView
from tenants.models import Robot, TenantCluster
from tenants.permissions import Perm
from tenants.selectors.tenantclusters import robots_of, tenant_cluster_on, tenant_cluster_parts, tenant_clusters
from tenants.services.tenantcluster_access import (
    robot_create,
    robot_delete,
    robot_token,
    tenant_cluster_kubeconfig,
)
from tenants.services.tenantclusters import (
    tenant_cluster_delete,
    tenant_cluster_pause,
    tenant_cluster_request,
    tenant_cluster_resume,
    tenant_cluster_retry,
    tenant_cluster_upgrade,
)

_ORDER = ("created_at", "id")


class TenantClusterSerializer(serializers.ModelSerializer[TenantCluster]):
    """A tenant cluster. ``inside``: what was seen in it (nodes: the size of the pool; pods that the host refuses)."""

    tenant = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    cluster = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    conditions = ConditionSerializer(many=True)
    allotments = serializers.SerializerMethodField()
    inside = serializers.DictField(read_only=True)
    leftovers = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = TenantCluster
        fields = [
            "tenant",
            "cluster",
            "name",
            "namespace",
            "endpoint",
            "phase",
            "desired",
            "kubernetes_version",
            "chart_version",
            "running_kubernetes",
            "running_chart",
            "allotments",
            "conditions",
            "inside",
            "inside_seen_at",
            "leftovers",
            "generation",
            "observed_generation",
            "requested_by",
            "created_at",
            "deleting_at",
        ]
        read_only_fields = fields

    def get_allotments(self, row: TenantCluster) -> dict[str, str]:
        """Cards by GPU type, as they count now."""
        shown = CardsField()
        parts = tenant_cluster_parts(row)
        return {part.quota.gpu_type.slug: shown.to_representation(part.amount) for part in parts}


class NewTenantClusterSerializer(serializers.Serializer[Any]):
    """A tenant cluster to ask for."""

    cluster = serializers.CharField(max_length=40)
    allotments = serializers.DictField(
        child=CardsField(), required=False, default=dict, help_text="GPU type → whole cards."
    )
    version = serializers.CharField(max_length=20, required=False, allow_blank=True, default="")
    endpoint = serializers.CharField(max_length=400, required=False, allow_blank=True, default="")


class TenantClusterVersionSerializer(serializers.Serializer[Any]):
    """Where to go."""

    version = serializers.CharField(max_length=20)


class RobotSerializer(serializers.ModelSerializer[Robot]):
    """A robot. ``token_expires_at``: when the last token that was given out ends."""

    class Meta:
        model = Robot
        fields = ["name", "role", "ready_at", "token_issued_at", "token_expires_at", "deleting_at", "created_at"]
        read_only_fields = fields


class NewRobotSerializer(serializers.Serializer[Any]):
    """A robot to make."""

    name = serializers.CharField(max_length=40)
    role = serializers.ChoiceField(choices=Robot.Role.choices, default=Robot.Role.EDIT)


class NewRobotTokenSerializer(serializers.Serializer[Any]):
    """How long the token shall live; left out: as long as the platform allows."""

    seconds = serializers.IntegerField(required=False, min_value=1)


class RobotTokenSerializer(serializers.Serializer[Any]):
    """A token, shown this once."""

    token = serializers.CharField(read_only=True)
    expires_at = serializers.DateTimeField(read_only=True)


class ClusterView(TeamView):
    """A view of one tenant cluster."""

    def row(self, tenant: str, cluster: str, perm: Perm = Perm.TENANT_READ) -> TenantCluster:
        """The tenant's cluster on that host, if the actor may."""
        team = self.enter(tenant, perm)
        with tenant_scope(team.pk):
            return tenant_cluster_on(team, cluster)

    def answer(self, row: TenantCluster, status: int = 202) -> Response:
        """The row as it is now."""
        with tenant_scope(row.tenant_id):
            return Response(TenantClusterSerializer(row).data, status=status)


class NotKept(ClusterView):
    """A view whose answers are never kept for a repeated request: each is a way in, and each is audited."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse to keep the answer."""
        if request.headers.get(HEADER):
            raise BadRequest(f"{HEADER} is not taken here: the answer is a way in, and is never kept.")
        super().initial(request, *args, **kwargs)


class TenantClustersView(ClusterView):
    """The tenant's clusters."""

    @extend_schema(operation_id="tenant_cluster_list", responses=TenantClusterSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """By when they were asked for."""
        team = self.enter(tenant)
        with tenant_scope(team.pk):
            return self.page(tenant_clusters(team).order_by(), TenantClusterSerializer, _ORDER)

    @extend_schema(
        operation_id="tenant_cluster_request",
        request=NewTenantClusterSerializer,
        responses={202: TenantClusterSerializer},
    )
    def post(self, request: Request, tenant: str) -> Response:
        """Ask for one. Its cards count as admitted from now on."""
        team = self.enter(tenant, Perm.CLUSTER_MANAGE)
        body = self.read(NewTenantClusterSerializer)
        host = Cluster.objects.filter(slug=body.pop("cluster"), site__in=team.sites.all()).first()
        if host is None:
            raise Invalid.field("/cluster", "There is no such cluster at a site that the tenant may use.")
        return self.answer(tenant_cluster_request(tenant=team, cluster=host, **body, actor=self.actor))


class TenantClusterView(ClusterView):
    """One tenant cluster."""

    @extend_schema(operation_id="tenant_cluster_get", responses=TenantClusterSerializer)
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """Its state."""
        return self.answer(self.row(tenant, cluster), 200)

    @extend_schema(operation_id="tenant_cluster_delete", responses={202: TenantClusterSerializer})
    def delete(self, request: Request, tenant: str, cluster: str) -> Response:
        """Have it deleted with all in it; it is gone when this address answers 404."""
        row = self.row(tenant, cluster, Perm.CLUSTER_MANAGE)
        return self.answer(tenant_cluster_delete(row=row, actor=self.actor))


class TenantClusterPauseView(ClusterView):
    """Pause."""

    @extend_schema(operation_id="tenant_cluster_pause", request=None, responses={202: TenantClusterSerializer})
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Stop its API server and its pods; what is stored stays."""
        row = self.row(tenant, cluster, Perm.CLUSTER_MANAGE)
        return self.answer(tenant_cluster_pause(row=row, actor=self.actor))


class TenantClusterResumeView(ClusterView):
    """Resume."""

    @extend_schema(operation_id="tenant_cluster_resume", request=None, responses={202: TenantClusterSerializer})
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Start it again."""
        row = self.row(tenant, cluster, Perm.CLUSTER_MANAGE)
        return self.answer(tenant_cluster_resume(row=row, actor=self.actor))


class TenantClusterRetryView(ClusterView):
    """Try again."""

    @extend_schema(operation_id="tenant_cluster_retry", request=None, responses={202: TenantClusterSerializer})
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Forget what failed, and try again."""
        row = self.row(tenant, cluster, Perm.CLUSTER_MANAGE)
        return self.answer(tenant_cluster_retry(row=row, actor=self.actor))


class TenantClusterUpgradeView(ClusterView):
    """Upgrade."""

    @extend_schema(
        operation_id="tenant_cluster_upgrade",
        request=TenantClusterVersionSerializer,
        responses={202: TenantClusterSerializer},
    )
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Go to another version on offer, at most one minor version further."""
        row = self.row(tenant, cluster, Perm.CLUSTER_MANAGE)
        body = self.read(TenantClusterVersionSerializer)
        return self.answer(tenant_cluster_upgrade(row=row, **body, actor=self.actor))


class TenantClusterKubeconfigView(NotKept):
    """The kubeconfig for members."""

    @extend_schema(
        operation_id="tenant_cluster_kubeconfig",
        request=None,
        responses={(200, "application/yaml"): OpenApiResponse(OpenApiTypes.STR, "a kubeconfig without a secret")},
    )
    def post(self, request: Request, tenant: str, cluster: str) -> HttpResponse:
        """A kubeconfig that names the identity provider and holds no secret. Each one is audited, hence POST."""
        text = tenant_cluster_kubeconfig(row=self.row(tenant, cluster, Perm.CLUSTER_USE), actor=self.actor)
        return HttpResponse(text, content_type="application/yaml", headers={"Cache-Control": "no-store"})


class RobotsView(ClusterView):
    """The robots of a tenant cluster."""

    @extend_schema(operation_id="robot_list", responses=RobotSerializer(many=True))
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """By when they were made."""
        row = self.row(tenant, cluster)
        with tenant_scope(row.tenant_id):
            return self.page(robots_of(row).order_by(), RobotSerializer, _ORDER)

    @extend_schema(operation_id="robot_create", request=NewRobotSerializer, responses={202: RobotSerializer})
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Make one; it is there when ``ready_at`` is set."""
        row = self.row(tenant, cluster, Perm.CLUSTER_MANAGE)
        robot = robot_create(row=row, **self.read(NewRobotSerializer), actor=self.actor)
        return Response(RobotSerializer(robot).data, status=202)


class RobotView(ClusterView):
    """One robot."""

    @extend_schema(operation_id="robot_delete", responses={202: RobotSerializer})
    def delete(self, request: Request, tenant: str, cluster: str, robot: str) -> Response:
        """Take its access away; every token of it ends."""
        found = self.robot(self.row(tenant, cluster, Perm.CLUSTER_MANAGE), robot)
        return Response(RobotSerializer(robot_delete(robot=found, actor=self.actor)).data, status=202)

    def robot(self, row: TenantCluster, name: str) -> Robot:
        """The robot of that name.

        Raises:
            NotFound: there is none.
        """
        with tenant_scope(row.tenant_id):
            found = robots_of(row).filter(name=name).first()
        if found is None:
            raise NotFound(f"There is no robot {name} on this tenant cluster.")
        return found


class RobotTokenView(NotKept, RobotView):
    """A robot's token."""

    http_method_names = ["post", "options"]  # as Django's View has it

    @extend_schema(operation_id="robot_token", request=NewRobotTokenSerializer, responses={200: RobotTokenSerializer})
    def post(self, request: Request, tenant: str, cluster: str, robot: str) -> Response:
        """Ask for a token. It is in this answer and nowhere else."""
        found = self.robot(self.row(tenant, cluster, Perm.CLUSTER_MANAGE), robot)
        issued = robot_token(robot=found, **self.read(NewRobotTokenSerializer), actor=self.actor)
        return Response(RobotTokenSerializer(issued).data, headers={"Cache-Control": "no-store"})


class PlatformTenantClustersView(PlatformView):
    """All tenant clusters."""

    @extend_schema(operation_id="platform_tenant_cluster_list", responses=TenantClusterSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Of every tenant, by when they were asked for."""
        with system_scope("platform API: tenant clusters"):
            return self.page(tenant_clusters().order_by(), TenantClusterSerializer, _ORDER)
