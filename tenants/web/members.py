"""Who belongs to the team, and as what."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from portal.kernel.problems import Problem
from tenants.models import Member
from tenants.permissions import TENANT_ROLES, Perm, require
from tenants.selectors.members import members_of
from tenants.services.members import member_remove, member_set
from tenants.web.forms import MemberForm
from tenants.web.pages import TeamRequest, team_page, team_render

MEANING = {
    Member.Role.OWNER: "everything in the team, and who is in it",
    Member.Role.DEVELOPER: "deploys and changes models, sees costs",
    Member.Role.VIEWER: "sees deployments, quota and tenant clusters",
    Member.Role.FINANCE: "sees deployments, usage and bills",
}
assert MEANING.keys() == TENANT_ROLES.keys()


@require_http_methods(["GET", "HEAD", "POST"])
@team_page()
def members(request: TeamRequest) -> HttpResponse:
    """The list; an owner adds people and changes roles (POST: user name and role)."""
    form = MemberForm(request.POST or None)
    if request.method != "POST":
        return _page(request, form)
    require(request.actor, Perm.MEMBER_MANAGE, request.tenant)
    if form.is_valid():
        username, role = form.cleaned_data["username"].strip().lower(), form.cleaned_data["role"]
        try:
            member_set(tenant=request.tenant, username=username, role=role, actor=request.actor)
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, f"{username} is {role} now.")
            return _back(request)
    return _page(request, form, status=422)


@require_POST
@team_page(Perm.MEMBER_MANAGE)
def member_remove_view(request: TeamRequest, username: str) -> HttpResponse:
    """Take somebody out of the team."""
    try:
        member_remove(tenant=request.tenant, username=username, actor=request.actor)
    except Problem as problem:
        form = MemberForm()
        return _page(request, form, refusal=problem.detail, status=problem.status)
    messages.success(request, f"{username} is no member any more.")
    return _back(request)


def _back(request: TeamRequest) -> HttpResponse:
    return HttpResponseRedirect(reverse("tenants:members", args=[request.tenant.slug]), status=303)


def _page(request: TeamRequest, form: MemberForm, *, refusal: str = "", status: int = 200) -> HttpResponse:
    def context() -> dict[str, Any]:
        return {
            "members": members_of(request.tenant),
            "form": form,
            "refusal": refusal,
            "roles": Member.Role.choices,
            "meaning": [(str(role), text) for role, text in MEANING.items()],
        }

    return team_render(request, "tenants/members.html", context, status)
