"""Addresses of a team's pages, below ``/t/<tenant>/``, and of the platform's pages about tenants."""

from django.urls import path

from tenants.web import audit, changes, deploying, deployment, home, listing, mappings, members, platform, quota

app_name = "tenants"
urlpatterns = [
    path("t/<slug:tenant>/", home.home, name="home"),
    path("t/<slug:tenant>/deployments/", listing.deployments, name="deployments"),
    path("t/<slug:tenant>/deployments.csv", listing.deployments_csv, name="deployments-csv"),
    path("t/<slug:tenant>/deploy/", deploying.deploy, name="deploy"),
    path("t/<slug:tenant>/deploy/preview", deploying.preview, name="deployment-preview"),
    path("t/<slug:tenant>/deployments/<slug:name>/", deployment.deployment, name="deployment"),
    path("t/<slug:tenant>/deployments/<slug:name>/status", deployment.deployment_status, name="deployment-status"),
    path("t/<slug:tenant>/deployments/<slug:name>/yaml", deployment.deployment_yaml, name="deployment-yaml"),
    path("t/<slug:tenant>/deployments/<slug:name>/edit", deploying.deployment_edit, name="deployment-edit"),
    path("t/<slug:tenant>/deployments/<slug:name>/scale", changes.scale, name="deployment-scale"),
    path("t/<slug:tenant>/deployments/<slug:name>/image", changes.image, name="deployment-image"),
    path("t/<slug:tenant>/deployments/<slug:name>/delete", deployment.delete, name="deployment-delete"),
    path("t/<slug:tenant>/quota/", quota.quota, name="quota"),
    path("t/<slug:tenant>/members/", members.members, name="members"),
    path("t/<slug:tenant>/members/<str:username>/remove", members.member_remove_view, name="member-remove"),
    path("t/<slug:tenant>/audit/", audit.audit, name="audit"),
    path("platform/tenants/", platform.tenants, name="platform-tenants"),
    path("platform/tenants/create", platform.create, name="platform-tenant-create"),
    path("platform/zones/create", platform.create_zone, name="platform-zone-create"),
    path("platform/tenants/<slug:slug>/", platform.tenant, name="platform-tenant"),
    path("platform/tenants/<slug:slug>/change", platform.change, name="platform-tenant-change"),
    path("platform/tenants/<slug:slug>/move", platform.move, name="platform-tenant-move"),
    path("platform/tenants/<slug:slug>/state", platform.set_state, name="platform-tenant-state"),
    path("platform/tenants/<slug:slug>/quota", platform.set_quota, name="platform-tenant-quota"),
    path("platform/tenants/<slug:slug>/members", platform.add_member, name="platform-tenant-member"),
    path("platform/groups/", mappings.mappings, name="mappings"),
    path("platform/groups/<uuid:mapping_id>/remove", mappings.remove, name="mapping-remove"),
    path("platform/namespaces/", platform.namespaces, name="namespaces"),
    path("platform/namespaces/<uuid:claim_id>/end", platform.end_claim, name="claim-end"),
]
