"""The problems themselves, and what other exceptions become."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import psycopg
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import DatabaseError, DataError, IntegrityError, models
from django.http import Http404

logger = logging.getLogger(__name__)


class Problem(Exception):
    """A refusal with a status. ``detail`` is a sentence: what, where, what to do.

    Attributes:
        errors: one ``{"pointer": "/spec/replicas", "detail": "..."}`` for each wrong field (RFC 6901 pointers).
        retry_after: seconds after which asking again may help.
        extra: further members of the JSON answer (``quota``, ``reasons``, ...).
        refusal: arguments of ``audit.refused``, for a refusal that is to be written down. The edge (API, page,
            command) does it, where the refused transaction has been rolled back.
    """

    refusal: Mapping[str, Any] | None = None

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"

    def __init__(
        self,
        detail: str = "",
        *,
        errors: Sequence[Mapping[str, str]] = (),
        retry_after: int | None = None,
        code: str = "",
        **extra: Any,
    ) -> None:
        self.detail = detail or (errors[0]["detail"] if errors else self.title + ".")
        self.errors = [dict(error) for error in errors]
        self.retry_after = retry_after
        self.code = code
        self.extra = extra
        super().__init__(self.detail)

    @property
    def type(self) -> str:
        """A URI reference that names the kind of problem; ``code`` narrows it (``QuotaExceeded``)."""
        return f"/problems/{self.slug}"

    def as_dict(self, *, instance: str = "", request_id: str = "") -> dict[str, Any]:
        """The members of ``application/problem+json``."""
        body: dict[str, Any] = {
            "type": self.type,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if instance:
            body["instance"] = instance
        if self.code:
            body["code"] = self.code
        if self.errors:
            body["errors"] = self.errors
        if request_id:
            body["request_id"] = request_id
        return {**self.extra, **body}


class BadRequest(Problem):
    """The request can't be read."""

    status, slug, title = 400, "bad-request", "Bad request"


class Unauthorized(Problem):
    """Nobody is signed in."""

    status, slug, title = 401, "unauthorized", "Sign in first"


class Forbidden(Problem):
    """The actor may see the object but not do this."""

    status, slug, title = 403, "forbidden", "Not allowed"


class NotFound(Problem):
    """No such object, or none that the actor may know of."""

    status, slug, title = 404, "not-found", "Not found"


class MethodNotAllowed(Problem):
    """The address does not take this method."""

    status, slug, title = 405, "method-not-allowed", "Method not allowed"


class Conflict(Problem):
    """The state of the object, or another object, is in the way."""

    status, slug, title = 409, "conflict", "Conflict"


class PreconditionFailed(Problem):
    """Somebody changed the object since it was read (``If-Match``)."""

    status, slug, title = 412, "precondition-failed", "Changed in the meantime"


class TooLarge(Problem):
    """The body is larger than accepted."""

    status, slug, title = 413, "too-large", "Too large"


class UnsupportedMediaType(Problem):
    """The body's type is none that is accepted."""

    status, slug, title = 415, "unsupported-media-type", "Unsupported media type"


class Invalid(Problem):
    """The request can be read, but a value is wrong; ``errors`` points at each."""

    status, slug, title = 422, "invalid", "Invalid"

    @classmethod
    def field(cls, pointer: str, detail: str) -> Self:
        """A problem of one field."""
        return cls(detail, errors=[{"pointer": pointer, "detail": detail}])


class PreconditionRequired(Problem):
    """A change needs ``If-Match``."""

    status, slug, title = 428, "precondition-required", "Send If-Match"


class TooManyRequests(Problem):
    """Asked too often."""

    status, slug, title = 429, "too-many-requests", "Too many requests"


class Internal(Problem):
    """A fault of ours; the details are in the log under the request id."""


class Unavailable(Problem):
    """A part that is needed does not answer now."""

    status, slug, title = 503, "unavailable", "Try again later"


BY_STATUS: dict[int, type[Problem]] = {
    problem.status: problem
    for problem in (
        BadRequest, Unauthorized, Forbidden, NotFound, MethodNotAllowed, Conflict, PreconditionFailed, TooLarge,
        UnsupportedMediaType, Invalid, PreconditionRequired, TooManyRequests, Internal, Unavailable,
    )
}  # fmt: skip


def from_exception(error: BaseException) -> Problem | None:
    """The problem that ``error`` means, or ``None`` for a fault of ours (it becomes a 500 and is logged)."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, Http404 | ObjectDoesNotExist):
        return NotFound("There is no such object.")
    if isinstance(error, PermissionDenied):
        return Forbidden(str(error) or "You may not do this.")
    if isinstance(error, RequestDataTooBig):
        return TooLarge("The request is larger than this portal accepts.")
    if isinstance(error, SuspiciousOperation):
        return BadRequest("The request was refused.")
    if isinstance(error, models.ProtectedError | models.RestrictedError):
        return Conflict("Other objects still depend on it; remove them first.")
    if isinstance(error, RecursionError):
        return BadRequest("The request is nested too deeply.")
    if isinstance(error, DatabaseError):
        return _from_database(error)
    return None


def _from_database(error: DatabaseError) -> Problem | None:
    """PostgreSQL's refusals by SQLSTATE class (its appendix A)."""
    cause = error.__cause__
    if isinstance(cause, psycopg.errors.InsufficientPrivilege):
        # Row-level security refused what a scope should have refused before: a fault, and told to nobody.
        logger.error("row-level security refused a statement", exc_info=error)
        return NotFound("There is no such object.")
    if isinstance(error, IntegrityError):
        if isinstance(cause, psycopg.errors.UniqueViolation):
            return Conflict("An object with this name or key exists already.")
        return BadRequest("The values do not fit together, or point at an object that does not exist.")
    if isinstance(error, DataError):
        return BadRequest("A value is out of range or can't be stored.")
    if isinstance(cause, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
        return Unavailable("Another change holds the object. Try again.", retry_after=1)
    if isinstance(cause, psycopg.errors.QueryCanceled):
        return Unavailable("The database took too long. Try again.", retry_after=5)
    if isinstance(cause, psycopg.OperationalError):
        return Unavailable("The database does not answer. Try again.", retry_after=5)
    return None
