"""Reading the groups, roles and organizations out of an identity provider's claims. Pure, no Django.

Shapes that were seen (Keycloak 26): a list of texts (groups, roles), one text, a map from organization to what is
known of it, and a list of such maps. A claim that is absent says nothing; one that is empty says *none*.

Keycloak leaves a claim out where it would be empty: somebody who is taken out of their last group has no ``groups`` at
all, as if its mapper had been removed. So the client's tokens say themselves which claims are complete, in a claim with
a fixed value (``complete_claims``: deploy/keycloak/realm.json): one that is named there and absent is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

COMPLETE = "complete_claims"
MOST_VALUES = 5_000
"""Values of one claim that are looked at; a claim with more is not readable."""


class Rule(Protocol):
    """What matching needs of a mapping."""

    match: str
    value: str


@dataclass(frozen=True)
class Claim:
    """The values of one claim. ``None``: it is absent, or of a shape that can't be read; nothing follows from it."""

    values: tuple[str, ...] | None


def read_claim(claims: Mapping[str, Any], path: str) -> Claim:
    """The values at a path of names with dots between them (``realm_access.roles``).

    Names may hold dots themselves: the longest that is there is taken.
    """
    found = _descend(claims, path.split("."))
    if found is None:
        complete = claims.get(COMPLETE)
        return Claim(() if isinstance(complete, list) and path in complete else None)
    return Claim(_values(found))


def _descend(node: Any, names: Sequence[str]) -> Any:
    if not names:
        return node
    if not isinstance(node, Mapping):
        return None
    for end in range(len(names), 0, -1):
        name = ".".join(names[:end])
        if name in node:
            return _descend(node[name], names[end:])
    return None


def _values(node: Any) -> tuple[str, ...] | None:
    found: list[str] = []
    if isinstance(node, str):
        found = [node]
    elif isinstance(node, Mapping):
        found = list(_of_map(node))
    elif isinstance(node, list):
        for item in node:
            if isinstance(item, str):
                found.append(item)
            elif isinstance(item, Mapping):
                found += _of_map(item)
            else:
                return None
    else:
        return None
    if len(found) > MOST_VALUES:
        return None
    return tuple(dict.fromkeys(value for value in found if value))


def _of_map(organizations: Mapping[str, Any]) -> Iterable[str]:
    """Names of organizations, and the groups within them as ``<organization>/<group>``."""
    for name, about in organizations.items():
        yield str(name)
        groups = about.get("groups") if isinstance(about, Mapping) else None
        for group in groups if isinstance(groups, list) else []:
            if isinstance(group, str):
                yield f"{name}/{group.strip('/')}"


def matching(values: Iterable[str], rule: Rule) -> str | None:
    """The value that the rule matches; None: it matches none.

    A prefix ends where a name ends: ``/ml-team`` matches ``/ml-team/owners``, not ``/ml-team-2``.
    """
    for value in values:
        if value == rule.value or (rule.match == "prefix" and value.startswith(f"{rule.value.rstrip('/')}/")):
            return value
    return None
