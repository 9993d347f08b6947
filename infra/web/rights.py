"""What credentials may do: checked before a cluster is connected, and again at any time."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from infra.rights import Right, RightsReport, bind_line
from infra.selectors.clusters import cluster_by_slug
from infra.services.preflight import preflight as check
from infra.services.rights import cluster_check_rights
from infra.web.forms import PreflightForm
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.conditions import get_condition
from portal.kernel.problems import Forbidden, Problem
from portal.kernel.web import person_of, platform_page


def rights_context(report: RightsReport | None) -> dict[str, Any]:
    """What the table of rights is drawn from."""
    bind = bind_line(report.mode, report.subject) if report else ""
    return {"report": report, "rights": _rows(report.rights) if report else [], "bind": bind}


def _rows(rights: Iterable[Right]) -> list[tuple[str, Right]]:
    """(verbs and resource, right): neighbours that say the same of one resource in one row; what is missing stands
    alone, with what gives it."""
    alike = groupby(rights, lambda right: (right.resource, right.why, right.need, right.held, right.command))
    rows = [list(group) for _, group in alike]
    return [(f"{', '.join(right.verb for right in group)} {group[0].resource}", group[0]) for group in rows]


@require_http_methods(["GET", "HEAD", "POST"])
@platform_page(PLATFORM_ADMIN)
def preflight(request: HttpRequest) -> HttpResponse:
    """Check a kubeconfig, right by right; nothing is connected and nothing stored."""
    form = PreflightForm(request.POST or None)
    context: dict[str, Any] = {"form": form, "facts": None, **rights_context(None)}
    if request.method == "POST" and form.is_valid():
        try:
            facts = check(**form.cleaned_data, actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            context |= {"facts": facts, **rights_context(facts.rights)}
    status = 422 if form.is_bound and form.errors else 200
    return render(request, "infra/preflight.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@platform_page()
def cluster_rights(request: HttpRequest, slug: str) -> HttpResponse:
    """What our credentials may do on a connected cluster; POST has it asked for again."""
    cluster, actor = cluster_by_slug(slug), person_of(request)
    if request.method == "POST":
        if not actor.is_platform(PLATFORM_ADMIN):
            raise Forbidden("It takes a platform-admin to have the rights asked for.")
        cluster_check_rights(cluster=cluster, actor=actor)
        messages.success(request, "The cluster is asked now; the answer is here in a moment.")
        return HttpResponseRedirect(reverse("infra:cluster-rights", args=[slug]), status=303)
    context = {
        "cluster": cluster,
        "condition": get_condition(cluster.conditions, "RightsComplete"),
        "may_change": actor.is_platform(PLATFORM_ADMIN) and cluster.abandoned_at is None,
        **rights_context(RightsReport.load(cluster.rights)),
    }
    return render(request, "infra/cluster_rights.html", context)
