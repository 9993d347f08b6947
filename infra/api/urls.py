"""Addresses below ``/api/v1/``."""

from django.urls import path

from infra.api import views

urlpatterns = [
    path("sites", views.SitesView.as_view(), name="api-sites"),
    path("sites/<slug:slug>", views.SiteView.as_view(), name="api-site"),
    path("clusters", views.ClustersView.as_view(), name="api-clusters"),
    path("clusters/<slug:slug>", views.ClusterView.as_view(), name="api-cluster"),
    path("clusters/<slug:slug>/mode", views.ClusterModeView.as_view(), name="api-cluster-mode"),
    path("clusters/<slug:slug>/pause", views.ClusterPauseView.as_view(), name="api-cluster-pause"),
    path("clusters/<slug:slug>/resume", views.ClusterResumeView.as_view(), name="api-cluster-resume"),
    path("clusters/<slug:slug>/kubeconfig", views.ClusterKubeconfigView.as_view(), name="api-cluster-kubeconfig"),
    path("clusters/<slug:slug>/abandon", views.ClusterAbandonView.as_view(), name="api-cluster-abandon"),
    path("clusters/<slug:slug>/nodes", views.NodesView.as_view(), name="api-cluster-nodes"),
    path("clusters/<slug:slug>/pools", views.PoolsView.as_view(), name="api-cluster-pools"),
    path("gpu-types", views.GPUTypesView.as_view(), name="api-gpu-types"),
    path("namespace-claims", views.ClaimsView.as_view(), name="api-namespace-claims"),
    path("namespace-claims/<uuid:claim_id>/end", views.ClaimEndView.as_view(), name="api-namespace-claim-end"),
    path("namespaces/unmapped", views.UnmappedView.as_view(), name="api-namespaces-unmapped"),
    path("manifests", views.ManifestsView.as_view(), name="api-fleet-manifests"),
]
