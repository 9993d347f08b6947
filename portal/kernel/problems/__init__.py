"""Refusals as RFC 9457 problems. Services raise them; the API answers JSON, pages show a sentence."""

from portal.kernel.problems.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    PreconditionFailed,
    PreconditionRequired,
    Problem,
    TooManyRequests,
    Unavailable,
    from_exception,
)

__all__ = [
    "BadRequest",
    "Conflict",
    "Forbidden",
    "Invalid",
    "NotFound",
    "PreconditionFailed",
    "PreconditionRequired",
    "Problem",
    "TooManyRequests",
    "Unavailable",
    "from_exception",
]
