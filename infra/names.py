"""Names and labels of what the portal makes in a cluster. One prefix, one function.

A derived name is a readable head and ten hex digits of a SHA-256 over all its parts, so two different lists
of parts give two different names however much their heads look alike or are cut.
"""

import hashlib
import re
from collections.abc import Mapping
from uuid import UUID

LABEL_PREFIX = "aifactory.dev/"
FIELD_MANAGER = "aifactory-portal"

MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_TENANT = LABEL_PREFIX + "tenant"
LABEL_OWNER_KIND = LABEL_PREFIX + "owner-kind"
LABEL_OWNER = LABEL_PREFIX + "owner"
LABEL_DEPLOYMENT = LABEL_PREFIX + "deployment"
LABEL_REPLICA = LABEL_PREFIX + "replica"

WORKLOAD_LIMIT = 40
"""A Deployment's pods get 17 characters more; with 40 they and their labels stay under 63."""

_HASH_DIGITS = 10
_SHORTEST_LIMIT = 1 + 1 + _HASH_DIGITS
_NOT_ALLOWED = re.compile(r"[^a-z0-9]+")


def derived_name(*parts: str, limit: int = WORKLOAD_LIMIT) -> str:
    """A DNS label (RFC 1035: starts with a letter) of at most ``limit`` characters made from ``parts``.

    Raises:
        ValueError: no part was given, or ``limit`` leaves no room for a letter, a dash and the hash.
    """
    if not parts or limit < _SHORTEST_LIMIT:
        raise ValueError(f"derived_name() needs at least one part and a limit of {_SHORTEST_LIMIT} or more.")
    # Lengths go into the hash, so that ("ab", "c") and ("a", "bc") differ.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    digits = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    head = _NOT_ALLOWED.sub("-", "-".join(parts).lower()).strip("-")
    if not head[:1].isalpha():
        head = f"x{head}"
    return f"{head[: limit - _HASH_DIGITS - 1].rstrip('-')}-{digits}"


def workload_name(*parts: str) -> str:
    """The name of a Deployment, Service or other workload object: at most 40 characters."""
    return derived_name(*parts, limit=WORKLOAD_LIMIT)


def owner_labels(owner_kind: str, owner_id: UUID, tenant_id: UUID | None) -> dict[str, str]:
    """The labels by which an object in a cluster is known as ours, and whose it is."""
    labels = {MANAGED_BY: FIELD_MANAGER, LABEL_OWNER_KIND: owner_kind, LABEL_OWNER: str(owner_id)}
    if tenant_id is not None:
        labels[LABEL_TENANT] = str(tenant_id)
    return labels


def is_ours(labels: Mapping[str, str]) -> bool:
    """Whether an object with these labels was made by the portal."""
    return labels.get(MANAGED_BY) == FIELD_MANAGER and LABEL_OWNER in labels


def selector(labels: Mapping[str, str]) -> str:
    """``labels`` as a label selector for a list or a watch."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
