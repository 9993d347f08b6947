"""Cards that teams hold and hardly use, for the platform."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from billing.selectors.conservation import days_back, latest_hour
from billing.selectors.hardly_used import BELOW, HeldIdle, held_idle
from billing.selectors.idleprice import idle_prices
from billing.web.forms import LONGEST_HOURS, WindowForm
from billing.web.paging import page_of, query_of
from portal.kernel.clock import Interval, utcnow
from portal.kernel.csvfile import csv_response
from portal.kernel.scoping import system_scope
from portal.kernel.web import platform_page, system_render

REASON = "platform pages: held and not used"
DAYS = 7


class HeldForm(WindowForm):
    """Days, and what counts as hardly used."""

    below = forms.IntegerField(required=False, min_value=1, max_value=100, label="Busy less than, %")
    longest = LONGEST_HOURS


def _asked(request: HttpRequest) -> tuple[HeldForm, Interval, int]:
    form = HeldForm(request.GET)
    window = form.window("UTC", days_back(latest_hour() or utcnow(), DAYS))
    below = form.cleaned_data.get("below") if form.is_valid() else None
    return form, window, below or BELOW


@require_safe
@platform_page()
def held(request: HttpRequest) -> HttpResponse:
    """By team and deployment, the most expensive first."""

    def context() -> dict[str, Any]:
        form, window, below = _asked(request)
        rows = held_idle(window, below=below)
        return {
            "form": form,
            "window": window,
            "below": below,
            "page": page_of(request, rows),
            "currency": idle_prices(window).currency,
            "query": query_of(request),
        }

    return system_render(request, REASON, "billing/held_idle.html", context)


@require_safe
@platform_page()
def held_csv(request: HttpRequest) -> HttpResponse:
    """The same as a file."""
    with system_scope(REASON):
        _, window, below = _asked(request)
        rows = held_idle(window, below=below)
        currency = idle_prices(window).currency
    columns = (
        "tenant", "cluster", "namespace", "deployment", "gpu_type", "sharing", "pods", "busy_percent", "observed_hours",
        "cost_per_day", "unused_cost_per_day", "currency",
    )  # fmt: skip
    return csv_response("held-and-not-used.csv", columns, [(*_cells(row), currency) for row in rows])


def _cells(row: HeldIdle) -> tuple[object, ...]:
    return (
        row.tenant, row.cluster, row.namespace, row.deployment, row.gpu_type, row.sharing, row.pods,
        f"{row.busy.percent:f}", f"{row.busy.observed_ms / 3_600_000:.3f}",
        "" if row.per_day is None else f"{row.per_day:f}",
        "" if row.unused_per_day is None else f"{row.unused_per_day:f}",
    )  # fmt: skip
