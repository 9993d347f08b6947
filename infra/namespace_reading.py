"""What a Namespace object says, as plain data. Pure: no Django, no Kubernetes client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from portal.kernel.clock import as_utc, parse_rfc3339


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """A namespace as it was seen at ``seen_at``. ``labels``: all of them; what is stored is chosen later.

    ``deleted``: it is gone; ``unwatched_since``: it left at some moment since then.
    """

    uid: str
    name: str
    resource_version: int
    labels: tuple[tuple[str, str], ...]
    created_at: datetime | None
    seen_at: datetime
    deleted: bool = False
    unwatched_since: datetime | None = None


def read_namespace(
    thing: Mapping[str, Any], *, seen_at: datetime, deleted: bool = False, unwatched_since: datetime | None = None
) -> NamespaceFacts:
    """One Namespace object (core/v1, JSON as the API server sends it).

    Raises:
        ValueError: it has no uid or name, or a time in it can't be read.
    """
    meta = thing.get("metadata") or {}
    uid, name = meta.get("uid"), meta.get("name")
    if not isinstance(uid, str) or not uid or not isinstance(name, str) or not name:
        raise ValueError(f"namespace {name or '?'} ({uid or 'no uid'}) can't be read: metadata.uid or name is missing")
    try:
        created = parse_rfc3339(str(meta["creationTimestamp"])) if meta.get("creationTimestamp") else None
        version = int(meta.get("resourceVersion") or 0)
        labels = tuple(sorted((str(key), str(value)) for key, value in (meta.get("labels") or {}).items()))
    except (ValueError, AttributeError) as error:
        raise ValueError(f"namespace {name} ({uid}) can't be read: {error}") from error
    return NamespaceFacts(
        uid=uid,
        name=name,
        resource_version=version,
        labels=labels,
        created_at=created,
        seen_at=as_utc(seen_at),
        deleted=deleted,
        unwatched_since=as_utc(unwatched_since) if deleted and unwatched_since else None,
    )
