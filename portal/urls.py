"""All addresses. Each app brings its own; this module only says where they begin."""

from django.urls import URLPattern, URLResolver, include, path

from portal.home.apidocs import SchemaView
from portal.kernel import health
from portal.kernel.metrics.web import metrics

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("api/v1/schema", SchemaView.as_view(), name="api-schema"),
    path("api/v1/", include("portal.accounts.api.urls")),
    path("api/v1/", include("infra.api.urls")),
    path("api/v1/", include("tenants.api.urls")),
    path("api/v1/", include("billing.api.urls")),
    path("", include("portal.auth.urls")),
    path("", include("portal.auth.account_urls")),
    path("", include("portal.home.urls")),
    path("", include("infra.web.urls")),
    path("", include("tenants.web.urls")),
    path("", include("billing.web.urls")),
]

handler400 = "portal.kernel.problems.web.bad_request"
handler403 = "portal.kernel.problems.web.forbidden"
handler404 = "portal.kernel.problems.web.not_found"
handler500 = "portal.kernel.problems.web.server_error"
