"""Who does something: a person, a token, or a part of the system. And which request it happens in."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

PLATFORM_ADMIN = "platform-admin"
PLATFORM_VIEWER = "platform-viewer"
PLATFORM_FINANCE = "platform-finance"


@dataclass(frozen=True)
class Actor:
    """The one who asked. Services take it as ``actor`` and write it to the audit.

    Attributes:
        kind: ``user`` (a browser session), ``token`` (an API token, acting for ``user_id``) or ``system``.
        name: user name, token name or the part of the system (``reconciler``, ``watcher``, ``migration``).
        user_id: the person; of a token the person it was made for.
        token_id: the token, where there is one.
        platform_role: the person's; a token has it only with the scope ``platform``.
        tenant_id: a token that may act in one tenant only.
        scopes: a token's (``read``, ``write``, ``platform``).
    """

    kind: Literal["user", "token", "system"]
    name: str
    user_id: UUID | None = None
    token_id: UUID | None = None
    platform_role: str = ""
    tenant_id: UUID | None = None
    scopes: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def system(cls, name: str) -> Actor:
        """A part of the system; it has no platform role, its code decides what it does."""
        return cls(kind="system", name=name)

    @property
    def label(self) -> str:
        """For people: ``ml-owner``, ``ml-owner (token ci)``, ``system: watcher``."""
        return f"system: {self.name}" if self.kind == "system" else self.name

    @property
    def id(self) -> UUID | None:
        """The token's id if there is one, else the person's."""
        return self.token_id or self.user_id

    @property
    def is_system(self) -> bool:
        """True for parts of the system."""
        return self.kind == "system"

    def is_platform(self, *roles: str) -> bool:
        """Whether the actor holds one of the platform roles; without arguments: any of them.

        A platform-admin holds them all.
        """
        if not self.platform_role:
            return False
        return not roles or self.platform_role == PLATFORM_ADMIN or self.platform_role in roles

    def may_enter(self, tenant_id: UUID) -> bool:
        """False for a token that was made for another tenant (membership is checked elsewhere)."""
        return self.tenant_id is None or self.tenant_id == tenant_id


@dataclass
class RequestContext:
    """The HTTP request that is being answered."""

    request_id: str
    remote_address: str = ""
    actor: Actor | None = None
    audited_reasons: set[str] = field(default_factory=set)


_request: ContextVar[RequestContext | None] = ContextVar("aif_request", default=None)


def current_request() -> RequestContext | None:
    """The request's context, or ``None`` outside a request (workers, commands)."""
    return _request.get()


def current_request_id() -> str:
    """The request's id, or an empty text outside a request."""
    context = _request.get()
    return context.request_id if context else ""


@contextmanager
def request_context(context: RequestContext) -> Generator[RequestContext]:
    """Make ``context`` the current one for the block."""
    token = _request.set(context)
    try:
        yield context
    finally:
        _request.reset(token)
