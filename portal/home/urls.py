"""Addresses of the first pages."""

from django.urls import path

from portal.home import apidocs, platform, views, work

app_name = "home"
urlpatterns = [
    path("", views.index, name="index"),
    path("api/", apidocs.api_docs, name="api-docs"),
    path("platform/", platform.overview, name="platform"),
    path("platform/work/", work.work, name="work"),
    path("platform/work/<uuid:item_id>/retry", work.work_retry, name="work-retry"),
    path("platform/audit/", platform.audit, name="audit"),
]
