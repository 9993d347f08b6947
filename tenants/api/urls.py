"""Addresses below ``/api/v1/``."""

from django.urls import path

from tenants.api import clusters, deployments, mappings, queueing, quota, sharing, views, zones

urlpatterns = [
    path("zones", views.ZonesView.as_view(), name="api-zones"),
    path("zones/<slug:slug>", zones.ZoneDetailView.as_view(), name="api-zone"),
    path("clusters/<slug:slug>/pools/<str:name>/zone", zones.PoolZoneView.as_view(), name="api-pool-zone"),
    path("tenants/<slug:tenant>/rules", zones.TenantRulesView.as_view(), name="api-tenant-rules"),
    path("audit", views.PlatformAuditView.as_view(), name="api-audit"),
    path("group-mappings", mappings.GroupMappingsView.as_view(), name="api-group-mappings"),
    path("group-mappings/<uuid:mapping_id>", mappings.GroupMappingView.as_view(), name="api-group-mapping"),
    path("tenants", views.TenantsView.as_view(), name="api-tenants"),
    path("tenants/<slug:tenant>", views.TenantView.as_view(), name="api-tenant"),
    path("tenants/<slug:tenant>/state", views.TenantStateView.as_view(), name="api-tenant-state"),
    path("tenants/<slug:tenant>/zone", views.TenantZoneView.as_view(), name="api-tenant-zone"),
    path("tenants/<slug:tenant>/members", views.MembersView.as_view(), name="api-members"),
    path("tenants/<slug:tenant>/members/<str:username>", views.MemberView.as_view(), name="api-member"),
    path("tenants/<slug:tenant>/quotas", views.QuotasView.as_view(), name="api-quotas"),
    path("tenants/<slug:tenant>/quotas/<slug:gpu_type>", views.QuotaView.as_view(), name="api-quota"),
    path(
        "tenants/<slug:tenant>/quotas/<slug:gpu_type>/profiles",
        sharing.QuotaProfilesView.as_view(),
        name="api-quota-profiles",
    ),
    path("tenants/<slug:tenant>/parts", sharing.PartsView.as_view(), name="api-parts"),
    path("tenants/<slug:tenant>/sharing", sharing.SharingView.as_view(), name="api-tenant-sharing"),
    path("share-profiles", sharing.ShareProfilesView.as_view(), name="api-share-profiles"),
    path("tenants/<slug:tenant>/quotas/<slug:gpu_type>/makings", quota.QuotaMakingsView.as_view(), name="api-makings"),
    path("tenants/<slug:tenant>/quota-requests", quota.QuotaRequestsView.as_view(), name="api-quota-requests"),
    path(
        "tenants/<slug:tenant>/quota-requests/<uuid:request_id>",
        quota.QuotaRequestView.as_view(),
        name="api-quota-request",
    ),
    *(
        path(
            f"tenants/<slug:tenant>/quota-requests/<uuid:request_id>/{verb}",
            view.as_view(),
            name=f"api-quota-request-{verb}",
        )
        for verb, view in (
            ("submit", quota.QuotaRequestSubmitView),
            ("withdraw", quota.QuotaRequestWithdrawView),
            ("approve", quota.QuotaRequestApproveView),
            ("deny", quota.QuotaRequestDenyView),
            ("comments", quota.QuotaCommentsView),
        )
    ),
    path("tenants/<slug:tenant>/allotment-moves", quota.MovesView.as_view(), name="api-allotment-moves"),
    path("quota-requests", quota.PlatformQuotaRequestsView.as_view(), name="api-platform-quota-requests"),
    path("clusters/<slug:slug>/kueue", queueing.QueueingView.as_view(), name="api-cluster-kueue"),
    path("quota-capacity", quota.QuotaCapacityView.as_view(), name="api-quota-capacity"),
    path("tenant-clusters", clusters.PlatformTenantClustersView.as_view(), name="api-platform-tenant-clusters"),
    path("tenants/<slug:tenant>/clusters", clusters.TenantClustersView.as_view(), name="api-tenant-clusters"),
    path(
        "tenants/<slug:tenant>/clusters/<slug:cluster>",
        clusters.TenantClusterView.as_view(),
        name="api-tenant-cluster",
    ),
    path(
        "tenants/<slug:tenant>/clusters/<slug:cluster>/pause",
        clusters.TenantClusterPauseView.as_view(),
        name="api-tenant-cluster-pause",
    ),
    path(
        "tenants/<slug:tenant>/clusters/<slug:cluster>/resume",
        clusters.TenantClusterResumeView.as_view(),
        name="api-tenant-cluster-resume",
    ),
    path(
        "tenants/<slug:tenant>/clusters/<slug:cluster>/retry",
        clusters.TenantClusterRetryView.as_view(),
        name="api-tenant-cluster-retry",
    ),
    path(
        "tenants/<slug:tenant>/clusters/<slug:cluster>/upgrade",
        clusters.TenantClusterUpgradeView.as_view(),
        name="api-tenant-cluster-upgrade",
    ),
    path(
        "tenants/<slug:tenant>/clusters/<slug:cluster>/kubeconfig",
        clusters.TenantClusterKubeconfigView.as_view(),
        name="api-tenant-cluster-kubeconfig",
    ),
    path(
        "tenants/<slug:tenant>/clusters/<slug:cluster>/robots",
        clusters.RobotsView.as_view(),
        name="api-robots",
    ),
    path(
        "tenants/<slug:tenant>/clusters/<slug:cluster>/robots/<slug:robot>",
        clusters.RobotView.as_view(),
        name="api-robot",
    ),
    path(
        "tenants/<slug:tenant>/clusters/<slug:cluster>/robots/<slug:robot>/token",
        clusters.RobotTokenView.as_view(),
        name="api-robot-token",
    ),
    path("tenants/<slug:tenant>/audit", views.AuditView.as_view(), name="api-tenant-audit"),
    path("tenants/<slug:tenant>/deployments", deployments.DeploymentsView.as_view(), name="api-deployments"),
    path("tenants/<slug:tenant>/preview", deployments.PreviewView.as_view(), name="api-preview"),
    path("tenants/<slug:tenant>/deployments/<str:name>", deployments.DeploymentView.as_view(), name="api-deployment"),
    path(
        "tenants/<slug:tenant>/deployments/<str:name>/scale",
        deployments.DeploymentScaleView.as_view(),
        name="api-deployment-scale",
    ),
    path(
        "tenants/<slug:tenant>/deployments/<str:name>/image",
        deployments.DeploymentImageView.as_view(),
        name="api-deployment-image",
    ),
    path(
        "tenants/<slug:tenant>/deployments/<str:name>/events",
        deployments.DeploymentEventsView.as_view(),
        name="api-deployment-events",
    ),
    path(
        "tenants/<slug:tenant>/deployments/<str:name>/manifest",
        deployments.DeploymentManifestView.as_view(),
        name="api-deployment-manifest",
    ),
]
