"""Credits for faults: what waits for a decision, and what was decided. And a team's own."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from billing.models import FaultCredit
from billing.selectors.fault_credits import fault_credits
from billing.services.fault_credits import fault_credit_decide
from billing.web.paging import SIZE, page_from, page_number
from billing.web.rates import acting
from portal.kernel.actors import PLATFORM_FINANCE
from portal.kernel.forms import PortalForm
from portal.kernel.problems import NotFound, Problem
from portal.kernel.scoping import system_scope
from portal.kernel.web import actor_of, platform_page, system_render
from tenants.permissions import Perm
from tenants.web.pages import TeamRequest, team_page, team_render

REASON = "platform pages: credits for faults"


class CreditsForm(PortalForm):
    """Which credits are shown."""

    state = forms.ChoiceField(required=False, choices=[("", "any state"), *FaultCredit.State.choices])


def _state(request: HttpRequest) -> tuple[CreditsForm, str]:
    form = CreditsForm(request.GET)
    return form, form.cleaned_data["state"] if form.is_valid() else ""


@require_safe
@platform_page()
def credits_list(request: HttpRequest) -> HttpResponse:
    """All teams' credits, the latest fault first; what waits for finance has a form."""

    def context() -> dict[str, Any]:
        form, state = _state(request)
        offset = (page_number(request) - 1) * SIZE
        actor = actor_of(request)
        return {
            "form": form,
            "page": page_from(request, list(fault_credits(state=state)[offset : offset + SIZE + 1])),
            "waiting": fault_credits(state=FaultCredit.State.PROPOSED).filter(settled=True).count(),
            "may_decide": actor is not None and actor.is_platform(PLATFORM_FINANCE),
        }

    return system_render(request, REASON, "billing/fault_credits.html", context)


@require_POST
@platform_page(PLATFORM_FINANCE)
def credit_decide(request: HttpRequest, credit_id: UUID) -> HttpResponse:
    """Approve or reject one."""
    with system_scope(REASON):
        row = FaultCredit.objects.filter(pk=credit_id).first()
    if row is None:
        raise NotFound("There is no such credit.")
    approve = request.POST.get("decision") == "approve"
    try:
        fault_credit_decide(credit=row, approve=approve, reason=request.POST.get("reason", ""), actor=acting(request))
    except Problem as problem:
        messages.error(request, "; ".join(error["detail"] for error in problem.errors) or problem.detail)
    else:
        messages.success(request, "It is approved, and on the next bill." if approve else "It is rejected.")
    return HttpResponseRedirect(reverse("billing:fault-credits"), status=303)


@require_safe
@team_page(Perm.BILL_READ)
def team_credits(request: TeamRequest) -> HttpResponse:
    """The team's credits, the latest fault first."""

    def context() -> dict[str, Any]:
        form, state = _state(request)
        offset = (page_number(request) - 1) * SIZE
        rows = fault_credits(tenant_id=request.tenant.pk, state=state)[offset : offset + SIZE + 1]
        return {"form": form, "page": page_from(request, list(rows))}

    return team_render(request, "billing/team_credits.html", context)
