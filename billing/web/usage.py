"""What a team used: a table by day, deployment, type of card and mode, and a line over the days."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from billing import exports
from billing.models import Issuer
from billing.selectors.charges import issuer_of
from billing.selectors.costs import current_period
from billing.selectors.hardly_used import BELOW, held_idle
from billing.selectors.sums import Only
from billing.selectors.team_busy import busy_of_tenant
from billing.selectors.usage import (
    UsageTable,
    narrowed,
    usage_choices,
    usage_days,
    usage_final_until,
    usage_table,
)
from billing.selectors.workloads import usage_by_workload
from billing.web.forms import UsageForm
from billing.web.paging import page_of, query_of
from portal.kernel.clock import Interval, period_of, previous_period, utcnow, zone
from portal.kernel.scoping import tenant_scope
from tenants.permissions import Perm
from tenants.web.pages import TeamRequest, team_page, team_render

WORKLOADS = 50
"""How many workloads the page shows; the dearest."""


@require_safe
@team_page(Perm.BILL_READ)
def usage(request: TeamRequest) -> HttpResponse:
    """The table and its chart; what they are grouped by and narrowed to is in the address."""

    def context() -> dict[str, Any]:
        issuer = issuer_of(request.tenant.pk)
        if issuer is None:
            return {"issuer": None}
        form, window, only = _asked(request, issuer)
        table = _table(request, issuer, form, window, only)
        days = usage_days(request.tenant.pk, issuer, window, only=only) if only else []
        month = period_of(utcnow(), issuer.time_zone)
        return {
            "issuer": issuer,
            "form": form,
            "groups": form.groups if form.is_valid() else (),
            "window": window,
            "first_day": window.start.astimezone(zone(issuer.time_zone)).date(),
            "last_day": days[-1][0] if days else None,
            "page": page_of(request, table.rows if table else ()),
            "total": table.total if table else None,
            "table_past": table.past if table else None,
            "days": days,
            "use": busy_of_tenant(request.tenant.pk, window),
            "workloads": usage_by_workload(request.tenant.pk, issuer, window)[:WORKLOADS],
            "final_until": usage_final_until(request.tenant.pk),
            "query": query_of(request),
            "held_idle": held_idle(window, tenant_id=request.tenant.pk, issuer=issuer),
            "held_below": BELOW,
            "this_month": _days_of(month, issuer),
            "last_month": _days_of(previous_period(month), issuer),
        }

    return team_render(request, "billing/usage.html", context)


@require_safe
@team_page(Perm.BILL_READ)
def usage_csv(request: TeamRequest) -> HttpResponse:
    """All rows of the table."""
    with tenant_scope(request.tenant.pk):
        issuer = issuer_of(request.tenant.pk)
        if issuer is None:
            return exports.usage_csv(request.tenant.slug, "", ()).response()
        form, window, only = _asked(request, issuer)
        table = _table(request, issuer, form, window, only)
        return exports.usage_csv(request.tenant.slug, issuer.currency, table.rows if table else ()).response()


def _asked(request: HttpRequest, issuer: Issuer) -> tuple[UsageForm, Interval, Only | None]:
    """The form, the window, and the filter (None: it matches nothing)."""
    tenant_id = request.tenant.pk  # type: ignore[attr-defined]  # team_page has set it
    month = current_period(issuer, utcnow())
    today = Interval(month.start, min(month.end, max(utcnow(), month.start)))
    form = UsageForm(request.GET, choices=usage_choices(tenant_id))
    window = form.window(issuer.time_zone, today)
    if not form.is_valid():
        return form, window, None
    only = narrowed(
        tenant_id,
        deployment=form.cleaned_data["deployment"],
        gpu_type=form.cleaned_data["gpu_type"],
        sharing=form.cleaned_data["sharing"],
    )
    return form, window, only


def _table(
    request: TeamRequest, issuer: Issuer, form: UsageForm, window: Interval, only: Only | None
) -> UsageTable | None:
    if only is None:
        return None
    return usage_table(request.tenant.pk, issuer, window, by=form.groups, only=only)


def _days_of(month: Interval, issuer: Issuer) -> tuple[str, str]:
    """First and last day of a month, for a link."""
    tz = zone(issuer.time_zone)
    return month.start.astimezone(tz).date().isoformat(), _last(month, issuer)


def _last(month: Interval, issuer: Issuer) -> str:
    return (month.end - timedelta(seconds=1)).astimezone(zone(issuer.time_zone)).date().isoformat()
