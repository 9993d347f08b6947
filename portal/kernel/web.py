"""What all pages share: who may open them, and in which scope they read.

A page's view does three things: resolve (404), check (403), render. Pages of the platform open the system scope, with
a reason that is audited; pages of a team open that tenant's scope (``tenants.web.pages``). A template is rendered
inside the scope, so a queryset in the context can't be read outside of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec
from urllib.parse import quote, urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme

from portal.kernel.actors import Actor
from portal.kernel.problems import Forbidden, NotFound
from portal.kernel.scoping import system_scope

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def actor_of(request: HttpRequest) -> Actor | None:
    """The signed-in person as an actor; ``None`` for nobody (set by ``ActorMiddleware``)."""
    actor: Actor | None = getattr(request, "actor", None)
    return actor


def person_of(request: HttpRequest) -> Actor:
    """The signed-in person, within a page that lets nobody else in (:func:`platform_page` has seen to it)."""
    actor = actor_of(request)
    assert actor is not None
    return actor


def is_htmx(request: HttpRequest) -> bool:
    """Whether htmx asks for a fragment; a restored history entry wants the whole page."""
    return (
        request.headers.get("HX-Request") == "true"
        and request.headers.get("HX-History-Restore-Request") != "true"
        and request.headers.get("HX-Boosted") != "true"
    )


def to_sign_in(request: HttpRequest) -> HttpResponse:
    """Send to the sign-in page, and back afterwards to the page (never to a fragment's address)."""
    target = request.get_full_path()
    if is_htmx(request):
        here = request.headers.get("HX-Current-URL", "")
        target = urlsplit(here).path if url_has_allowed_host_and_scheme(here, {request.get_host()}) else "/"
        response = HttpResponse(status=204)
        response["HX-Redirect"] = f"{resolve_url(settings.LOGIN_URL)}?next={quote(target)}"
        return response
    if request.method not in ("GET", "HEAD"):
        target = "/"
    return HttpResponseRedirect(f"{resolve_url(settings.LOGIN_URL)}?next={quote(target)}")


def signed_in(view: View[P]) -> View[P]:
    """A page for anybody who is signed in."""

    @wraps(view)
    def page(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if actor_of(request) is None:
            return to_sign_in(request)
        return view(request, *args, **kwargs)

    return page


def platform_page(*roles: str) -> Callable[[View[P]], View[P]]:
    """A page of the platform, for these roles (none named: any platform role); a platform-admin may open all.

    Who has no platform role gets the 404 of an address that does not exist.
    """

    def decorate(view: View[P]) -> View[P]:
        @wraps(view)
        def page(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            actor = actor_of(request)
            if actor is None:
                return to_sign_in(request)
            if not actor.is_platform():
                raise NotFound("There is nothing at this address, or it is not yours to see.")
            if not actor.is_platform(*roles):
                raise Forbidden(f"This page is for {' and '.join(roles)}. Your role is {actor.platform_role}.")
            return view(request, *args, **kwargs)

        return page

    return decorate


def system_render(
    request: HttpRequest, reason: str, template: str, context: Callable[[], dict[str, Any]], status: int = 200
) -> HttpResponse:
    """Render a platform page inside the system scope: ``context`` is called, and the template runs, within it."""
    with system_scope(reason):
        return render(request, template, context(), status=status)
