"""What wraps every request: an id, clean input, the actor, problems instead of tracebacks."""

import re
from collections.abc import Callable

from django.contrib.auth.base_user import AbstractBaseUser
from django.http import HttpRequest, HttpResponse

from portal.kernel import audit
from portal.kernel.actors import Actor, RequestContext, current_request, request_context
from portal.kernel.ids import uuid7
from portal.kernel.problems import BadRequest, from_exception
from portal.kernel.problems.web import respond
from portal.kernel.text import storable

GetResponse = Callable[[HttpRequest], HttpResponse]
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}", re.ASCII)
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class RequestIdMiddleware:
    """Takes ``X-Request-ID`` where it is well-formed, else makes one; answers carry it, logs and audit too."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-ID", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid7().hex
        address = request.META.get("REMOTE_ADDR", "")
        with request_context(RequestContext(request_id=request_id, remote_address=address)):
            response = self.get_response(request)
        response["X-Request-ID"] = request_id
        return response


class CleanInputMiddleware:
    """Refuses NULs and lone surrogates in the address, headers and form fields (a 400 instead of a 500)."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        where = self._unstorable(request)
        if where is not None:
            return respond(BadRequest(f"The {where} holds a character that can't be stored (NUL)."), request)
        return self.get_response(request)

    def _unstorable(self, request: HttpRequest) -> str | None:
        if not storable(request.path_info):
            return "address"
        if not all(storable(key) and all(map(storable, values)) for key, values in request.GET.lists()):
            return "query"
        if any("\x00" in value for key, value in request.META.items() if key.startswith("HTTP_")):
            return "header"
        form = request.method == "POST" and (request.content_type or "") in _FORMS
        if form and not all(storable(key) and all(map(storable, values)) for key, values in request.POST.lists()):
            return "form"
        return None


class ActorMiddleware:
    """Sets ``request.actor`` for a signed-in person; pages made for somebody are kept by no cache."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        user = request.user
        actor: Actor | None = None
        if isinstance(user, AbstractBaseUser) and user.is_authenticated:
            actor = Actor(
                kind="user",
                name=user.get_username(),
                user_id=user.pk,
                platform_role=getattr(user, "platform_role", ""),
            )
        request.actor = actor  # type: ignore[attr-defined]  # our attribute, read by views and templates
        context = current_request()
        if context is not None:
            context.actor = actor
        response = self.get_response(request)
        if (actor is not None or "Authorization" in request.headers) and not response.has_header("Cache-Control"):
            response["Cache-Control"] = "no-store"
        return response


class ProblemMiddleware:
    """A problem raised by a page's view becomes a page with its sentence (the API has its own handler)."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """The answer, or ``None`` for a fault of ours (Django logs it and answers 500)."""
        problem = from_exception(exception)
        if problem is None:
            return None
        audit.refusal_of(problem.refusal)
        return respond(problem, request)
