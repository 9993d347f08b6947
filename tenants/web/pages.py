"""A team's pages: the tenant is in the address, and the page is rendered inside its scope."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from portal.kernel.actors import Actor
from portal.kernel.scoping import tenant_scope
from portal.kernel.web import actor_of, to_sign_in
from tenants.models import Tenant
from tenants.permissions import Perm, permissions_of, tenant_for

P = ParamSpec("P")


class TeamRequest(HttpRequest):
    """A request whose actor and tenant have been resolved."""

    actor: Actor
    tenant: Tenant


TeamView = Callable[Concatenate[TeamRequest, P], HttpResponse]
PlainView = Callable[..., HttpResponse]


def team_page(perm: Perm = Perm.TENANT_READ) -> Callable[[TeamView[P]], PlainView]:
    """A page under ``/t/<tenant>/``. Outsiders get a 404, members without ``perm`` a 403.

    The view runs without a scope: it calls services, which open their own, and reads through :func:`team_render`.
    """

    def decorate(view: TeamView[P]) -> PlainView:
        @wraps(view)
        def page(request: HttpRequest, tenant: str, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            actor = actor_of(request)
            if actor is None:
                return to_sign_in(request)
            request.tenant = tenant_for(actor, tenant, perm)  # type: ignore[attr-defined]  # TeamRequest
            return view(request, *args, **kwargs)  # type: ignore[arg-type]  # it is one now

        return page

    return decorate


def team_render(
    request: TeamRequest, template: str, context: Callable[[], dict[str, Any]], status: int = 200
) -> HttpResponse:
    """Render a team's page inside its scope: ``context`` is called, and the template runs, within it.

    Every template gets ``tenant`` and ``can``, the names of what the actor may do here.
    """
    tenant = request.tenant
    with tenant_scope(tenant.pk):
        can = {perm.name.lower(): True for perm in permissions_of(request.actor, tenant)}
        return render(request, template, {"tenant": tenant, "can": can, **context()}, status=status)
