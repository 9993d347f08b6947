"""Addresses of the fleet's pages: below ``/platform/``."""

from django.urls import path, re_path

from infra.web import views

app_name = "infra"
urlpatterns = [
    path("platform/clusters/", views.clusters, name="clusters"),
    path("platform/clusters/connect", views.connect, name="connect"),
    path("platform/sites/", views.site_create, name="site-create"),
    path("platform/manifests/", views.manifests, name="manifests"),
    path("platform/clusters/<slug:slug>/", views.cluster, name="cluster"),
    path("platform/clusters/<slug:slug>/update", views.cluster_update, name="cluster-update"),
    path("platform/clusters/<slug:slug>/kubeconfig", views.cluster_kubeconfig, name="cluster-kubeconfig"),
    path("platform/clusters/<slug:slug>/abandon", views.cluster_abandon, name="cluster-abandon"),
    re_path(
        r"^platform/clusters/(?P<slug>[-\w]+)/(?P<action>pause|resume|observe|manage)$",
        views.cluster_act,
        name="cluster-act",
    ),
]
