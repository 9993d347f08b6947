"""Advisory locks between those who write usage and the one who closes a period.

A writer holds the shared lock of each tenant that it writes for, from before it draws a sequence number until it has
committed. The close reads the sequence, then takes and gives back each tenant's lock alone: after that every row
with a lower number has been committed, and whoever begins later draws a higher one. Without this, a row that drew a
lower number and commits later would be on no bill (decided in favour of this over marking each row as billed, which
cost five times the sum itself).
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from django.db import connection

_CLASS = 0x61_69_66_75
"""First key of our advisory locks (``aifu``); the second is a hash of the tenant's id."""

UNIT_COSTS = UUID(int=0)
"""Stands among the tenants for OpenCost's unit costs, which concern all of them and draw from the same sequence."""

_KEYS = "SELECT DISTINCT hashtext(id::text) AS key FROM unnest(%s::uuid[]) AS id ORDER BY key OFFSET 0"


def hold_usage_locks(tenant_ids: Collection[UUID]) -> None:
    """Take the writers' (shared) lock of these tenants until the transaction ends. Call it before writing usage."""
    assert connection.in_atomic_block, "the lock is held by a transaction"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT pg_advisory_xact_lock_shared(%s, key) FROM ({_KEYS}) AS keys",  # noqa: S608  # a constant
            [_CLASS, list(tenant_ids)],
        )


def drain_usage_writers(tenant_ids: Collection[UUID]) -> None:
    """Wait until no transaction that wrote usage of these tenants before this call is still open.

    Each lock is given back at once, so that no two are held together: nobody can be waited for in a circle.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT pg_advisory_lock(%s, key), pg_advisory_unlock(%s, key) FROM ({_KEYS}) AS keys",  # noqa: S608
            [_CLASS, _CLASS, list(tenant_ids)],
        )


def last_usage_seq() -> int:
    """The highest sequence number that was drawn so far (0: none)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM billing_usagerecord_seq")
        row = cursor.fetchone()
        assert row is not None
        return int(row[0])
