"""Which clusters' Kueue queues what tenants run there."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from infra.models import Cluster
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.problems import NotFound
from portal.kernel.web import actor_of, platform_page, system_render
from tenants.selectors.queueing import queueing_lines
from tenants.services.queueing import queueing_switch


@require_safe
@platform_page()
def queueing(request: HttpRequest) -> HttpResponse:
    """Every managed cluster, and what its Kueue was told and says."""
    actor = actor_of(request)

    def context() -> dict[str, Any]:
        return {"lines": queueing_lines(), "may_change": actor is not None and actor.is_platform(PLATFORM_ADMIN)}

    return system_render(request, "platform pages: Kueue", "tenants/platform_queueing.html", context)


@require_POST
@platform_page(PLATFORM_ADMIN)
def switch(request: HttpRequest, slug: str) -> HttpResponse:
    """On (``enabled=yes``) or off."""
    actor = actor_of(request)
    assert actor is not None  # platform_page has seen to it
    cluster = Cluster.objects.filter(slug=slug).first()
    if cluster is None:
        raise NotFound(f"There is no cluster {slug}.")
    row = queueing_switch(cluster=cluster, enabled=request.POST.get("enabled") == "yes", actor=actor)
    messages.success(request, f"Kueue on {slug} is switched {'on' if row.enabled else 'off'}.")
    return HttpResponseRedirect(reverse("tenants:queueing"), status=303)
