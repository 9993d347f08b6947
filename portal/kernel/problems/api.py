"""Problems as answers of the REST API: ``application/problem+json``."""

import logging
from typing import Any

from django.http import HttpRequest, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response

from portal.kernel import audit
from portal.kernel.actors import current_request_id
from portal.kernel.problems.errors import BY_STATUS, BadRequest, Internal, Invalid, Problem, from_exception

CONTENT_TYPE = "application/problem+json"
logger = logging.getLogger(__name__)


def problem_response(problem: Problem, request: HttpRequest) -> JsonResponse:
    """The answer for ``problem``."""
    body = problem.as_dict(instance=request.path, request_id=current_request_id())
    response = JsonResponse(body, status=problem.status, content_type=CONTENT_TYPE)
    if problem.retry_after is not None:
        response["Retry-After"] = str(problem.retry_after)
    response["Cache-Control"] = "no-store"
    return response


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """REST framework's hook: every error of an API view becomes a problem."""
    request = context["request"]
    headers: dict[str, str] = {}
    if isinstance(error, exceptions.APIException):
        problem = _from_rest_framework(error)
        if value := getattr(error, "auth_header", None):
            headers["WWW-Authenticate"] = value
    else:
        found = from_exception(error)
        if found is None:
            logger.error("a request failed", exc_info=error, extra={"path": request.path})
            found = Internal("Something went wrong on our side. Tell the platform team the request id.")
        problem = found
    audit.refusal_of(problem.refusal)
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    headers["Cache-Control"] = "no-store"
    body = problem.as_dict(instance=request.path, request_id=current_request_id())
    response = Response(body, status=problem.status, headers=headers)
    response.content_type = CONTENT_TYPE
    return response


def _from_rest_framework(error: exceptions.APIException) -> Problem:
    if isinstance(error, exceptions.ValidationError):
        errors = list(pointers(error.detail))
        return Invalid("The request has values that are not valid.", errors=errors)
    if isinstance(error, exceptions.ParseError):
        return BadRequest(str(error.detail))
    kind = BY_STATUS.get(error.status_code, Internal)
    wait: float | None = getattr(error, "wait", None)
    return kind(str(error.detail), retry_after=None if wait is None else int(wait) + 1)


def pointers(detail: Any, path: str = "") -> list[dict[str, str]]:
    """REST framework's nested errors as a flat list of RFC 6901 pointers."""
    if isinstance(detail, dict):
        found: list[dict[str, str]] = []
        for key, value in detail.items():
            name = str(key).replace("~", "~0").replace("/", "~1")
            found += pointers(value, path if key == "non_field_errors" else f"{path}/{name}")
        return found
    if isinstance(detail, list):
        found = []
        for index, value in enumerate(detail):
            nested = isinstance(value, dict | list)
            found += pointers(value, f"{path}/{index}" if nested else path)
        return found
    return [{"pointer": path or "/", "detail": str(detail)}]
