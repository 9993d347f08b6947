"""What a restored database needs before anything starts: what was in flight when the backup was made is in flight no
more, and what happened since then in the clusters is found out."""

from __future__ import annotations

from django.db import connection

from portal.kernel import audit
from portal.kernel.actors import Actor
from portal.kernel.scoping import system_scope

TOKEN_JUMP = 1_000_000_000
"""How far fencing tokens jump. A process that outlived the lost database has a token of before, however many were
given out after the backup, and so writes nothing to this one."""


def make_safe() -> list[str]:
    """Make it so, in one transaction; a sentence for each thing that was done.

    The watches' last proof and resourceVersion stay: what an API server still remembers is read as it happened, as
    after any time without a watcher; where it does not, a list ends the span with that reason, and what ended meanwhile
    is inferred and marked so.
    """
    with system_scope("after a restore"), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE kernel_workitem SET lease_token = lease_token + %s, lease_owner = '', lease_until = NULL,"
            " dispatched_at = NULL, not_before = NULL, attempts = 0, stalled_at = NULL, mark_seq = mark_seq + 1,"
            " spec_seq = mark_seq + 1, next_attempt_at = now()",
            [TOKEN_JUMP],
        )
        items = cursor.rowcount
        cursor.execute(
            "UPDATE infra_watchtarget SET lease_token = lease_token + %s, lease_owner = '', lease_until = NULL,"
            " not_before = NULL",
            [TOKEN_JUMP],
        )
        targets = cursor.rowcount
        cursor.execute("UPDATE infra_appliedobject SET drift_suspected = true WHERE deleted_at IS NULL")
        objects = cursor.rowcount
        cursor.execute("DELETE FROM kernel_heartbeat")
        cursor.execute("DELETE FROM kernel_idempotencyrecord WHERE state = 'running'")
        audit.record(
            "restore",
            actor=Actor.system("command line"),
            tenant_id=None,
            object_kind="installation",
            object_id=None,
            object_name="",
            after={"work_items": items, "watches": targets, "objects_to_compare": objects},
        )
    return [
        f"{items} work items are looked at anew; leases of before count for nothing.",
        f"{targets} watches go on where the backup had them.",
        f"{objects} objects on clusters are compared with what was applied.",
    ]
