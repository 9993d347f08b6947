"""Proof of life of long-running processes, in the database: a worker that is silent is seen, whatever its ping says."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.db import connection

from portal.kernel import ticks
from portal.kernel.ids import uuid7
from portal.kernel.workqueue.claims import owner


def beat(kind: str, instance: str = "", detail: dict[str, Any] | None = None) -> None:
    """Say that ``instance`` (default: this process) of ``kind`` is alive."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO kernel_heartbeat (id, kind, instance, detail) VALUES (%s, %s, %s, %s::jsonb)"
            " ON CONFLICT (kind, instance) DO UPDATE SET seen_at = now(), detail = excluded.detail",
            [uuid7(), kind, instance or owner(), json.dumps(detail or {})],
        )


def last_seen(kind: str) -> datetime | None:
    """When any instance of ``kind`` was last alive, or ``None`` if none ever was."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(seen_at) FROM kernel_heartbeat WHERE kind = %s", [kind])
        row = cursor.fetchone()
    return None if row is None else row[0]


@ticks.every(15, "kernel.worker_heartbeat")
def worker_heartbeat() -> None:
    """Runs in a worker: it proves clock, broker, worker and database in one."""
    beat("worker")


@ticks.every(3600, "kernel.clean")
def clean() -> None:
    """Remove what is of no use any more: answers kept for a day, processes silent for a week."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM kernel_idempotencyrecord WHERE created_at < now() - interval '24 hours'")
        cursor.execute("DELETE FROM kernel_heartbeat WHERE seen_at < now() - interval '7 days'")
        cursor.execute("DELETE FROM django_session WHERE expire_date < now()")
