"""What accounts need to know from the apps above; they register it when Django starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from portal.accounts.models import User

Bearer = Callable[[str], "tuple[User, str] | None"]
"""From the text of a bearer token that is none of ours: the active person and the client that sends it, or nobody."""

_bearer: list[Bearer] = []


def register_bearer(person_of: Bearer) -> None:
    """Have tokens that are none of ours looked at by ``person_of`` (an identity provider's access tokens)."""
    _bearer[:] = [person_of]


def person_of_bearer(text: str) -> tuple[User, str] | None:
    """Who sends this token, and through which client; None: it is not valid, or nobody is asked."""
    for person_of in _bearer:
        return person_of(text)
    return None


Membership = Callable[[UUID, UUID], bool]

_membership: list[Membership] = []


def register_membership(is_member: Membership) -> None:
    """Have ``is_member(user_id, tenant_id)`` asked before a token for a tenant is made."""
    _membership[:] = [is_member]


def is_member(user_id: UUID, tenant_id: UUID) -> bool:
    """Whether the person belongs to the tenant. Nobody does while nothing is registered."""
    return any(answer(user_id, tenant_id) for answer in _membership)
