"""A cluster as it is found: whose its GPU pods are, what is nobody's yet and what that costs, and giving it away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from billing.exports import number
from billing.selectors.adoption import (
    SYSTEM,
    TENANT,
    UNMAPPED,
    NamespaceRow,
    Priced,
    adoption_of,
    namespace_rows,
    this_month,
    with_gpus,
)
from billing.web.adoption_forms import MapForm, month_begin
from billing.web.paging import page_of
from billing.web.rates import acting
from infra.models import Cluster
from infra.rights import RightsReport
from infra.selectors.clusters import cluster_by_slug, cluster_list
from infra.selectors.writes import write_proof
from infra.services.claims import Space, namespace_claims_set
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.csvfile import csv_response
from portal.kernel.problems import Problem
from portal.kernel.scoping import system_scope
from portal.kernel.web import platform_page, system_render

REASON = "platform pages: adoption"
COLUMNS = (
    "cluster", "namespace", "standing", "tenant", "by", "rule", "inferred", "valid_from", "cost_code", "pods_now",
    "cards_now", "card_hours", "of_it_starting", "of_it_unattributed", "cost", "would_cost", "currency", "unpriced",
    "pods_not_metered", "known_until", "first_seen", "gone",
)  # fmt: skip


@require_safe
@platform_page()
def adoption(request: HttpRequest, slug: str) -> HttpResponse:
    """One cluster: tenants, unmapped namespaces, the system's, and how we know that nothing was written."""
    cluster = cluster_by_slug(slug)

    def context() -> dict[str, Any]:
        return {
            "cluster": cluster,
            "one": adoption_of(cluster),
            "writes": write_proof(cluster),
            "rights": RightsReport.load(cluster.rights),
            "watches": cluster.watch_targets.order_by("resource"),
            "form": MapForm(initial={"valid_from": month_begin()}),
            "may_change": acting(request).is_platform(PLATFORM_ADMIN) and cluster.abandoned_at is None,
        }

    return system_render(request, REASON, "billing/adoption.html", context)


@require_safe
@platform_page()
def namespaces(request: HttpRequest) -> HttpResponse:
    """The namespaces of all clusters, or of one (``?cluster=``), of one standing or of all (``?standing=``)."""
    return _list(request, MapForm(initial={"valid_from": month_begin()}))


def _list(request: HttpRequest, form: MapForm, status: int = 200, chosen: Sequence[str] = ()) -> HttpResponse:
    def context() -> dict[str, Any]:
        rows = _asked(request)
        return {
            "page": page_of(request, rows),
            "rows": len(rows),
            "clusters": cluster_list(),
            "cluster": request.GET.get("cluster", ""),
            "standing": request.GET.get("standing", ""),
            "standings": ((UNMAPPED, "nobody's"), (TENANT, "a tenant's"), (SYSTEM, "the system's")),
            "window": this_month(),
            "form": form,
            "chosen": chosen,
            "query": request.GET.urlencode(),
            "may_change": acting(request).is_platform(PLATFORM_ADMIN),
        }

    return system_render(request, REASON, "billing/namespaces.html", context, status)


def _asked(request: HttpRequest) -> list[NamespaceRow]:
    clusters: list[Cluster] = list(cluster_list())
    if slug := request.GET.get("cluster"):
        clusters = [row for row in clusters if row.slug == slug]
    rows = with_gpus(namespace_rows(clusters))
    standing = request.GET.get("standing")
    return [row for row in rows if row.standing == standing] if standing else rows


@require_safe
@platform_page()
def namespaces_csv(request: HttpRequest) -> HttpResponse:
    """All rows of the list as CSV."""
    with system_scope(REASON):
        return csv_response("namespaces.csv", COLUMNS, [_cells(row) for row in _asked(request)])


def _cells(row: NamespaceRow) -> tuple[object, ...]:
    claim, cost, would = row.claim, row.held.cost, row.would_cost
    currency = (would or cost).currency if (would or cost) else ""  # type: ignore[union-attr]  # one of them is there
    return (
        row.cluster.slug, row.namespace, row.standing, row.tenant.slug if row.tenant else "",
        claim.get_source_display() if claim else "", str(claim.rule) if claim and claim.rule else "",
        "yes" if claim and claim.inferred else "", claim.valid_from.isoformat() if claim else "",
        claim.cost_code if claim else "", row.pods, f"{row.cards / 1_000_000:.6f}", number(row.held.together),
        number(row.held.starting), number(row.held.unattributed), _amount(cost), _amount(would), currency,
        "yes" if (cost and cost.unpriced) or (would and would.unpriced) else "", row.unmetered,
        row.known_until.isoformat() if row.known_until else "",
        row.first_seen_at.isoformat() if row.first_seen_at else "",
        row.sight.gone_at.isoformat() if row.sight and row.sight.gone_at else "",
    )  # fmt: skip


def _amount(priced: Priced | None) -> str:
    return number(priced.amount) if priced is not None and priced.amount is not None else ""


@require_POST
@platform_page(PLATFORM_ADMIN)
def namespaces_map(request: HttpRequest) -> HttpResponse:
    """Give the chosen namespaces to one tenant: all, or none."""
    form, chosen = MapForm(request.POST), request.POST.getlist("namespace")
    if form.is_valid():
        body = form.cleaned_data
        try:
            made = namespace_claims_set(
                spaces=[_space(key) for key in chosen],
                tenant_id=body["tenant"].pk,
                valid_from=body["valid_from"],
                cost_code=body["cost_code"] or body["tenant"].cost_code,
                actor=acting(request),
            )
        except Problem as problem:
            form.add_problem(problem, lambda pointer: None if pointer.startswith("/namespaces") else pointer.strip("/"))
        else:
            messages.success(request, f"{len(made)} namespaces are {body['tenant'].slug}'s.")
            back = request.POST.get("next", "")
            safe = url_has_allowed_host_and_scheme(back, {request.get_host()})
            return HttpResponseRedirect(back if safe else reverse("billing:namespaces"), status=303)
    return _list(request, form, 422, chosen)


def _space(key: str) -> Space:
    slug, _, namespace = key.partition("/")
    return Space(cluster_by_slug(slug), namespace)
