"""Addresses below ``/api/v1/``."""

from django.urls import path

from tenants.api import deployments, mappings, views

urlpatterns = [
    path("zones", views.ZonesView.as_view(), name="api-zones"),
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
