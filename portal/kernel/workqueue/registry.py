"""Reconcilers by kind, and what they answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from portal.kernel.workqueue.claims import Claimed


@dataclass(frozen=True)
class Done:
    """Wish and reality agree; look again when somebody marks it."""


@dataclass(frozen=True)
class RetryAfter:
    """Nothing failed, but it is not done: look again after ``seconds`` (waiting for quota, for a pod)."""

    seconds: float
    message: str = ""


Outcome = Done | RetryAfter
Reconcile = Callable[["Claimed"], Outcome]
StalledHook = Callable[["Claimed", str], None]


@dataclass(frozen=True)
class Reconciler:
    """How a kind is worked on. ``on_stalled(item, message)`` sets the object's ``Stalled`` condition."""

    kind: str
    reconcile: Reconcile
    lease_seconds: int
    on_stalled: StalledHook | None


_reconcilers: dict[str, Reconciler] = {}


def register(
    kind: str, *, lease_seconds: int = 90, on_stalled: StalledHook | None = None
) -> Callable[[Reconcile], Reconcile]:
    """Make the decorated function the reconciler of ``kind``.

    Args:
        kind: at most 40 characters.
        lease_seconds: how long a claim is good for; longer than Celery's hard limit of a task.
        on_stalled: called (outside any scope) when the object has failed many times in a row.

    Raises:
        ValueError: another function is registered for the kind.
    """

    def decorate(reconcile: Reconcile) -> Reconcile:
        known = _reconcilers.get(kind)
        if known is not None and known.reconcile is not reconcile:
            raise ValueError(f"The kind {kind} has a reconciler already: {known.reconcile.__qualname__}.")
        _reconcilers[kind] = Reconciler(kind, reconcile, lease_seconds, on_stalled)
        return reconcile

    return decorate


def unregister(kind: str) -> None:
    """Forget a kind (tests)."""
    _reconcilers.pop(kind, None)


def registered(kind: str) -> Reconciler | None:
    """The kind's reconciler, or ``None`` (an item of a kind that this version does not know waits)."""
    return _reconcilers.get(kind)


def kinds() -> list[str]:
    """All kinds that can be worked on here."""
    return sorted(_reconcilers)
