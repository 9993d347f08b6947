"""The page for whoever is on call: which parts answer, how long credentials are good, the switch for all writing."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from infra.selectors.operations import cluster_parts, credential_states, database_clock, write_stop
from infra.services.operations import writes_resume, writes_stop
from portal.kernel import health
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.forms import PortalForm
from portal.kernel.heartbeat import SILENT_SECONDS
from portal.kernel.models import Heartbeat
from portal.kernel.problems import Conflict, Problem
from portal.kernel.web import actor_of, platform_page

ABOUT = {
    "database": "everything is kept in it",
    "broker": "hurries work; losing it loses nothing",
    "worker": "a worker process lives",
    "beat": "the clock of periodic tasks lives",
    "tasks": "a task has come from the clock through the broker to a worker and has ended",
    "watcher": "a process that watches the clusters lives",
    "clusters": "the API servers answer",
}


class StopForm(PortalForm):
    """Stopping needs a reason: everybody on the platform's pages reads it."""

    reason = forms.CharField(max_length=500, label="Why", widget=forms.Textarea(attrs={"rows": 2}))


@require_safe
@platform_page()
def operations(request: HttpRequest) -> HttpResponse:
    """All on one page."""
    return _page(request)


def _page(request: HttpRequest, status: int = 200, **more: Any) -> HttpResponse:
    now = database_clock()
    needed = health.needed_parts()
    parts = {**needed, **health.informing_parts(needed["database"] == health.OK)}
    beats = Heartbeat.objects.order_by("kind", "instance")
    actor = actor_of(request)
    context = {
        "parts": [(name, state, ABOUT.get(name, ""), state == health.OK) for name, state in parts.items()],
        "beats": [(beat, (now - beat.seen_at).total_seconds() <= SILENT_SECONDS) for beat in beats],
        "clusters": cluster_parts(now),
        "credentials": credential_states(now),
        "stopped": write_stop(),
        "form": StopForm(),
        "may_change": actor is not None and actor.is_platform(PLATFORM_ADMIN),
        **more,
    }
    return render(request, "infra/operations.html", context, status=status)


@require_POST
@platform_page(PLATFORM_ADMIN)
def stop(request: HttpRequest) -> HttpResponse:
    """Nothing is written to any cluster any more."""
    form, actor = StopForm(request.POST), actor_of(request)
    assert actor is not None  # platform_page has seen to it
    if form.is_valid():
        try:
            writes_stop(reason=form.cleaned_data["reason"], actor=actor)
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.warning(request, "Nothing is written to any cluster any more.")
            return HttpResponseRedirect(reverse("infra:operations"), status=303)
    return _page(request, 422, form=form)


@require_POST
@platform_page(PLATFORM_ADMIN)
def resume(request: HttpRequest) -> HttpResponse:
    """Write again."""
    actor = actor_of(request)
    assert actor is not None  # platform_page has seen to it
    try:
        writes_resume(actor=actor)
    except Conflict as problem:
        messages.error(request, problem.detail)
    else:
        messages.success(request, "The clusters are written to again; what waited is looked at now.")
    return HttpResponseRedirect(reverse("infra:operations"), status=303)
