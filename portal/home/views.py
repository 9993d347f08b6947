"""Where a person lands."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from portal.kernel.web import actor_of, signed_in
from tenants.permissions import tenants_of


@require_safe
@signed_in
def index(request: HttpRequest) -> HttpResponse:
    """The person's first team, else the platform's overview, else a page that says what to do."""
    actor = actor_of(request)
    assert actor is not None  # signed_in
    for tenant in tenants_of(actor):
        return HttpResponseRedirect(reverse("tenants:home", args=[tenant.slug]))
    if actor.is_platform():
        return HttpResponseRedirect(reverse("home:platform"))
    return render(request, "home/nothing.html")
