"""Who did what in the team."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from portal.kernel.models import AuditEvent
from tenants.permissions import Perm
from tenants.selectors.events import tenant_events
from tenants.web.forms import AuditFilter
from tenants.web.pages import TeamRequest, team_page, team_render


@require_safe
@team_page(Perm.AUDIT_READ)
def audit(request: TeamRequest) -> HttpResponse:
    """The tenant's own events, the newest first."""
    form = AuditFilter(request.GET)
    form.is_valid()
    chosen = {key: value for key, value in form.cleaned_data.items() if value}

    def context() -> dict[str, Any]:
        page = tenant_events(
            tenant=request.tenant,
            search=chosen.get("q", ""),
            object_kind=chosen.get("kind", ""),
            outcome=chosen.get("outcome", ""),
            cursor=request.GET.get("cursor", ""),
        )
        return {
            "form": form,
            "rows": [(event, _changes(event)) for event in page.events],
            "filtered": bool(chosen),
            "cursor": request.GET.get("cursor", ""),
            "first_query": urlencode(chosen),
            "next_query": urlencode(chosen | {"cursor": page.next_cursor}) if page.next_cursor else "",
        }

    return team_render(request, "tenants/audit.html", context)


def _changes(event: AuditEvent) -> list[tuple[str, str, str]]:
    """(field, before, after) of each field that the event tells of."""
    before, after = event.before or {}, event.after or {}
    names = [*before, *(name for name in after if name not in before)]
    return [(name, _said(before, name), _said(after, name)) for name in names]


def _said(values: dict[str, Any], name: str) -> str:
    if name not in values:
        return "–"
    value = values[name]
    return value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
