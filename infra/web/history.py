"""The card History of a cluster's page: how far the past is rebuilt, and the buttons."""

from __future__ import annotations

from datetime import UTC, datetime

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from infra.models import Cluster
from infra.selectors.clusters import cluster_by_slug
from infra.selectors.history import history_of, rebuild_get
from infra.services import rebuilds as services
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.forms import PortalForm
from portal.kernel.problems import NotFound, Problem
from portal.kernel.web import is_htmx, person_of, platform_page


class HistoryForm(PortalForm):
    """How far back to look."""

    since = forms.DateField(
        required=False,
        label="Not before",
        help_text="A day (UTC); empty: as far as the history reaches.",
        widget=forms.DateInput(attrs={"type": "date"}),
    )

    def clean_since(self) -> datetime | None:
        """The day's first instant."""
        day = self.cleaned_data["since"]
        return datetime(day.year, day.month, day.day, tzinfo=UTC) if day else None


@require_safe
@platform_page()
def history(request: HttpRequest, slug: str) -> HttpResponse:
    """The card alone where htmx asks for it, else a page with it."""
    return _page(request, cluster_by_slug(slug))


@require_POST
@platform_page(PLATFORM_ADMIN)
def history_start(request: HttpRequest, slug: str) -> HttpResponse:
    """Start a run."""
    row, form = cluster_by_slug(slug), HistoryForm(request.POST)
    if form.is_valid():
        try:
            services.rebuild_start(cluster=row, since=form.cleaned_data["since"], actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, "The history is being read, the newest first.")
            return HttpResponseRedirect(reverse("infra:history", args=[slug]), status=303)
    return _page(request, row, form, 422)


@require_POST
@platform_page(PLATFORM_ADMIN)
def history_act(request: HttpRequest, slug: str, action: str) -> HttpResponse:
    """Pause, resume, cancel the newest run."""
    row = cluster_by_slug(slug)
    run = history_of(row).run
    if run is None:
        raise NotFound(f"Cluster {slug} has no run through its history.")
    do = {
        "pause": services.rebuild_pause,
        "resume": services.rebuild_resume,
        "cancel": services.rebuild_cancel,
    }[action]
    try:
        do(rebuild=rebuild_get(row, run.pk), actor=person_of(request))
    except Problem as problem:
        form = HistoryForm()
        return _page(request, row, form, problem.status, refusal=problem.detail)
    return HttpResponseRedirect(reverse("infra:history", args=[slug]), status=303)


def _page(
    request: HttpRequest, row: Cluster, form: HistoryForm | None = None, status: int = 200, refusal: str = ""
) -> HttpResponse:
    context = {
        "cluster": row,
        "history": history_of(row),
        "history_form": form or HistoryForm(),
        "may_change": person_of(request).is_platform(PLATFORM_ADMIN) and row.abandoned_at is None,
        "refusal": refusal,
    }
    template = "infra/partials/history.html" if is_htmx(request) and request.method == "GET" else "infra/history.html"
    return render(request, template, context, status=status)
