"""The list of deployments, and the same as a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from portal.kernel.clock import format_rfc3339
from portal.kernel.csvfile import csv_response
from portal.kernel.scoping import tenant_scope
from portal.kernel.web import is_htmx
from tenants.models import Tenant
from tenants.selectors.deployments import LARGEST_PAGE, DeploymentRow, deployments_page
from tenants.web.forms import DeploymentFilter
from tenants.web.pages import TeamRequest, team_page, team_render

COLUMNS = ("name", "state", "replicas", "ready", "clusters", "cost_code", "waiting", "created_by", "created_at")


def _filters(request: TeamRequest) -> tuple[DeploymentFilter, dict[str, str]]:
    """The filter form, and what of it is set; a value that is none of the choices narrows to nothing it knows."""
    form = DeploymentFilter(request.GET)
    form.is_valid()
    return form, {key: value for key, value in form.cleaned_data.items() if value}


@require_safe
@team_page()
def deployments(request: TeamRequest) -> HttpResponse:
    """A page of deployments, the newest first; the filter and the place are in the address."""
    form, chosen = _filters(request)
    cursor = request.GET.get("cursor", "")

    def context() -> dict[str, Any]:
        page = deployments_page(
            tenant=request.tenant, cursor=cursor, search=chosen.get("q", ""), phase=chosen.get("phase", "")
        )
        return {
            "form": form,
            "page": page,
            "filtered": bool(chosen),
            "cursor": cursor,
            "first_query": urlencode(chosen),
            "next_query": urlencode(chosen | {"cursor": page.next_cursor}),
        }

    part = is_htmx(request)
    template = "tenants/partials/deployment_table.html" if part else "tenants/deployments.html"
    response = team_render(request, template, context)
    patch_vary_headers(response, ["HX-Request"])
    return response


@require_safe
@team_page()
def deployments_csv(request: TeamRequest) -> HttpResponse:
    """All deployments that the filter leaves, as CSV."""
    _, chosen = _filters(request)
    with tenant_scope(request.tenant.pk):
        rows = [_cells(row) for row in _all(request.tenant, chosen)]
    return csv_response(f"deployments-{request.tenant.slug}.csv", COLUMNS, rows)


def _all(tenant: Tenant, chosen: dict[str, str]) -> Iterator[DeploymentRow]:
    cursor = ""
    while True:
        page = deployments_page(
            tenant=tenant, cursor=cursor, limit=LARGEST_PAGE, search=chosen.get("q", ""), phase=chosen.get("phase", "")
        )
        yield from page.rows
        cursor = page.next_cursor
        if not cursor:
            return


def _cells(row: DeploymentRow) -> tuple[object, ...]:
    one = row.deployment
    return (
        one.name, one.phase, one.replicas, one.ready_replicas, " ".join(row.clusters), one.cost_code, one.waiting,
        one.created_by, format_rfc3339(one.created_at),
    )  # fmt: skip
