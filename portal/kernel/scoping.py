"""Whose rows a piece of code may touch: two context managers are the only door.

``tenant_scope(*tenant_ids)`` and ``system_scope(reason)`` open a transaction and set two guards together:

1. the managers of :class:`TenantOwned` models (they filter by the scope, and *raise* where there is none);
2. PostgreSQL row-level security, by the transaction-local setting ``aif.tenants`` that the SQL function
   ``aif_tenants()`` reads (it raises where it is unset), or by ``SET LOCAL ROLE`` to a role that bypasses it.

The second holds where the first can't see: raw SQL, another manager, a forgotten join. Rules of nesting:

========================  ==========================================================================
inside a tenant scope     a tenant scope over a subset of its tenants (savepoint); no system scope
inside a system scope     both; a tenant scope narrows, and the system role comes back after it
inside a plain ``atomic`` both; what was set ends with the scope, though the transaction goes on
========================  ==========================================================================

A scope never outlives its ``with`` block, so nothing lazy may leave it: evaluate querysets inside.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar
from uuid import UUID

import django_scopes
from django.conf import settings
from django.db import connection, models, transaction
from django_scopes import ScopeError

from portal.kernel.ids import uuid7

__all__ = [
    "Global",
    "ScopeError",
    "ScopedManager",
    "TenantOwned",
    "current_tenants",
    "is_system",
    "scope_is_open",
    "system_scope",
    "tenant_scope",
]

_M = TypeVar("_M", bound=models.Model)


@dataclass(frozen=True)
class _Scope:
    """What is open: tenants, or the system (with the reason that was given)."""

    tenants: frozenset[UUID]
    reason: str | None


def _current() -> _Scope | None:
    state: dict[str, Any] = django_scopes.get_scope()
    return state.get("aif")


def current_tenants() -> frozenset[UUID]:
    """The tenants of the open tenant scope; empty in a system scope.

    Raises:
        ScopeError: no scope is open.
    """
    scope = _current()
    if scope is None:
        raise ScopeError("No tenant scope is open. Wrap this code in tenant_scope(...) or system_scope(...).")
    return scope.tenants


def is_system() -> bool:
    """True inside ``system_scope``."""
    scope = _current()
    return scope is not None and scope.reason is not None


def scope_is_open() -> bool:
    """True inside either scope (the test suite checks that none is left open)."""
    return _current() is not None


_system_hooks: list[Callable[[str], None]] = []


def on_system_scope(hook: Callable[[str], None]) -> None:
    """Have ``hook(reason)`` called inside each outermost system scope (the audit registers itself here)."""
    if hook not in _system_hooks:
        _system_hooks.append(hook)


@contextmanager
def tenant_scope(*tenant_ids: UUID) -> Generator[None]:
    """Open a transaction in which exactly the rows of these tenants can be read and written.

    Args:
        tenant_ids: one or more (a portfolio role reads several).

    Raises:
        ScopeError: no tenant was named, or the surrounding tenant scope does not contain them all.
    """
    if not tenant_ids or not all(isinstance(tenant_id, UUID) for tenant_id in tenant_ids):
        raise ScopeError("tenant_scope() needs at least one tenant id (a UUID).")
    wanted = frozenset(tenant_ids)
    outer = _current()
    if outer is not None and outer.reason is None and not wanted <= outer.tenants:
        raise ScopeError("A tenant scope can't be widened: it is open for other tenants than asked for.")
    with _enter(_Scope(wanted, None)):
        yield


@contextmanager
def system_scope(reason: str) -> Generator[None]:
    """Open a transaction that sees every tenant's rows: for workers and pages of platform roles only.

    Args:
        reason: why, in a few words; it is written to the audit when a person or a token is behind it.

    Raises:
        ScopeError: no reason, or a tenant scope is open (what runs for a tenant can't become the system).
    """
    if not reason.strip():
        raise ScopeError("system_scope() needs a reason.")
    outer = _current()
    if outer is not None and outer.reason is None:
        raise ScopeError(
            f"system_scope({reason!r}) inside a tenant scope is refused. Leave the tenant scope first, or read "
            "only tables that are declared global."
        )
    with _enter(_Scope(frozenset(), reason)):
        if outer is None:
            for hook in _system_hooks:
                hook(reason)
        yield


@contextmanager
def _enter(scope: _Scope) -> Generator[None]:
    outer = _current()
    nested = connection.in_atomic_block
    same = outer is not None and (outer.tenants, outer.reason is None) == (scope.tenants, scope.reason is None)
    try:
        with transaction.atomic():
            if not same:  # else what the outer scope set holds here too
                _apply(scope)
            carrier = (
                django_scopes.scope(aif=scope, tenant=sorted(scope.tenants))
                if scope.reason is None
                else django_scopes.scope(aif=scope, _enabled=False)
            )
            # The Python guard ends before the commit: on_commit hooks run without a scope.
            with carrier:
                yield
    finally:
        # A rollback undoes SET LOCAL, a released savepoint does not: put the outer scope's settings back.
        if nested and not same and not connection.needs_rollback and connection.in_atomic_block:
            _apply(outer)


def _apply(scope: _Scope | None) -> None:
    system = scope is not None and scope.reason is not None
    tenants = "" if scope is None or system else "{" + ",".join(sorted(map(str, scope.tenants))) + "}"
    # Setting the parameter "role" is SET LOCAL ROLE; "none" is the role that the session logged in with.
    role = settings.AIF_DB_SYSTEM_ROLE if system else "none"
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('role', %s, true), set_config('aif.tenants', %s, true)", [role, tenants])


class ScopedQuerySet(models.QuerySet[_M]):
    """A queryset of a tenant-owned model; made by :class:`ScopedManager`, which has filtered it already."""

    def bulk_create(self, objs: Iterable[_M], *args: Any, **kwargs: Any) -> list[_M]:
        objs = list(objs)
        for obj in objs:
            _require_in_scope(obj)
        return super().bulk_create(objs, *args, **kwargs)


class ScopedManager(models.Manager[_M]):
    """Filters by the open scope and raises :class:`ScopeError` where there is none.

    It raises when a queryset is *made*; the library's own manager only raises for the methods that it lists
    (``exists()`` is not among them), so that one is not used.
    """

    def get_queryset(self) -> ScopedQuerySet[_M]:
        queryset: ScopedQuerySet[_M] = ScopedQuerySet(self.model, using=self._db)
        tenants = current_tenants()
        return queryset if is_system() else queryset.filter(tenant_id__in=tenants)

    def none(self) -> ScopedQuerySet[_M]:
        """An empty queryset; needs no scope (schema generation, forms before they are bound)."""
        queryset: ScopedQuerySet[_M] = ScopedQuerySet(self.model, using=self._db)
        return queryset.none()


def _require_in_scope(obj: models.Model) -> None:
    tenant_id: UUID | None = obj.tenant_id  # type: ignore[attr-defined]  # every TenantOwned has one
    if not is_system() and tenant_id not in current_tenants():
        raise ScopeError(f"This {obj._meta.verbose_name} belongs to a tenant outside the open scope.")


class Global(models.Model):
    """Base of every table that is not a tenant's: it has no row-level security, and no secret of a tenant."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)

    class Meta:
        abstract = True


class TenantOwned(models.Model):
    """Base of every table whose rows a tenant may read.

    A subclass declares ``tenant`` itself (``ForeignKey("tenants.Tenant", on_delete=PROTECT,
    related_name="+")``; below the ``tenants`` app a plain ``tenant_id = UUIDField()``), starts its unique
    constraints with it, and its migration adds ``EnableRLS`` and, for each key to another tenant-owned table,
    ``TenantForeignKey`` (:mod:`portal.kernel.rls`). The scope holds for the default *and* the base manager, so
    also for ``child.parent``, ``refresh_from_db()`` and cascades.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)

    objects: ClassVar[ScopedManager[Self]] = ScopedManager()

    class Meta:
        abstract = True
        base_manager_name = "objects"

    def save(self, *args: Any, **kwargs: Any) -> None:
        _require_in_scope(self)
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        _require_in_scope(self)
        return super().delete(*args, **kwargs)
