"""Change numbers of a cluster's evidence: handed out in the order in which they become visible."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from infra.models import ChangeCounter


@dataclass
class Changes:
    """The locked counter of one cluster; ``draw`` gives the next number. Good until the transaction ends."""

    cluster_id: UUID
    value: int
    drawn: int = 0

    def draw(self) -> int:
        """The next change number."""
        self.drawn += 1
        return self.value + self.drawn

    def save(self) -> None:
        """Store what was drawn; call it before the transaction ends."""
        if self.drawn:
            ChangeCounter.objects.filter(cluster_id=self.cluster_id).update(value=self.value + self.drawn)
            self.value, self.drawn = self.value + self.drawn, 0


def lock_changes(cluster_id: UUID) -> Changes:
    """Lock the cluster's counter until the transaction ends, and make it where it is new.

    Take it before any lock on evidence rows, and read those rows only afterwards: whoever writes evidence of the
    cluster waits here, so what was read then is what will be overwritten.
    """
    assert connection.in_atomic_block, "lock_changes() needs a transaction: the numbers are ordered by its lock"
    ChangeCounter.objects.bulk_create([ChangeCounter(cluster_id=cluster_id)], ignore_conflicts=True)
    counter = ChangeCounter.objects.select_for_update().get(cluster_id=cluster_id)
    return Changes(cluster_id, counter.value)
