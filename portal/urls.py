"""All addresses. Each app brings its own; this module only says where they begin."""

from importlib.util import find_spec

from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularAPIView
from rest_framework.permissions import AllowAny

from portal.kernel import health

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("api/v1/schema", SpectacularAPIView.as_view(permission_classes=[AllowAny]), name="api-schema"),
]
for _prefix, _module in [
    ("api/v1/", "portal.accounts.api.urls"),
    ("api/v1/", "infra.api.urls"),
    ("api/v1/", "tenants.api.urls"),
    ("api/v1/", "billing.api.urls"),
    ("", "portal.auth.urls"),
    ("", "portal.auth.account_urls"),
    ("", "portal.home.urls"),
    ("", "infra.web.urls"),
    ("", "tenants.web.urls"),
    ("", "billing.web.urls"),
]:
    _package = _module.rpartition(".")[0]
    if find_spec(_package) is not None and find_spec(_module) is not None:
        urlpatterns.append(path(_prefix, include(_module)))

handler400 = "portal.kernel.problems.web.bad_request"
handler403 = "portal.kernel.problems.web.forbidden"
handler404 = "portal.kernel.problems.web.not_found"
handler500 = "portal.kernel.problems.web.server_error"
