"""The fleet over REST, for platform roles."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from infra.api import serializers as shapes
from infra.models import Cluster, GPUType, NamespaceClaim, Node, NodePool
from infra.selectors.claims import unmapped_namespaces
from infra.selectors.clusters import cluster_by_slug, cluster_list, site_by_slug, site_list
from infra.services import claims, classes, clusters
from portal.kernel.api import PlatformView
from portal.kernel.problems import Invalid, NotFound

BY_SLUG = ("slug", "id")


def _site(slug: str) -> Any:
    """A site named in a body: unknown is a wrong value (422), not a missing page."""
    try:
        return site_by_slug(slug)
    except NotFound as error:
        raise Invalid.field("/site", error.detail) from error


class SitesView(PlatformView):
    """Data centres."""

    @extend_schema(operation_id="site_list", responses=shapes.SiteSerializer(many=True))
    def get(self, request: Request) -> Response:
        """All sites."""
        return self.page(site_list(), shapes.SiteSerializer, BY_SLUG)

    @extend_schema(operation_id="site_create", request=shapes.NewSiteSerializer, responses={201: shapes.SiteSerializer})
    def post(self, request: Request) -> Response:
        """Make a site."""
        site = clusters.site_create(**self.read(shapes.NewSiteSerializer), actor=self.actor)
        return Response(shapes.SiteSerializer(site).data, status=201)


class SiteView(PlatformView):
    """One data centre."""

    @extend_schema(operation_id="site_get", responses=shapes.SiteSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """The site."""
        return Response(shapes.SiteSerializer(site_by_slug(slug)).data)

    @extend_schema(operation_id="site_update", request=shapes.ChangedSiteSerializer, responses=shapes.SiteSerializer)
    def patch(self, request: Request, slug: str) -> Response:
        """Rename it."""
        body = self.read(shapes.ChangedSiteSerializer)
        site = clusters.site_update(site=site_by_slug(slug), **body, actor=self.actor)
        return Response(shapes.SiteSerializer(site).data)


class ClustersView(PlatformView):
    """Connected clusters."""

    @extend_schema(operation_id="cluster_list", responses=shapes.ClusterSerializer(many=True))
    def get(self, request: Request) -> Response:
        """All clusters that were not given up."""
        return self.page(cluster_list().prefetch_related("watch_targets"), shapes.ClusterSerializer, BY_SLUG)

    @extend_schema(
        operation_id="cluster_connect",
        request=shapes.NewClusterSerializer,
        responses={201: shapes.ClusterSerializer},
    )
    def post(self, request: Request) -> Response:
        """Connect a cluster. It is asked for its version, its identity and our rights before the answer."""
        body = self.read(shapes.NewClusterSerializer)
        body["site"] = _site(body["site"])
        cluster = clusters.cluster_connect(**body, actor=self.actor)
        return Response(shapes.ClusterSerializer(cluster).data, status=201)


class ClusterView(PlatformView):
    """One cluster."""

    @extend_schema(operation_id="cluster_get", responses=shapes.ClusterSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """The cluster, given up or not."""
        return Response(shapes.ClusterSerializer(cluster_by_slug(slug)).data)

    @extend_schema(
        operation_id="cluster_update", request=shapes.ChangedClusterSerializer, responses=shapes.ClusterSerializer
    )
    def patch(self, request: Request, slug: str) -> Response:
        """Change name, site, labels, taints or system namespaces."""
        body = self.read(shapes.ChangedClusterSerializer, partial=True)
        if "site" in body:
            body["site"] = _site(body["site"])
        cluster = clusters.cluster_update(cluster=cluster_by_slug(slug), **body, actor=self.actor)
        return Response(shapes.ClusterSerializer(cluster).data)


class ClusterModeView(PlatformView):
    """A cluster's mode."""

    @extend_schema(operation_id="cluster_set_mode", request=shapes.ModeSerializer, responses=shapes.ClusterSerializer)
    def post(self, request: Request, slug: str) -> Response:
        """Observe or manage; manage is probed for each right that it needs."""
        body = self.read(shapes.ModeSerializer)
        cluster = clusters.cluster_set_mode(cluster=cluster_by_slug(slug), **body, actor=self.actor)
        return Response(shapes.ClusterSerializer(cluster).data)


class ClusterPauseView(PlatformView):
    """Stop writing to a cluster."""

    @extend_schema(operation_id="cluster_pause", request=None, responses=shapes.ClusterSerializer)
    def post(self, request: Request, slug: str) -> Response:
        """Pause: reading goes on."""
        cluster = clusters.cluster_pause(cluster=cluster_by_slug(slug), actor=self.actor)
        return Response(shapes.ClusterSerializer(cluster).data)


class ClusterResumeView(PlatformView):
    """Write to a cluster again."""

    @extend_schema(operation_id="cluster_resume", request=None, responses=shapes.ClusterSerializer)
    def post(self, request: Request, slug: str) -> Response:
        """Resume."""
        cluster = clusters.cluster_resume(cluster=cluster_by_slug(slug), actor=self.actor)
        return Response(shapes.ClusterSerializer(cluster).data)


class ClusterKubeconfigView(PlatformView):
    """A cluster's credentials: they go in, never out."""

    @extend_schema(
        operation_id="cluster_rotate_kubeconfig",
        request=shapes.KubeconfigSerializer,
        responses=shapes.ClusterSerializer,
    )
    def post(self, request: Request, slug: str) -> Response:
        """Take new credentials of the same cluster."""
        body = self.read(shapes.KubeconfigSerializer)
        cluster = clusters.cluster_rotate_kubeconfig(cluster=cluster_by_slug(slug), **body, actor=self.actor)
        return Response(shapes.ClusterSerializer(cluster).data)


class ClusterAbandonView(PlatformView):
    """Give up a cluster that is gone for ever."""

    @extend_schema(
        operation_id="cluster_abandon", request=shapes.AbandonSerializer, responses=shapes.AbandonedSerializer
    )
    def post(self, request: Request, slug: str) -> Response:
        """Its credentials are thrown away, its evidence and bills stay, leftovers are listed."""
        body = self.read(shapes.AbandonSerializer)
        gone = clusters.cluster_abandon(cluster=cluster_by_slug(slug), **body, actor=self.actor)
        return Response(shapes.AbandonedSerializer(gone).data)


class NodesView(PlatformView):
    """The nodes of a cluster that have cards."""

    @extend_schema(operation_id="cluster_nodes", responses=shapes.NodeSerializer(many=True))
    def get(self, request: Request, slug: str) -> Response:
        """Nodes that are there."""
        nodes = Node.objects.filter(cluster=cluster_by_slug(slug), gone_at__isnull=True).select_related("pool")
        return self.page(nodes, shapes.NodeSerializer, ("name", "id"))


class PoolsView(PlatformView):
    """The node pools of a cluster."""

    @extend_schema(operation_id="cluster_pools", responses=shapes.NodePoolSerializer(many=True))
    def get(self, request: Request, slug: str) -> Response:
        """Found or declared."""
        pools = NodePool.objects.filter(cluster=cluster_by_slug(slug)).select_related("gpu_type")
        return self.page(pools, shapes.NodePoolSerializer, ("name", "id"))


class GPUTypesView(PlatformView):
    """Kinds of cards."""

    @extend_schema(operation_id="gpu_type_list", responses=shapes.GPUTypeSerializer(many=True))
    def get(self, request: Request) -> Response:
        """All that were found or declared."""
        return self.page(GPUType.objects.all(), shapes.GPUTypeSerializer, BY_SLUG)


class ClaimsView(PlatformView):
    """Whose namespaces are."""

    @extend_schema(operation_id="namespace_claim_list", responses=shapes.ClaimSerializer(many=True))
    def get(self, request: Request) -> Response:
        """All claims, the newest first."""
        return self.page(NamespaceClaim.objects.select_related("cluster"), shapes.ClaimSerializer, ("-id",))

    @extend_schema(
        operation_id="namespace_claim_set", request=shapes.NewClaimSerializer, responses={201: shapes.ClaimSerializer}
    )
    def post(self, request: Request) -> Response:
        """Give a namespace to a tenant. Usage that was metered before is set right."""
        body = self.read(shapes.NewClaimSerializer)
        body["cluster"] = _cluster(body["cluster"])
        claim = claims.namespace_claim_set(**body, actor=self.actor)
        return Response(shapes.ClaimSerializer(claim).data, status=201)


class ClaimEndView(PlatformView):
    """The end of a claim."""

    @extend_schema(
        operation_id="namespace_claim_end", request=shapes.ClaimEndSerializer, responses=shapes.ClaimSerializer
    )
    def post(self, request: Request, claim_id: UUID) -> Response:
        """End it at an instant."""
        body = self.read(shapes.ClaimEndSerializer)
        claim = NamespaceClaim.objects.select_related("cluster").filter(pk=claim_id).first()
        if claim is None:
            raise NotFound("There is no such claim.")
        return Response(shapes.ClaimSerializer(claims.namespace_claim_end(claim=claim, **body, actor=self.actor)).data)


class UnmappedView(PlatformView):
    """Namespaces with GPU pods that are nobody's."""

    pagination_class = None

    @extend_schema(operation_id="namespace_unmapped", responses=shapes.UnmappedSerializer(many=True))
    def get(self, request: Request) -> Response:
        """All of them, the busiest first."""
        return Response(shapes.UnmappedSerializer(unmapped_namespaces(list(cluster_list())), many=True).data)


class ManifestsView(PlatformView):
    """InferenceClass and InferenceCluster manifests."""

    @extend_schema(
        operation_id="fleet_manifest_apply",
        request=shapes.ManifestSerializer,
        responses=shapes.ManifestAppliedSerializer,
    )
    def post(self, request: Request) -> Response:
        """Apply one. The same again changes nothing."""
        self.read(shapes.ManifestSerializer)
        manifest: dict[str, Any] = dict(request.data)
        if manifest["kind"] == "InferenceClass":
            recipe = classes.inference_class_apply(manifest=manifest, actor=self.actor)
            answer: dict[str, Any] = {"kind": "InferenceClass", "name": recipe.name, "pools": [], "notes": []}
        else:
            done = classes.inference_cluster_apply(manifest=manifest, actor=self.actor)
            answer = {
                "kind": "InferenceCluster",
                "name": done.cluster.slug,
                "pools": [pool.name for pool in done.pools],
                "notes": list(done.notes),
            }
        return Response(answer)


def _cluster(slug: str) -> Cluster:
    """A cluster named in a body."""
    try:
        return cluster_by_slug(slug)
    except NotFound as error:
        raise Invalid.field("/cluster", error.detail) from error
