"""What the team may hold, holds, and where its parts lie."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from tenants.selectors.quota import quota_lines
from tenants.web.figures import quota_bar
from tenants.web.pages import TeamRequest, team_page, team_render


@require_safe
@team_page()
def quota(request: TeamRequest) -> HttpResponse:
    """A line for each GPU type, with its parts on the clusters."""

    def context() -> dict[str, Any]:
        return {
            "bars": [quota_bar(line) for line in quota_lines(request.tenant)],
            "sites": list(request.tenant.sites.order_by("slug")),
        }

    return team_render(request, "tenants/quota.html", context)
