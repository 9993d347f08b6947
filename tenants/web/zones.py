"""The platform's pages about trust zones: who is in them, which pools are kept for them, who shares cards with whom."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.problems import NotFound, Problem
from portal.kernel.web import person_of, platform_page, system_render
from tenants.models import Zone
from tenants.selectors.zones import zone_views
from tenants.services.zones import pool_keep, zone_delete, zone_update
from tenants.web.zone_forms import PoolZoneForm, RenameForm

REASON = "platform pages: zones"


@require_safe
@platform_page()
def zones(request: HttpRequest) -> HttpResponse:
    """All zones."""
    return _page(request)


@require_POST
@platform_page(PLATFORM_ADMIN)
def rename(request: HttpRequest, slug: str) -> HttpResponse:
    """Another name for a zone."""
    zone, form = _zone(slug), RenameForm(request.POST)
    if form.is_valid():
        try:
            zone_update(zone=zone, **form.cleaned_data, actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, f"Zone {slug} is called {form.cleaned_data['name']} now.")
            return _back()
    return _page(request, 422, renamed=slug, rename_form=form)


@require_POST
@platform_page(PLATFORM_ADMIN)
def delete(request: HttpRequest, slug: str) -> HttpResponse:
    """Delete an empty zone."""
    try:
        zone_delete(zone=_zone(slug), actor=person_of(request))
    except Problem as problem:
        return _page(request, problem.status, refusal=problem.detail)
    messages.success(request, f"Zone {slug} is gone.")
    return _back()


@require_POST
@platform_page(PLATFORM_ADMIN)
def keep(request: HttpRequest) -> HttpResponse:
    """Keep a pool for a zone, or give it back to everybody."""
    form = PoolZoneForm(request.POST)
    if form.is_valid():
        try:
            pool = pool_keep(**form.cleaned_data, actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            whose = f"is kept for {form.cleaned_data['zone'].slug}" if pool.zone_id else "is everybody's"
            messages.success(request, f"Pool {pool.name} on {pool.cluster.slug} {whose} now.")
            return _back()
    return _page(request, 422, keep_form=form)


def _page(request: HttpRequest, status: int = 200, **more: Any) -> HttpResponse:
    def context() -> dict[str, Any]:
        return {
            "views": zone_views(),
            "keep_form": PoolZoneForm(),
            "may_change": person_of(request).is_platform(PLATFORM_ADMIN),
            **more,
        }

    return system_render(request, REASON, "tenants/platform_zones.html", context, status)


def _zone(slug: str) -> Zone:
    row = Zone.objects.filter(slug=slug).first()
    if row is None:
        raise NotFound(f"There is no zone {slug}.")
    return row


def _back() -> HttpResponse:
    return HttpResponseRedirect(reverse("tenants:platform-zones"), status=303)
