"""Marking: "look at this object", written in the transaction that changed it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from django.db import connection, transaction

from portal.kernel.ids import uuid7

Cause = Literal["spec", "watch", "resync"]


@dataclass(frozen=True)
class Mark:
    """One object to look at; see :func:`mark`."""

    kind: str
    object_id: UUID
    cluster_id: UUID | None = None
    tenant_id: UUID | None = None
    cause: Cause = "spec"

    @property
    def key(self) -> tuple[str, str, str]:
        """What the row is unique by."""
        return (self.kind, str(self.object_id), str(self.cluster_id or ""))


# A spec change ends the back-off: people who corrected something must not wait for it. A watch mark does not,
# or an object that crashes would be looked at again for each event that its own crash causes. Nothing is sent for a
# row that is not due yet, so it counts as not dispatched, and the tick sends it as soon as it is.
_UPSERT = """
INSERT INTO kernel_workitem AS w
    (id, kind, object_id, cluster_id, tenant_id, cause, mark_seq, spec_seq, claimed_seq, next_attempt_at,
     dispatched_at, attempts, lease_token, lease_owner, last_error)
SELECT id, kind, object_id, cluster_id, tenant_id, cause, 1, CASE WHEN cause = 'spec' THEN 1 ELSE 0 END, 0, now(),
     now(), 0, 0, '', ''
FROM unnest(%s::uuid[], %s::text[], %s::uuid[], %s::uuid[], %s::uuid[], %s::text[])
    AS m (id, kind, object_id, cluster_id, tenant_id, cause)
ON CONFLICT (kind, object_id, cluster_id) DO UPDATE SET
    mark_seq = w.mark_seq + 1,
    spec_seq = CASE WHEN excluded.cause = 'spec' THEN w.mark_seq + 1 ELSE w.spec_seq END,
    cause = excluded.cause,
    tenant_id = coalesce(excluded.tenant_id, w.tenant_id),
    marked_at = now(),
    dispatched_at = CASE
        WHEN excluded.cause = 'spec' OR w.next_attempt_at <= now() OR greatest(now(), w.not_before) <= now() THEN now()
    END,
    attempts = CASE WHEN excluded.cause = 'spec' THEN 0 ELSE w.attempts END,
    not_before = CASE WHEN excluded.cause = 'spec' THEN NULL ELSE w.not_before END,
    next_attempt_at = CASE
        WHEN excluded.cause = 'spec' THEN least(coalesce(w.next_attempt_at, now()), now())
        ELSE least(coalesce(w.next_attempt_at, 'infinity'), greatest(now(), w.not_before))
    END
RETURNING w.id, w.next_attempt_at <= now() AND (w.lease_until IS NULL OR w.lease_until < now())
"""


def mark(
    kind: str,
    object_id: UUID,
    *,
    cluster_id: UUID | None = None,
    tenant_id: UUID | None = None,
    cause: Cause = "spec",
) -> None:
    """Have an object looked at, once the surrounding transaction commits.

    Args:
        kind: of the reconciler.
        cluster_id: where its work is done; limits how much runs against one cluster at a time.
        tenant_id: for showing the queue to whom it belongs.
        cause: ``spec``: somebody changed the wish (now, whatever the back-off says); ``watch``: the cluster told
            (not before the back-off is over); ``resync``: the slow comparison found a difference (as ``watch``).
    """
    mark_many([Mark(kind, object_id, cluster_id, tenant_id, cause)])


def mark_many(marks: Iterable[Mark]) -> None:
    """Mark many objects with one statement, in the order of their keys (so two calls can't deadlock).

    An object that is named twice is marked once; ``spec`` beats the other causes.
    """
    unique: dict[tuple[str, str, str], Mark] = {}
    for one in marks:
        if one.key not in unique or one.cause == "spec":
            unique[one.key] = one
    rows = [unique[key] for key in sorted(unique)]
    if not rows:
        return
    # Without a savepoint: what can't be marked must not be committed either.
    with transaction.atomic(savepoint=False), connection.cursor() as cursor:
        cursor.execute(
            _UPSERT,
            [
                [uuid7() for _ in rows],
                [row.kind for row in rows],
                [row.object_id for row in rows],
                [row.cluster_id for row in rows],
                [row.tenant_id for row in rows],
                [row.cause for row in rows],
            ],
        )
        due = [str(item_id) for item_id, is_due in cursor.fetchall() if is_due]
    if due:
        transaction.on_commit(lambda: _hurry(due), robust=True)


def _hurry(item_ids: list[str]) -> None:
    from portal.kernel.workqueue.runner import send

    send(item_ids)
