"""The statement of the past: a team's months before its clusters were watched, and all teams' for the platform."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from billing import exports
from billing.selectors.charges import issuer_of
from billing.selectors.past import (
    past_month,
    past_month_named,
    past_months,
    past_tenants,
    platform_past_month_named,
    platform_past_months,
)
from billing.selectors.periods import issuer_named
from billing.web.rates import default_issuer
from portal.kernel.problems import NotFound
from portal.kernel.scoping import system_scope, tenant_scope
from portal.kernel.web import platform_page, system_render
from tenants.permissions import Perm
from tenants.web.pages import TeamRequest, team_page, team_render

REASON = "platform pages: the past"


@require_safe
@team_page(Perm.BILL_READ)
def past(request: TeamRequest) -> HttpResponse:
    """All months of the team that were rebuilt, the newest first."""

    def context() -> dict[str, Any]:
        issuer = issuer_of(request.tenant.pk)
        months = past_months(request.tenant.pk, issuer) if issuer else []
        return {
            "issuer": issuer,
            "rows": [past_month(request.tenant.pk, issuer, month) for month in months] if issuer else [],
        }

    return team_render(request, "billing/past.html", context)


@require_safe
@team_page(Perm.BILL_READ)
def month(request: TeamRequest, period: str) -> HttpResponse:
    """One month, line by line."""

    def context() -> dict[str, Any]:
        issuer = issuer_of(request.tenant.pk)
        if issuer is None:
            raise NotFound("Nobody bills this team yet.")
        return {"issuer": issuer, "statement": past_month_named(request.tenant.pk, issuer, period)}

    return team_render(request, "billing/past_month.html", context)


@require_safe
@team_page(Perm.BILL_READ)
def month_csv(request: TeamRequest, period: str) -> HttpResponse:
    """Its lines as a file."""
    with tenant_scope(request.tenant.pk):
        issuer = issuer_of(request.tenant.pk)
        if issuer is None:
            raise NotFound("Nobody bills this team yet.")
        statement = past_month_named(request.tenant.pk, issuer, period)
        return exports.past_csv([(request.tenant.slug, statement)], f"past-{request.tenant.slug}-{period}").response()


@require_safe
@platform_page()
def platform(request: HttpRequest) -> HttpResponse:
    """A month (``?month=``, else the newest) of all teams of an issuer (``?issuer=``)."""

    def context() -> dict[str, Any]:
        slug = request.GET.get("issuer", "")
        issuer = issuer_named(slug) if slug else default_issuer()
        if issuer is None:
            return {"issuer": None}
        months = platform_past_months(issuer)
        label = request.GET.get("month", "")
        shown = platform_past_month_named(issuer, label) if label else months[0] if months else None
        return {
            "issuer": issuer,
            "months": months,
            "shown": shown,
            "rows": past_tenants(issuer, shown) if shown else [],
        }

    return system_render(request, REASON, "billing/past_platform.html", context)


@require_safe
@platform_page()
def platform_csv(request: HttpRequest, issuer: str, period: str) -> HttpResponse:
    """The lines of all teams in a month as a file."""
    with system_scope(REASON):
        row = issuer_named(issuer)
        shown = platform_past_month_named(row, period)
        rows = [(one.tenant.slug, one.statement) for one in past_tenants(row, shown)]
        return exports.past_csv(rows, f"past-{issuer}-{period}").response()
