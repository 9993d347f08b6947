"""Removing the kernel's rows that nobody can use any more. Hourly, in small transactions; safe to repeat and to kill.

*Answers kept for a repeated request*: after 24 hours a key counts as new, so its row says nothing any more.

*Parked work items*: a row without work to do. Marking its object makes it anew, and a worker that still held the old
one finds it gone and stops (:class:`~portal.kernel.workqueue.claims.LeaseLost`). Those that have been parked for a
month are of objects that are gone, or to which nothing happens. Items that wait, are leased or stalled stay.
"""

from __future__ import annotations

from django.db import connection

from portal.kernel import ticks

BATCH = 5_000
"""Rows that one transaction removes."""

_ANSWERS = """
DELETE FROM kernel_idempotencyrecord WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM kernel_idempotencyrecord WHERE created_at < now() - interval '24 hours' LIMIT %s
    FOR UPDATE SKIP LOCKED))
"""

_PARKED = """
DELETE FROM kernel_workitem WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM kernel_workitem
    WHERE next_attempt_at IS NULL AND lease_until IS NULL AND stalled_at IS NULL
        AND greatest(finished_at, marked_at) < now() - interval '30 days'
    LIMIT %s FOR UPDATE SKIP LOCKED))
"""


@ticks.every(3600, "kernel.purge")
def purge() -> dict[str, int]:
    """Remove them; how many of each kind."""
    return {"answers": _remove(_ANSWERS), "parked": _remove(_PARKED)}


def _remove(statement: str) -> int:
    removed = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(statement, [BATCH])
            found: int = cursor.rowcount
            removed += found
            if found < BATCH:
                return removed
