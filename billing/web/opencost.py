"""Ours beside OpenCost's, by cluster, namespace and day; and what is known of each cluster's OpenCost."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from billing.models import OpenCostSource
from billing.opencost.compare import WORDS, Class
from billing.selectors.beside_opencost import Beside, Page, beside_opencost, tenant_namespaces
from billing.selectors.conservation import days_back
from billing.selectors.opencost import refused_answers
from billing.services.opencost import opencost_set
from billing.web.forms import BesideForm, OpenCostForm, WindowForm, instant
from billing.web.paging import page_of, query_of
from infra.models import Cluster, ClusterEndpoint
from portal.kernel.actors import PLATFORM_FINANCE
from portal.kernel.clock import Interval, utcnow
from portal.kernel.conditions import get_condition
from portal.kernel.csvfile import csv_response
from portal.kernel.problems import NotFound, Problem
from portal.kernel.scoping import system_scope, tenant_scope
from portal.kernel.web import actor_of, platform_page, system_render
from tenants.models import Tenant
from tenants.permissions import Perm, may
from tenants.web.pages import TeamRequest, team_page, team_render

REASON = "platform pages: beside OpenCost"
MOST_REFUSED = 20
COLUMNS = (
    "day", "cluster", "namespace", "tenants", "hours_compared", "our_card_hours", "opencost_card_hours", "difference",
    *(f"difference_{name.value}" for name in Class if name is not Class.PRICE), "our_cost", "our_currency",
    "opencost_gpu_cost", "opencost_currency", "cost_difference", "cost_difference_price",
)  # fmt: skip


def standard_days() -> Interval:
    """Yesterday and today: what a page shows where no days were chosen."""
    return days_back(utcnow(), 2)


def _asked(form: WindowForm) -> Interval:
    return form.window("UTC", standard_days())


def _rows(form: BesideForm, window: Interval) -> Page:
    data = form.cleaned_data if form.is_valid() else {}
    cluster, tenant = data.get("cluster"), data.get("tenant")
    names = tenant_namespaces(tenant.pk, window) if tenant else None
    return beside_opencost(window, cluster_id=cluster.pk if cluster else None, namespaces=names)


@require_safe
@platform_page()
def beside(request: HttpRequest) -> HttpResponse:
    """The comparison of all clusters, what could not be compared, and the state of each OpenCost."""
    form = BesideForm(request.GET)

    def context() -> dict[str, Any]:
        window = _asked(form)
        page = _rows(form, window)
        actor = actor_of(request)
        sources = {row.cluster_id: row for row in OpenCostSource.objects.all()}
        endpoints = ClusterEndpoint.objects.filter(role=ClusterEndpoint.Role.OPENCOST).select_related("cluster")
        return {
            "form": form,
            "window": window,
            "page": page_of(request, page.rows),
            "silent": page.silent,
            "compared": page.compared,
            "unexplained": sum(1 for row in page.rows if row.unexplained),
            "sources": [
                (one, sources.get(one.cluster_id), get_condition(one.conditions, "Reading"))
                for one in endpoints.order_by("cluster__slug")
            ],
            "refused": list(refused_answers(window)[:MOST_REFUSED]),
            "query": query_of(request),
            "tenants": dict(Tenant.objects.values_list("pk", "slug")),
            "settings_form": OpenCostForm(auto_id=False),
            "may_change": actor is not None and may(actor, Perm.RATE_MANAGE),
            "words": WORDS,
        }

    return system_render(request, REASON, "billing/opencost.html", context)


@require_safe
@platform_page()
def beside_csv(request: HttpRequest) -> HttpResponse:
    """All rows as a file, each class of difference in a column of its own."""
    form = BesideForm(request.GET)
    with system_scope(REASON):
        page = _rows(form, _asked(form))
        names = dict(Tenant.objects.values_list("pk", "slug"))
        rows = [_cells(row, " ".join(sorted(names[pk] for pk in row.tenant_ids))) for row in page.rows]
    return csv_response("beside-opencost.csv", COLUMNS, rows)


def _cells(row: Beside, tenants: str) -> tuple[object, ...]:
    parts = dict(row.parts)
    optional = ["" if one is None else f"{one:f}" for one in (row.cost_difference, row.price)]
    return (
        row.day.isoformat(), row.cluster, row.namespace, tenants, row.hours, f"{row.our_hours:f}",
        "" if row.their_hours is None else f"{row.their_hours:f}", f"{row.difference:f}",
        *(f"{parts[name]:f}" if name in parts else "" for name in Class if name is not Class.PRICE),
        "" if row.our_cost is None else f"{row.our_cost:f}", row.currency, f"{row.their_cost:f}", row.their_currency,
        *optional,
    )  # fmt: skip


@require_POST
@platform_page(PLATFORM_FINANCE)
def opencost_settings(request: HttpRequest, cluster: str) -> HttpResponse:
    """The currency of a cluster's OpenCost, and reading hours again from a day on."""
    row = Cluster.objects.filter(slug=cluster).first()
    if row is None:
        raise NotFound("There is no such cluster.")
    actor = actor_of(request)
    assert actor is not None
    form = OpenCostForm(request.POST)
    if form.is_valid():
        day = form.cleaned_data["read_from"]
        try:
            opencost_set(
                cluster=row, actor=actor, currency=form.cleaned_data["currency"] or None,
                read_from=instant(day, "UTC") if day else None,
            )  # fmt: skip
        except Problem as problem:
            details = [str(error["detail"]) for error in getattr(problem, "errors", [])] or [problem.detail]
            messages.error(request, " ".join(details))
        else:
            messages.success(request, f"OpenCost of {row.slug} is read so from now on.")
    else:
        messages.error(request, "Give a currency code such as EUR, and a day such as 2026-11-01.")
    return HttpResponseRedirect(reverse("billing:opencost"), status=303)


@require_safe
@team_page(Perm.BILL_READ)
def team_beside(request: TeamRequest) -> HttpResponse:
    """A team's own namespaces beside OpenCost's figures, and why they differ."""
    form = WindowForm(request.GET)
    form.longest = BesideForm.longest

    def context() -> dict[str, Any]:
        window = _asked(form)
        page = beside_opencost(window, namespaces=tenant_namespaces(request.tenant.pk, window))
        return {
            "form": form,
            "window": window,
            "page": page_of(request, page.rows),
            "compared": page.compared,
            "query": query_of(request),
        }

    return team_render(request, "billing/opencost_team.html", context)


@require_safe
@team_page(Perm.BILL_READ)
def team_beside_csv(request: TeamRequest) -> HttpResponse:
    """The same as a file."""
    form = WindowForm(request.GET)
    form.longest = BesideForm.longest
    window = _asked(form)
    with tenant_scope(request.tenant.pk):
        page = beside_opencost(window, namespaces=tenant_namespaces(request.tenant.pk, window))
        rows = [_cells(row, request.tenant.slug) for row in page.rows]
    return csv_response(f"beside-opencost-{request.tenant.slug}.csv", COLUMNS, rows)
