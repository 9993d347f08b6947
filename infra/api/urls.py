"""Addresses below ``/api/v1/``."""

from django.urls import path

from infra.api import endpoints, health, history, isolation, operations, overcommit, rights, views

urlpatterns = [
    path("clusters/<slug:slug>/endpoints", endpoints.EndpointsView.as_view(), name="api-endpoints"),
    path("clusters/<slug:slug>/endpoints/<slug:role>", endpoints.EndpointView.as_view(), name="api-endpoint"),
    path(
        "clusters/<slug:slug>/endpoints/<slug:role>/test",
        endpoints.EndpointTestView.as_view(),
        name="api-endpoint-test",
    ),
    path(
        "clusters/<slug:slug>/endpoints/<slug:role>/pause",
        endpoints.EndpointPauseView.as_view(),
        name="api-endpoint-pause",
    ),
    path("clusters/<slug:slug>/telemetry", endpoints.TelemetryView.as_view(), name="api-telemetry"),
    path("clusters/<slug:slug>/telemetry/gaps", endpoints.TelemetryGapsView.as_view(), name="api-telemetry-gaps"),
    path("clusters/<slug:slug>/telemetry/hours", endpoints.TelemetryHoursView.as_view(), name="api-telemetry-hours"),
    path("health/events", health.HealthEventsView.as_view(), name="api-health-events"),
    path("health/events/<uuid:event_id>/end", health.HealthEventEndView.as_view(), name="api-health-event-end"),
    path("operations", operations.OperationsView.as_view(), name="api-operations"),
    path("operations/write-stop", operations.WriteStopView.as_view(), name="api-write-stop"),
    path("operations/write-stop/resume", operations.WriteResumeView.as_view(), name="api-write-resume"),
    path("operations/work-items", operations.WorkItemsView.as_view(), name="api-work-items"),
    path("operations/work-items/<uuid:item_id>/retry", operations.WorkItemRetryView.as_view(), name="api-work-retry"),
    path("sites", views.SitesView.as_view(), name="api-sites"),
    path("sites/<slug:slug>", views.SiteView.as_view(), name="api-site"),
    path("clusters", views.ClustersView.as_view(), name="api-clusters"),
    path("clusters/preflight", rights.PreflightView.as_view(), name="api-cluster-preflight"),
    path("clusters/<slug:slug>/rights", rights.ClusterRightsView.as_view(), name="api-cluster-rights"),
    path("clusters/<slug:slug>", views.ClusterView.as_view(), name="api-cluster"),
    path("clusters/<slug:slug>/mode", views.ClusterModeView.as_view(), name="api-cluster-mode"),
    path("clusters/<slug:slug>/pause", views.ClusterPauseView.as_view(), name="api-cluster-pause"),
    path("clusters/<slug:slug>/resume", views.ClusterResumeView.as_view(), name="api-cluster-resume"),
    path("clusters/<slug:slug>/kubeconfig", views.ClusterKubeconfigView.as_view(), name="api-cluster-kubeconfig"),
    path("clusters/<slug:slug>/abandon", views.ClusterAbandonView.as_view(), name="api-cluster-abandon"),
    path("clusters/<slug:slug>/isolation", isolation.IsolationView.as_view(), name="api-cluster-isolation"),
    path(
        "clusters/<slug:slug>/isolation/wanted",
        isolation.IsolationWantedView.as_view(),
        name="api-cluster-isolation-wanted",
    ),
    path(
        "clusters/<slug:slug>/isolation/pieces/<slug:piece>",
        isolation.IsolationPieceView.as_view(),
        name="api-cluster-isolation-piece",
    ),
    path("clusters/<slug:slug>/nodes", views.NodesView.as_view(), name="api-cluster-nodes"),
    path("clusters/<slug:slug>/pools", views.PoolsView.as_view(), name="api-cluster-pools"),
    path(
        "clusters/<slug:slug>/pools/<str:name>/overcommit",
        overcommit.OvercommitView.as_view(),
        name="api-pool-overcommit",
    ),
    path("clusters/<slug:slug>/rebuilds", history.RebuildsView.as_view(), name="api-rebuilds"),
    path("clusters/<slug:slug>/rebuilds/<uuid:rebuild_id>", history.RebuildView.as_view(), name="api-rebuild"),
    path(
        "clusters/<slug:slug>/rebuilds/<uuid:rebuild_id>/pause",
        history.RebuildPauseView.as_view(),
        name="api-rebuild-pause",
    ),
    path(
        "clusters/<slug:slug>/rebuilds/<uuid:rebuild_id>/resume",
        history.RebuildResumeView.as_view(),
        name="api-rebuild-resume",
    ),
    path(
        "clusters/<slug:slug>/rebuilds/<uuid:rebuild_id>/cancel",
        history.RebuildCancelView.as_view(),
        name="api-rebuild-cancel",
    ),
    path("gpu-types", views.GPUTypesView.as_view(), name="api-gpu-types"),
    path("namespace-claims", views.ClaimsView.as_view(), name="api-namespace-claims"),
    path("namespace-claims/<uuid:claim_id>/end", views.ClaimEndView.as_view(), name="api-namespace-claim-end"),
    path("namespaces/unmapped", views.UnmappedView.as_view(), name="api-namespaces-unmapped"),
    path("manifests", views.ManifestsView.as_view(), name="api-fleet-manifests"),
]
