"""Claiming: lease, fencing token, and the guard of status writes. Only the database's clock counts."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from portal.kernel.scoping import system_scope
from portal.kernel.workqueue.registry import kinds, registered

# First halves of our advisory lock keys (the second is a hash of the id).
_LOCK_ITEM = 0x61694601
_LOCK_CLUSTER = 0x61694602


class LeaseLost(Exception):
    """Somebody else has, or may soon have, claimed the item: stop, write nothing."""


@dataclass(frozen=True)
class Claimed:
    """An item that this process works on, until its lease ends.

    Attributes:
        token: the fencing token; a later claim has a higher one.
        lease_until: when the lease ends, by the database's clock.
        attempts: failures in a row before this run.
    """

    item_id: UUID
    kind: str
    object_id: UUID
    cluster_id: UUID | None
    tenant_id: UUID | None
    token: int
    claimed_seq: int
    attempts: int
    lease_until: datetime

    def require(self, seconds: float) -> None:
        """Make sure that the lease outlasts the next request. Call it before every write to a cluster.

        Args:
            seconds: the request's timeout.

        Raises:
            LeaseLost: the lease ends sooner, or is somebody else's.
        """
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT lease_token = %s AND lease_until >= clock_timestamp() + make_interval(secs => %s)"
                " FROM kernel_workitem WHERE id = %s",
                [self.token, seconds, self.item_id],
            )
            row = cursor.fetchone()
        if row is None or not row[0]:
            raise LeaseLost(f"The lease of {self.kind} {self.object_id} does not outlast {seconds:g} s more.")

    @contextmanager
    def fenced(self) -> Generator[None]:
        """A system scope whose writes are kept only while the token is the newest.

        Claiming takes the item's advisory lock alone, this block shares it: no claim can happen between the
        check and the commit. (Not the row's lock: services lock their object and then mark the item, this block
        would take the two in the other order.)

        Raises:
            LeaseLost: the item was claimed again, or is gone.
        """
        with system_scope(f"reconcile {self.kind}"):
            with connection.cursor() as cursor:
                # Two statements, sent together: the second sees what was committed while the first waited.
                cursor.execute(
                    "SELECT pg_advisory_xact_lock_shared(%s, hashtext(%s));"
                    " SELECT lease_token FROM kernel_workitem WHERE id = %s",
                    [_LOCK_ITEM, str(self.item_id), self.item_id],
                )
                cursor.nextset()
                row = cursor.fetchone()
            if row is None or row[0] != self.token:
                raise LeaseLost(f"{self.kind} {self.object_id} was claimed by another worker.")
            yield


_CLAIM = """
UPDATE kernel_workitem SET
    lease_token = lease_token + 1,
    lease_owner = %s,
    lease_until = clock_timestamp() + make_interval(secs => %s),
    claimed_seq = mark_seq,
    -- a lease that ran out was a worker that died or was killed for its memory: it counts as a failure
    attempts = attempts + CASE WHEN lease_until IS NULL THEN 0 ELSE 1 END
WHERE id = %s
RETURNING object_id, cluster_id, tenant_id, lease_token, claimed_seq, attempts, lease_until
"""


def claim(item_id: UUID) -> Claimed | None:
    """Claim one item, or ``None``: not due, leased, being claimed, its cluster is at its limit, unknown kind."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT kind, cluster_id FROM kernel_workitem WHERE id = %s AND next_attempt_at <= clock_timestamp()"
            " AND (lease_until IS NULL OR lease_until < clock_timestamp()) FOR UPDATE SKIP LOCKED",
            [item_id],
        )
        row = cursor.fetchone()
        if row is None:
            return None
        kind, cluster_id = row
        reconciler = registered(kind)
        if reconciler is None:
            return None
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))", [_LOCK_ITEM, str(item_id)])
        if not _true(cursor.fetchone()):
            return None
        if cluster_id is not None and not _cluster_has_room(cluster_id):
            # It is not for this worker to wait: the next tick sends it again when there is room.
            cursor.execute("UPDATE kernel_workitem SET dispatched_at = NULL WHERE id = %s", [item_id])
            return None
        cursor.execute(_CLAIM, [owner(), reconciler.lease_seconds, item_id])
        return Claimed(item_id, kind, *cursor.fetchone())


def _cluster_has_room(cluster_id: UUID) -> bool:
    # The lock makes the count exact; it is held for the rest of this short transaction.
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(%s, hashtext(%s));"
            " SELECT count(*) < %s FROM kernel_workitem WHERE cluster_id = %s AND lease_until >= clock_timestamp()",
            [_LOCK_CLUSTER, str(cluster_id), settings.AIF_CLUSTER_CONCURRENCY, cluster_id],
        )
        cursor.nextset()
        return _true(cursor.fetchone())


def due_ids(limit: int, *, undispatched_for: float | None = None) -> list[UUID]:
    """Ids of items that can be claimed, the longest due first, no more per cluster than it has room for.

    Args:
        undispatched_for: leave out what a worker was told of less than so many seconds ago.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH live AS (
                SELECT cluster_id, count(*) AS leases FROM kernel_workitem
                WHERE lease_until >= now() AND cluster_id IS NOT NULL GROUP BY cluster_id
            ), due AS (
                SELECT w.id, w.cluster_id, w.next_attempt_at, coalesce(l.leases, 0) AS leases,
                    row_number() OVER (PARTITION BY w.cluster_id ORDER BY w.next_attempt_at, w.id) AS place
                FROM kernel_workitem w LEFT JOIN live l ON l.cluster_id = w.cluster_id
                WHERE w.next_attempt_at <= now() AND (w.lease_until IS NULL OR w.lease_until < now())
                    AND w.kind = ANY(%(kinds)s)
                    AND (%(age)s::float8 IS NULL OR w.dispatched_at IS NULL
                        OR w.dispatched_at < now() - make_interval(secs => %(age)s::float8))
            )
            SELECT id FROM due WHERE cluster_id IS NULL OR leases + place <= %(cap)s
            ORDER BY next_attempt_at, id LIMIT %(limit)s
            """,
            {"kinds": kinds(), "age": undispatched_for, "cap": settings.AIF_CLUSTER_CONCURRENCY, "limit": limit},
        )
        return [row[0] for row in cursor.fetchall()]


def is_claimed(kind: str, object_id: UUID) -> bool:
    """Whether a run of the object is under way. One that begins after this was asked sees all that is committed now."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM kernel_workitem WHERE kind = %s AND object_id = %s AND lease_until >= clock_timestamp()",
            [kind, object_id],
        )
        return cursor.fetchone() is not None


def claim_due(limit: int) -> list[Claimed]:
    """Claim up to ``limit`` items for this process; each is committed on its own."""
    return [item for item_id in due_ids(limit) if (item := claim(item_id)) is not None]


def owner() -> str:
    """This process, for people who read the queue."""
    return f"{socket.gethostname()}:{os.getpid()}"[:120]


def _true(row: object) -> bool:
    return bool(isinstance(row, tuple) and row[0])
