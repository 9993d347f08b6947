"""Who is to look again after something of a cluster changed: room was added, a pause ended, it was given up.

What waits for a place is the business of the apps above, so ``tenants`` registers itself at start-up.
"""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from portal.kernel.workqueue import Mark


class Concerned(Protocol):
    """Marks for the work queue."""

    def __call__(self, cluster_id: UUID) -> list[Mark]:
        """Runs within the transaction that changed the cluster, and opens a system scope where it needs one."""
        ...


def _nobody(cluster_id: UUID) -> list[Mark]:
    return []


class _Registered:
    concerned: Concerned = staticmethod(_nobody)


def register_concerned(concerned: Concerned) -> None:
    """Have ``concerned`` asked from now on (called once, when the app is ready)."""
    _Registered.concerned = staticmethod(concerned)


def concerned_by(cluster_id: UUID) -> list[Mark]:
    """The marks to set, together with one's own, as the last thing of the transaction."""
    return _Registered.concerned(cluster_id)
