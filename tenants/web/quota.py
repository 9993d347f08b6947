"""What the team may hold, holds and of what that is made; where its parts lie, and moving them."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from infra.models import GPUType
from portal.kernel.problems import Problem
from portal.kernel.scoping import tenant_scope
from tenants.models import AllotmentMove
from tenants.permissions import Perm
from tenants.selectors.holdings import quota_makings
from tenants.selectors.profiles import parts_rows
from tenants.selectors.quota import quota_lines
from tenants.selectors.requests import SHOWN_MOVES, Place, moves_of, places_of, requests_of
from tenants.services.allotments import CARD
from tenants.services.moves import Spot, allotment_move
from tenants.templatetags.team import in_cards
from tenants.web.figures import quota_bar
from tenants.web.pages import TeamRequest, team_page, team_render
from tenants.web.quota_forms import MovePartForm

SHOWN_REQUESTS = 5


@require_safe
@team_page()
def quota(request: TeamRequest) -> HttpResponse:
    """A section for each GPU type: its figures, what they are made of, its parts on the clusters."""
    return _page(request)


def _page(request: TeamRequest, form: MovePartForm | None = None, status: int = 200) -> HttpResponse:
    tenant = request.tenant

    def context() -> dict[str, Any]:
        lines = quota_lines(tenant)
        makings = quota_makings(tenant, [line.quota.gpu_type for line in lines])
        return {
            "bars": [(quota_bar(line), makings[line.quota.gpu_type_id]) for line in lines],
            "parts": parts_rows(tenant),
            "sites": list(tenant.sites.order_by("slug")),
            "requests": list(requests_of(tenant)[:SHOWN_REQUESTS]),
            "moves": list(moves_of(tenant)[:SHOWN_MOVES]),
            "move_form": form
            or MovePartForm(
                types=[line.quota.gpu_type.slug for line in lines], spots=[str(place) for place in places_of(tenant)]
            ),
        }

    return team_render(request, "tenants/quota.html", context, status)


@require_POST
@team_page(Perm.QUOTA_REQUEST)
def move(request: TeamRequest) -> HttpResponse:
    """Move cards between namespaces."""
    tenant = request.tenant
    with tenant_scope(tenant.pk):
        places = {str(place): place for place in places_of(tenant)}
        types = {line.quota.gpu_type.slug: line.quota.gpu_type for line in quota_lines(tenant)}
    form = MovePartForm(request.POST, types=list(types), spots=list(places))
    if form.is_valid():
        given = form.cleaned_data
        try:
            moved = allotment_move(
                tenant=tenant,
                gpu_type=types[given["gpu_type"]],
                source=_spot(places.get(given["source"])),
                goal=_spot(places.get(given["goal"])),
                amount=given["amount"] * CARD,
                actor=request.actor,
            )
        except Problem as problem:
            if problem.status not in (409, 422):
                raise
            form.add_problem(problem)
        else:
            messages.success(request, _said(moved, types[given["gpu_type"]]))
            return HttpResponseRedirect(reverse("tenants:quota", args=[tenant.slug]) + "#moves", status=303)
    return _page(request, form, 422)


def _spot(place: Place | None) -> Spot | None:
    return None if place is None else Spot(place.cluster, place.namespace)


def _said(moved: AllotmentMove, gpu_type: GPUType) -> str:
    what = f"{in_cards(moved.amount)} of {gpu_type.slug}"
    if moved.state == AllotmentMove.State.DONE:
        return f"Handed over: {what}."
    return f"On the way: {what}, until the cluster that is left has confirmed the lower figure."
