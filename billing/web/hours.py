"""Where the hours go: pool figures, idle time by reason with its price, and what it is made of. For the platform."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from billing.models import IdleHour
from billing.selectors.conservation import CARD_HOUR, days_back, latest_hour
from billing.selectors.hours import (
    DIMENSIONS,
    MOVES,
    PARTS,
    REASONS,
    UNEXPLAINED,
    WORDS,
    HoursRow,
    HoursTable,
    hours_table,
    narrowed,
)
from billing.web.hours_form import HoursForm
from billing.web.paging import SIZE, page_from, page_number, page_of, query_of
from portal.kernel.clock import Interval, format_rfc3339, utcnow
from portal.kernel.csvfile import csv_response
from portal.kernel.money import decimal_from
from portal.kernel.scoping import system_scope
from portal.kernel.web import platform_page, system_render

REASON = "platform pages: where the hours go"
DAYS = 7
LARGEST_FILE = 200_000


def _asked(request: HttpRequest) -> tuple[HoursForm, Interval]:
    form = HoursForm(request.GET)
    return form, form.window("UTC", days_back(latest_hour() or utcnow(), DAYS))


@require_safe
@platform_page()
def hours(request: HttpRequest) -> HttpResponse:
    """Figures, parts with their table, idle time by reason, and who was kept from it."""

    def context() -> dict[str, Any]:
        form, window = _asked(request)
        table = hours_table(window, by=form.groups, only=form.only)
        return {
            "form": form,
            "window": window,
            "groups": [(name, DIMENSIONS[name]) for name in form.groups],
            "table": table,
            "total": table.total,
            "idle_per_day": table.per_day(table.total.idle_cost),
            "page": page_of(request, table.rows),
            "parts": [(name, WORDS[name], table.total.parts[name]) for name in PARTS if table.total.parts[name]],
            "reasons": _reasons(table),
            "query": query_of(request),
        }

    return system_render(request, REASON, "billing/hours.html", context)


def _reasons(table: HoursTable) -> list[dict[str, Any]]:
    """Idle time by reason, the most expensive first."""
    total = table.total
    rows = [
        {
            "name": name,
            "words": WORDS[name],
            "move": MOVES[name],
            "units": total.parts[name],
            "percent": total.percent(total.parts[name]),
            "per_day": table.per_day(total.cost_of(name)),
        }
        for name in (*REASONS, UNEXPLAINED)
        if total.parts[name]
    ]
    return sorted(rows, key=lambda row: (-(row["per_day"] or 0), -row["units"]))


@require_safe
@platform_page()
def hours_csv(request: HttpRequest) -> HttpResponse:
    """All rows with all parts, in card-hours."""
    with system_scope(REASON):
        form, window = _asked(request)
        table = hours_table(window, by=form.groups, only=form.only)
    columns = (
        *form.groups, "in_service", *PARTS, "idle", "mig_geometry", "one_dimension_free", "allocated_percent",
        "busy_percent", "stranded_percent", "idle_cost", "idle_cost_per_day", "currency", "some_unpriced",
    )  # fmt: skip
    return csv_response("hours.csv", columns, [_cells(row, form.groups, table) for row in table.rows])


def _cells(row: HoursRow, groups: tuple[str, ...], table: HoursTable) -> tuple[object, ...]:
    values = row.key._asdict()
    return (
        *(values[name].isoformat() if name == "day" else values[name] for name in groups), _hours(row.in_service),
        *(_hours(row.parts[name]) for name in PARTS), _hours(row.idle), _hours(row.geometry), _hours(row.lopsided),
        _text(row.allocated_percent), _text(row.busy.percent if row.busy else None), _text(row.stranded_percent),
        _text(row.idle_cost), _text(table.per_day(row.idle_cost)), table.currency, "yes" if row.unpriced else "no",
    )  # fmt: skip


def _text(value: object) -> str:
    """A decimal, or nothing where it is not known."""
    return "" if value is None else f"{value:f}"


def _hours(value: int) -> str:
    return f"{decimal_from(Fraction(value, CARD_HOUR), 12):f}"


@require_safe
@platform_page()
def idle_hours(request: HttpRequest) -> HttpResponse:
    """What idle time is made of: nodes and hours with their reasons, the latest first."""

    def context() -> dict[str, Any]:
        form, window = _asked(request)
        reason = _reason(request)
        offset = (page_number(request) - 1) * SIZE
        rows = list(_idle_rows(form, window, reason)[offset : offset + SIZE + 1])
        return {
            "form": form,
            "window": window,
            "reason": reason,
            "reasons": [(name, WORDS[name]) for name in REASONS],
            "page": page_from(request, rows),
            "query": query_of(request),
        }

    return system_render(request, REASON, "billing/idle_hours.html", context)


@require_safe
@platform_page()
def idle_hours_csv(request: HttpRequest) -> HttpResponse:
    """The same as a file, in card-hours."""
    with system_scope(REASON):
        form, window = _asked(request)
        rows = [
            (
                format_rfc3339(row.hour), row.cluster.slug, row.node.name, row.gpu_type.slug if row.gpu_type else "",
                row.sharing, *(_hours(getattr(row, name)) for name in ("idle", *REASONS, "geometry", "lopsided")),
            )
            for row in _idle_rows(form, window, _reason(request))[:LARGEST_FILE]
        ]  # fmt: skip
    columns = (
        "hour", "cluster", "node", "gpu_type", "sharing", "idle", *REASONS, "mig_geometry", "one_dimension_free",
    )  # fmt: skip
    return csv_response("idle-hours.csv", columns, rows)


def _reason(request: HttpRequest) -> str:
    """``?reason=``; empty where it names none."""
    name = request.GET.get("reason", "")
    return name if name in REASONS else ""


def _idle_rows(form: HoursForm, window: Interval, reason: str) -> Any:
    rows = narrowed(IdleHour.objects.select_related("cluster", "node", "gpu_type"), window, form.only)
    if reason:
        rows = rows.filter(**{f"{reason}__gt": 0})
    return rows.order_by("-hour", "cluster__slug", "node__name", "id")
