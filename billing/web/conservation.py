"""Where the cards' hours went: by day, cluster, type and mode, and by node and hour; and what is nobody's."""

from __future__ import annotations

from fractions import Fraction
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from billing.models import CapacityHour, Issuer
from billing.selectors.conservation import (
    BUCKETS,
    CARD_HOUR,
    TypeCapacity,
    capacity_by_type,
    capacity_hours,
    days_back,
    idle_cost,
    latest_hour,
    unmapped_namespaces,
)
from billing.web.forms import CapacityForm
from billing.web.paging import SIZE, page_from, page_number, page_of, query_of
from portal.kernel.clock import Interval, format_rfc3339, utcnow
from portal.kernel.csvfile import csv_response
from portal.kernel.money import decimal_from
from portal.kernel.scoping import system_scope
from portal.kernel.web import platform_page, system_render

REASON = "platform pages: conservation"
DAYS = 7
LARGEST_FILE = 200_000
_FIGURES = (*BUCKETS, "in_service", "difference", "overbooked", "outside")


def _asked(request: HttpRequest, days: int) -> tuple[CapacityForm, Interval, dict[str, UUID | None]]:
    """The form, the window, and the arguments that narrow the selectors."""
    form = CapacityForm(request.GET)
    window = form.window("UTC", days_back(latest_hour() or utcnow(), days))
    data = form.cleaned_data if form.is_valid() else {}
    rows = {"cluster_id": data.get("cluster"), "gpu_type_id": data.get("gpu_type")}
    return form, window, {name: row.pk if row else None for name, row in rows.items()}


@require_safe
@platform_page()
def conservation(request: HttpRequest) -> HttpResponse:
    """By day, cluster, type and mode; what is wrong stands above what is right."""

    def context() -> dict[str, Any]:
        form, window, narrow = _asked(request, DAYS)
        rows = _summary(form, window, narrow)
        money, complete = idle_cost(rows)
        return {
            "form": form,
            "window": window,
            "page": page_of(request, rows),
            "wrong": sum(1 for row in rows if not row.is_right),
            "whole": _total(rows),
            "idle_cost": money,
            "idle_complete": complete,
            "issuer": Issuer.objects.filter(is_default=True).first(),
            "unmapped": unmapped_namespaces(window)[:SIZE],
            "buckets": BUCKETS,
            "query": query_of(request),
        }

    return system_render(request, REASON, "billing/conservation.html", context)


def _summary(form: CapacityForm, window: Interval, narrow: dict[str, UUID | None]) -> list[TypeCapacity]:
    rows = capacity_by_type(window, by_day=True, **narrow)
    only_wrong = form.is_valid() and form.cleaned_data["wrong"]
    return [row for row in rows if not (only_wrong and row.is_right)]


def _total(rows: list[TypeCapacity]) -> TypeCapacity:
    """All rows together."""
    return TypeCapacity(
        None, "", "", "", sum(row.in_service for row in rows),
        {name: sum(row.buckets[name] for row in rows) for name in BUCKETS}, sum(row.overbooked for row in rows),
        sum(row.outside for row in rows), sum(row.idle_billed for row in rows), None,
        sum(row.past for row in rows),
    )  # fmt: skip


@require_safe
@platform_page()
def conservation_csv(request: HttpRequest) -> HttpResponse:
    """The summary as a file, in card-hours."""
    with system_scope(REASON):
        form, window, narrow = _asked(request, DAYS)
        rows = [
            (
                row.day.isoformat() if row.day else "", row.cluster, row.gpu_type, row.sharing,
                *(_hours(row.buckets[name]) for name in BUCKETS), _hours(row.in_service), _hours(row.balance),
                _hours(row.overbooked), _hours(row.outside),
                "" if row.idle_cost is None else f"{row.idle_cost:f}", _hours(row.past),
            )
            for row in _summary(form, window, narrow)
        ]  # fmt: skip
    columns = ("day", "cluster", "gpu_type", "sharing", *_FIGURES, "idle_cost", "retroactive")
    return csv_response("card-hours.csv", columns, rows)


@require_safe
@platform_page()
def nodes(request: HttpRequest) -> HttpResponse:
    """By node and hour, the latest first."""

    def context() -> dict[str, Any]:
        form, window, narrow = _asked(request, 1)
        offset = (page_number(request) - 1) * SIZE
        wrong = form.is_valid() and form.cleaned_data["wrong"]
        rows = list(capacity_hours(window, wrong=wrong, **narrow)[offset : offset + SIZE + 1])
        return {
            "form": form,
            "window": window,
            "page": page_from(request, rows),
            "buckets": BUCKETS,
            "query": query_of(request),
        }

    return system_render(request, REASON, "billing/conservation_nodes.html", context)


@require_safe
@platform_page()
def nodes_csv(request: HttpRequest) -> HttpResponse:
    """The hours as a file, in card-hours."""
    with system_scope(REASON):
        form, window, narrow = _asked(request, 1)
        wrong = form.is_valid() and form.cleaned_data["wrong"]
        rows = [_cells(row) for row in capacity_hours(window, wrong=wrong, **narrow)[:LARGEST_FILE]]
    columns = ("hour", "cluster", "node", "gpu_type", "sharing", *_FIGURES, "per_card", "source")
    return csv_response("card-hours-by-node.csv", columns, rows)


def _cells(row: CapacityHour) -> tuple[object, ...]:
    return (
        format_rfc3339(row.hour), row.cluster.slug, row.node.name, row.gpu_type.slug if row.gpu_type else "",
        row.sharing, *(_hours(getattr(row, name)) for name in BUCKETS), _hours(row.in_service),
        _hours(row.difference), _hours(row.overbooked), _hours(row.outside), "yes" if row.per_card else "no",
        row.source,
    )  # fmt: skip


def _hours(value: int) -> str:
    return f"{decimal_from(Fraction(value, CARD_HOUR), 12):f}"
