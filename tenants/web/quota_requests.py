"""A team's asks for another quota, and the platform's inbox of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.problems import NotFound, Problem
from portal.kernel.scoping import system_scope, tenant_scope
from portal.kernel.web import person_of, platform_page, system_render
from tenants.models import QuotaRequest, Tenant
from tenants.permissions import Perm, may, require
from tenants.selectors.capacity import capacity_lines
from tenants.selectors.quota import quota_lines
from tenants.selectors.requests import request_of, request_visible, requests_decided, requests_of, requests_open
from tenants.services.quota_requests import (
    quota_request_approve,
    quota_request_change,
    quota_request_comment,
    quota_request_create,
    quota_request_deny,
    quota_request_submit,
    quota_request_withdraw,
)
from tenants.web.pages import TeamRequest, team_page, team_render
from tenants.web.quota_forms import ChangeForm, CommentForm, DecisionForm, RequestForm, initial_of

SHOWN = 100
REASON = "platform pages: quota requests"
ACTIONS: dict[str, tuple[Callable[..., QuotaRequest], str]] = {
    "submit": (quota_request_submit, "It is handed in; a platform-admin decides."),
    "withdraw": (quota_request_withdraw, "It is withdrawn."),
}


# --- the team's ------------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
@team_page()
def requests(request: TeamRequest) -> HttpResponse:
    """All of them; an owner writes one (POST; ``submit``: hand it in at once)."""
    form = RequestForm(request.POST or None)
    if request.method == "POST":
        require(request.actor, Perm.QUOTA_REQUEST, request.tenant)
        if form.is_valid():
            try:
                row = quota_request_create(
                    tenant=request.tenant,
                    gpu_type=form.cleaned_data["gpu_type"],
                    submit="submit" in request.POST,
                    actor=request.actor,
                    **form.values,
                )
            except Problem as problem:
                form.add_problem(problem)
            else:
                handed_in = row.state == QuotaRequest.State.SUBMITTED
                messages.success(
                    request, ACTIONS["submit"][1] if handed_in else "It is a draft. Hand it in when it is ready."
                )
                return _to("quota-request", request.tenant.slug, row.pk)

    def context() -> dict[str, Any]:
        return {"rows": list(requests_of(request.tenant)[:SHOWN]), "form": form}

    return team_render(request, "tenants/quota_requests.html", context, 422 if request.method == "POST" else 200)


@require_safe
@team_page()
def quota_request(request: TeamRequest, request_id: UUID) -> HttpResponse:
    """One, with what was written to it."""
    return _team_page(request, request_id)


def _team_page(request: TeamRequest, request_id: UUID, status: int = 200, **more: Any) -> HttpResponse:
    def context() -> dict[str, Any]:
        row = request_of(request.tenant, request_id)
        if row is None:
            raise NotFound("There is no such quota request.")
        return {
            "row": row,
            "comments": list(row.comments.order_by("created_at", "id")),
            "lines": [line for line in quota_lines(request.tenant) if line.quota.gpu_type_id == row.gpu_type_id],
            "change_form": ChangeForm(initial=initial_of(row)),
            "comment_form": CommentForm(),
            **more,
        }

    return team_render(request, "tenants/quota_request.html", context, status)


@require_POST
@team_page(Perm.QUOTA_REQUEST)
def change(request: TeamRequest, request_id: UUID) -> HttpResponse:
    """Change a draft."""
    _must_be_there(request.tenant, request_id)
    form = ChangeForm(request.POST)
    if form.is_valid():
        try:
            quota_request_change(tenant=request.tenant, request_id=request_id, actor=request.actor, **form.values)
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, "Stored.")
            return _to("quota-request", request.tenant.slug, request_id)
    return _team_page(request, request_id, 422, change_form=form)


@require_POST
@team_page(Perm.QUOTA_REQUEST)
def act(request: TeamRequest, request_id: UUID, act: str) -> HttpResponse:
    """Hand it in, or withdraw it."""
    if act not in ACTIONS:
        raise NotFound("A quota request can be submitted or withdrawn.")
    service, said = ACTIONS[act]
    service(tenant=request.tenant, request_id=request_id, actor=request.actor)
    messages.success(request, said)
    return _to("quota-request", request.tenant.slug, request_id)


@require_POST
@team_page(Perm.QUOTA_REQUEST)
def comment(request: TeamRequest, request_id: UUID) -> HttpResponse:
    """Write to it."""
    _must_be_there(request.tenant, request_id)
    form = CommentForm(request.POST)
    if form.is_valid():
        quota_request_comment(
            tenant=request.tenant, request_id=request_id, text=form.cleaned_data["text"], actor=request.actor
        )
        return _to("quota-request", request.tenant.slug, request_id)
    return _team_page(request, request_id, 422, comment_form=form)


def _must_be_there(tenant: Tenant, request_id: UUID) -> None:
    with tenant_scope(tenant.pk):
        if request_of(tenant, request_id) is None:
            raise NotFound("There is no such quota request.")


# --- the platform's --------------------------------------------------------------------------------------------------


@require_safe
@platform_page()
def capacity(request: HttpRequest) -> HttpResponse:
    """What was promised to all tenants, beside the cards that there are."""
    return system_render(request, REASON, "tenants/platform_quotas.html", lambda: {"lines": capacity_lines()})


@require_safe
@platform_page()
def inbox(request: HttpRequest) -> HttpResponse:
    """What waits for a decision, and what was decided."""

    def context() -> dict[str, Any]:
        return {"waiting": list(requests_open()), "decided": list(requests_decided()[:SHOWN])}

    return system_render(request, REASON, "tenants/platform_quota_requests.html", context)


@require_safe
@platform_page()
def platform_request(request: HttpRequest, request_id: UUID) -> HttpResponse:
    """One, beside what the tenant has and what there is."""
    return _platform_page(request, request_id)


def _platform_page(request: HttpRequest, request_id: UUID, status: int = 200, **more: Any) -> HttpResponse:
    actor = person_of(request)

    def context() -> dict[str, Any]:
        row = _visible(request_id)
        own = str(actor.user_id) in row.authors
        return {
            "row": row,
            "tenant_row": row.tenant,
            "comments": list(row.comments.order_by("created_at", "id")),
            "lines": [line for line in quota_lines(row.tenant) if line.quota.gpu_type_id == row.gpu_type_id],
            "capacity": next((line for line in capacity_lines() if line.gpu_type == row.gpu_type), None),
            "own": own,
            "may_decide": may(actor, Perm.TENANT_MANAGE) and not own and row.state == QuotaRequest.State.SUBMITTED,
            "decision_form": DecisionForm(),
            **more,
        }

    return system_render(request, REASON, "tenants/platform_quota_request.html", context, status)


@require_POST
@platform_page(PLATFORM_ADMIN)
def decide(request: HttpRequest, request_id: UUID) -> HttpResponse:
    """Approve (``decision=approve``), deny (``deny``) or only write to it (anything else)."""
    with system_scope(REASON):
        row = _visible(request_id)
    form = DecisionForm(request.POST)
    if form.is_valid():
        text, actor = form.cleaned_data["comment"], person_of(request)
        try:
            match request.POST.get("decision"):
                case "approve":
                    quota_request_approve(tenant=row.tenant, request_id=row.pk, comment=text, actor=actor)
                    messages.success(request, "Approved.")
                case "deny":
                    quota_request_deny(tenant=row.tenant, request_id=row.pk, comment=text, actor=actor)
                    messages.success(request, "Denied.")
                case _:
                    quota_request_comment(tenant=row.tenant, request_id=row.pk, text=text, actor=actor)
        except Problem as problem:
            if problem.status == 403:
                raise
            form.add_problem(problem, {"/comment": "comment", "/text": "comment"})
        else:
            return _to("platform-quota-request", request_id)
    return _platform_page(request, request_id, 422, decision_form=form)


def _visible(request_id: UUID) -> QuotaRequest:
    row = request_visible(request_id)
    if row is None:
        raise NotFound("There is no such quota request.")
    return row


def _to(name: str, *args: object) -> HttpResponse:
    return HttpResponseRedirect(reverse(f"tenants:{name}", args=args), status=303)
