"""Addresses of the fleet's pages: below ``/platform/``."""

from django.urls import path, re_path

from infra.web import health, history, isolation, operations, rights, sources, views

app_name = "infra"
urlpatterns = [
    path("platform/clusters/<slug:slug>/sources", sources.sources, name="cluster-sources"),
    re_path(
        r"^platform/clusters/(?P<slug>[-\w]+)/sources/(?P<role>metrics|opencost)$",
        sources.source_set,
        name="cluster-source-set",
    ),
    re_path(
        r"^platform/clusters/(?P<slug>[-\w]+)/sources/(?P<role>metrics|opencost)/(?P<action>test|pause|resume|remove)$",
        sources.source_act,
        name="cluster-source-act",
    ),
    path("platform/operations/", operations.operations, name="operations"),
    path("platform/operations/stop", operations.stop, name="writes-stop"),
    path("platform/operations/resume", operations.resume, name="writes-resume"),
    path("platform/health/", health.health, name="health"),
    path("platform/health/<uuid:event_id>/end", health.health_end, name="health-end"),
    path("platform/clusters/", views.clusters, name="clusters"),
    path("platform/clusters/connect", views.connect, name="connect"),
    path("platform/clusters/preflight", rights.preflight, name="preflight"),
    path("platform/sites/", views.site_create, name="site-create"),
    path("platform/manifests/", views.manifests, name="manifests"),
    path("platform/clusters/<slug:slug>/", views.cluster, name="cluster"),
    path("platform/clusters/<slug:slug>/rights", rights.cluster_rights, name="cluster-rights"),
    path("platform/clusters/<slug:slug>/pools/<str:name>/overcommit", views.pool_overcommit, name="pool-overcommit"),
    path("platform/clusters/<slug:slug>/isolation", isolation.isolation, name="cluster-isolation"),
    path("platform/clusters/<slug:slug>/isolation/ask", isolation.isolation_ask, name="cluster-isolation-ask"),
    path("platform/clusters/<slug:slug>/isolation/say", isolation.isolation_said, name="cluster-isolation-say"),
    path(
        "platform/clusters/<slug:slug>/isolation/put-up",
        isolation.isolation_act,
        {"wanted": True},
        name="cluster-isolation-put-up",
    ),
    path(
        "platform/clusters/<slug:slug>/isolation/take-down",
        isolation.isolation_act,
        {"wanted": False},
        name="cluster-isolation-take-down",
    ),
    path("platform/clusters/<slug:slug>/update", views.cluster_update, name="cluster-update"),
    path("platform/clusters/<slug:slug>/kubeconfig", views.cluster_kubeconfig, name="cluster-kubeconfig"),
    path("platform/clusters/<slug:slug>/abandon", views.cluster_abandon, name="cluster-abandon"),
    path("platform/clusters/<slug:slug>/history/", history.history, name="history"),
    path("platform/clusters/<slug:slug>/history/start", history.history_start, name="history-start"),
    re_path(
        r"^platform/clusters/(?P<slug>[-\w]+)/history/(?P<action>pause|resume|cancel)$",
        history.history_act,
        name="history-act",
    ),
    re_path(
        r"^platform/clusters/(?P<slug>[-\w]+)/(?P<action>pause|resume|observe|manage)$",
        views.cluster_act,
        name="cluster-act",
    ),
]
