"""Before each request of a session that hangs on the provider: is it due, is it over? And what then to answer.

Over, and asked for …     is answered with
a page                    a redirect: first silently (``prompt=none``), then the provider's own form
a page, idle              the sign-in page; nobody is signed in again without doing something
a fragment (htmx, GET)    204 with ``HX-Redirect`` to the page that it is part of: never a sign-in page in a fragment
a change by htmx          401 with a sentence in the fragment's place: the form around it keeps what was typed
the API                   401 as problem+json
a form                    403 with what was typed, to be sent again after signing in (:mod:`portal.auth.keeping`)

It runs before the actor is set, so roles that were just taken away do not count any more. Requests to ``/api/v1/`` with
a bearer token have nothing to do with a session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.contrib.auth import BACKEND_SESSION_KEY, logout
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import Resolver404, resolve, reverse
from django.utils.http import url_has_allowed_host_and_scheme

from portal.auth import keeping
from portal.auth.oidc.backend import PATH
from portal.auth.oidc.sessions import Verdict, session_check
from portal.kernel.problems.errors import Unauthorized, Unavailable
from portal.kernel.problems.web import respond
from portal.kernel.web import is_htmx

API = "/api/v1/"
POLL_HEADER = "X-Poll"
"""What the pages' script sends with requests that nobody made (``data-poll``)."""
_SIGN_IN_PAGES = "auth"


class SessionRefreshMiddleware:
    """See the module."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.session.get(BACKEND_SESSION_KEY) != PATH or _without_session(request):
            return self.get_response(request)
        polled = POLL_HEADER in request.headers
        verdict = session_check(session_key=request.session.session_key or "", polled=polled)
        if verdict is Verdict.UNAVAILABLE:
            problem = Unavailable(
                "The identity provider has not answered for a while, so nobody can say whether you may still see "
                "this. Nothing is lost: load the page again in a minute.",
                retry_after=30,
            )
            return respond(problem, request)
        if verdict is not Verdict.GOES_ON:
            user = request.user
            logout(request)
            request.session_over = (verdict, user.pk)  # type: ignore[attr-defined]  # read below
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        """The answer for a session that is over. Here, so that the check of the form's CSRF token came first."""
        over: tuple[Verdict, Any] | None = getattr(request, "session_over", None)
        if over is None:
            return None
        verdict, user_id = over
        if request.path.startswith(API):
            return respond(Unauthorized("Your session is over. Sign in again."), request)
        reading = request.method in ("GET", "HEAD")
        if request.headers.get("HX-Request") == "true" and not reading:
            return render(request, "auth/partials/over.html", status=401)
        if is_htmx(request):
            response = HttpResponse(status=204)
            response["HX-Redirect"] = page_of(request)
            return response
        if not reading:
            return keeping.kept_page(request, user_id)
        following = {"next": request.get_full_path()}
        if verdict is Verdict.IDLE:
            return HttpResponseRedirect(f"{reverse('auth:login')}?{urlencode(following | {'over': 'idle'})}")
        return HttpResponseRedirect(f"{reverse('auth:oidc-login')}?{urlencode(following | {'silent': '1'})}")


def page_of(request: HttpRequest) -> str:
    """The path of the page that htmx asks from, if it is one of ours; else the first page."""
    here = request.headers.get("HX-Current-URL", "")
    if not url_has_allowed_host_and_scheme(here, {request.get_host()}):
        return "/"
    parts = urlsplit(here)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return path if path.startswith("/") and not path.startswith("//") else "/"


def _without_session(request: HttpRequest) -> bool:
    """Requests that don't act in the session's name: signing in and out, the API with a token, no such address."""
    if request.path.startswith(API) and request.headers.get("Authorization", "")[:7].lower() == "bearer ":
        return True
    try:
        match = resolve(request.path_info)
    except Resolver404:
        return True
    return match.namespace == _SIGN_IN_PAGES
