"""Optimistic locking over HTTP: ``ETag: "<generation>-<row version>"`` and ``If-Match``."""

from collections.abc import Mapping

from portal.kernel.problems import PreconditionFailed, PreconditionRequired


def etag(generation: int, row_version: int = 0) -> str:
    """The entity tag of an object, with its quotes."""
    return f'"{generation}-{row_version}"'


def require_if_match(headers: Mapping[str, str], current: str) -> None:
    """Refuse a change of an object that is not the one that was read. Call it with the row locked.

    Args:
        headers: the request's headers.
        current: :func:`etag` of the locked row. ``If-Match: *`` accepts any.

    Raises:
        PreconditionRequired: no ``If-Match`` (428).
        PreconditionFailed: another version (412).
    """
    wanted = headers.get("If-Match", "").strip()
    if not wanted:
        raise PreconditionRequired("Send If-Match with the ETag of the version you have read.")
    # If-Match compares strongly (RFC 9110 §13.1.1): a weak tag never matches.
    if wanted != "*" and current not in [tag.strip() for tag in wanted.split(",")]:
        raise PreconditionFailed("Somebody changed it since you read it. Read it again, then repeat your change.")
