"""What keeps tenants apart on a cluster: what was proven, what is said of it, and our policies."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from infra.adapters.admission import rules
from infra.isolation import DECLARABLE
from infra.models import Cluster
from infra.selectors.clusters import cluster_by_slug
from infra.selectors.isolation import isolation_pieces
from infra.services.isolation import isolation_check, isolation_say, isolation_set_wanted
from infra.web.forms import SayForm
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.clock import parse_rfc3339
from portal.kernel.conditions import get_condition
from portal.kernel.problems import Problem
from portal.kernel.web import person_of, platform_page


@require_safe
@platform_page()
def isolation(request: HttpRequest, slug: str) -> HttpResponse:
    """Piece by piece: there or not, how that is known, what to do."""
    return _page(request, cluster_by_slug(slug))


@require_POST
@platform_page(PLATFORM_ADMIN)
def isolation_ask(request: HttpRequest, slug: str) -> HttpResponse:
    """Have the cluster asked again."""
    cluster = cluster_by_slug(slug)
    try:
        isolation_check(cluster=cluster, actor=person_of(request))
    except Problem as problem:
        return _page(request, cluster, problem.status, refusal=problem.detail)
    messages.success(request, "The cluster is asked now; the answer is here in a moment.")
    return _back(slug)


@require_POST
@platform_page(PLATFORM_ADMIN)
def isolation_said(request: HttpRequest, slug: str) -> HttpResponse:
    """Declare or accept a piece, or take that back."""
    cluster, form = cluster_by_slug(slug), SayForm(request.POST)
    if form.is_valid():
        try:
            isolation_say(cluster=cluster, **form.cleaned_data, actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, "Stored.")
            return _back(slug)
    return _page(request, cluster, 422, form=form)


@require_POST
@platform_page(PLATFORM_ADMIN)
def isolation_act(request: HttpRequest, slug: str, wanted: bool) -> HttpResponse:
    """Take our policies down, or put them up again."""
    cluster = cluster_by_slug(slug)
    try:
        isolation_set_wanted(cluster=cluster, wanted=wanted, actor=person_of(request))
    except Problem as problem:
        return _page(request, cluster, problem.status, refusal=problem.detail)
    messages.success(request, "Done; the cluster follows in a moment.")
    return _back(slug)


def _page(request: HttpRequest, cluster: Cluster, status: int = 200, **more: Any) -> HttpResponse:
    checked = cluster.isolation.get("checked_at")
    managed = cluster.mode == Cluster.Mode.MANAGE and cluster.abandoned_at is None
    context = {
        "cluster": cluster,
        "pieces": isolation_pieces(cluster),
        "condition": get_condition(cluster.conditions, "Isolated") if managed else None,
        "checked_at": parse_rfc3339(checked) if checked else None,
        "managed": managed,
        "declarable": DECLARABLE,
        "rules": rules(),
        "form": SayForm(),
        "may_change": person_of(request).is_platform(PLATFORM_ADMIN) and managed,
        **more,
    }
    return render(request, "infra/isolation.html", context, status=status)


def _back(slug: str) -> HttpResponse:
    return HttpResponseRedirect(reverse("infra:cluster-isolation", args=[slug]), status=303)
