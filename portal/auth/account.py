"""Which claim gave which role: a person's own page, and the same of anybody for a platform-admin."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.accounts.models import Identity, User
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.problems import NotFound
from portal.kernel.web import actor_of, platform_page, signed_in, system_render
from tenants.models import Member
from tenants.selectors.mappings import claim_lines, own_claim_lines


@require_safe
@signed_in
def own_roles(request: HttpRequest) -> HttpResponse:
    """One's own roles, and where each comes from."""
    actor = actor_of(request)
    assert actor is not None  # signed_in
    assert actor.user_id is not None  # a browser session is a person's
    user = User.objects.get(pk=actor.user_id)
    return render(request, "accounts/roles.html", _context(user, everything=False))


@require_safe
@platform_page(PLATFORM_ADMIN)
def person(request: HttpRequest, username: str) -> HttpResponse:
    """Somebody's roles, with every rule beside their claims."""
    user = User.objects.filter(username=username).first()
    if user is None:
        raise NotFound(f"There is no user {username}.")
    return system_render(
        request, "platform pages: a person's roles", "accounts/roles.html", lambda: _context(user, everything=True)
    )


def _context(user: User, *, everything: bool) -> dict[str, Any]:
    lines = claim_lines(user.pk) if everything else own_claim_lines(user.pk)
    identities = list(Identity.objects.filter(user=user).order_by("-last_seen_at"))
    return {
        "person": user,
        "everything": everything,
        "members": list(Member.objects.filter(user=user).select_related("tenant").order_by("tenant__slug")),
        "lines": lines,
        "platform_from": next(
            (line for line in lines if line.grant and line.grant.in_force and line.mapping.platform_role), None
        ),
        "identities": [
            (row, json.dumps(row.claims, indent=1, sort_keys=True, ensure_ascii=False)) for row in identities
        ],
    }
