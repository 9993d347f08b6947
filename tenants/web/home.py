"""A team's first page: what needs attention, what it holds, what it costs."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.urls import NoReverseMatch, reverse
from django.views.decorators.http import require_safe

from tenants.permissions import Perm, may
from tenants.ports import cost_book
from tenants.selectors.deployments import (
    PHASES,
    deployments_by_phase,
    deployments_in_trouble,
    latest_events,
)
from tenants.selectors.quota import quota_lines
from tenants.web.figures import quota_bar
from tenants.web.pages import TeamRequest, team_page, team_render

SHOWN = 10


@require_safe
@team_page()
def home(request: TeamRequest) -> HttpResponse:
    """The tenant in one screen."""
    tenant = request.tenant

    def context() -> dict[str, Any]:
        counts = deployments_by_phase(tenant=tenant)
        bars = [quota_bar(line) for line in quota_lines(tenant)]
        troubled = deployments_in_trouble(tenant=tenant, limit=SHOWN + 1)
        book = cost_book()
        bills = may(request.actor, Perm.BILL_READ, tenant)
        return {
            "bars": bars,
            "over": [bar for bar in bars if bar.line.over_by],
            "troubled": troubled[:SHOWN],
            "more_troubled": len(troubled) > SHOWN,
            "counts": [(phase, counts[phase]) for phase in PHASES if counts.get(phase)],
            "deployments": sum(counts.values()),
            "cost": book.month_to_date(tenant.pk) if book is not None and bills else None,
            "costs_shown": bills,
            "bills_url": _address("billing:bills", tenant.slug),
            "events": latest_events(tenant=tenant),
        }

    return team_render(request, "tenants/home.html", context)


def _address(name: str, slug: str) -> str:
    """The address of a page of a higher app; "" where this portal has none."""
    try:
        return reverse(name, kwargs={"tenant": slug})
    except NoReverseMatch:
        return ""
