"""Addresses of a team's pages: all below ``/t/<tenant>/``."""

from django.urls import path

from tenants.web import audit, changes, deploying, deployment, home, listing, members, quota

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
]
