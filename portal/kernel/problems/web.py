"""Problems as pages, and Django's own error handlers (the API's addresses get JSON from them too)."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from portal.kernel.actors import current_request_id
from portal.kernel.problems.api import problem_response
from portal.kernel.problems.errors import BadRequest, Forbidden, Internal, NotFound, Problem, from_exception

API_PREFIX = "/api/"


def respond(problem: Problem, request: HttpRequest) -> HttpResponse:
    """JSON under ``/api/``, else a page (without the frame for a fragment that htmx asked for)."""
    if request.path.startswith(API_PREFIX):
        return problem_response(problem, request)
    context = {"problem": problem, "request_id": current_request_id()}
    response = render(request, "kernel/problem.html", context, status=problem.status)
    if problem.retry_after is not None:
        response["Retry-After"] = str(problem.retry_after)
    response["Cache-Control"] = "no-store"
    return response


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """``handler400``."""
    return respond(from_exception(exception) or BadRequest("The request can't be read."), request)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """``handler403``."""
    return respond(from_exception(exception) or Forbidden("You may not do this."), request)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """``handler404``: the same answer whether nothing is there or it is somebody else's."""
    return respond(NotFound("There is nothing at this address, or it is not yours to see."), request)


def server_error(request: HttpRequest) -> HttpResponse:
    """``handler500``."""
    detail = "Something went wrong on our side. Tell the platform team the request id."
    return respond(Internal(detail), request)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form that was opened before signing in (again): nothing is lost if it is sent once more."""
    problem = Forbidden("This form is out of date. Load the page again, then send it once more.")
    response = respond(problem, request)
    if request.headers.get("HX-Request") == "true":
        response["HX-Refresh"] = "true"
    return response
