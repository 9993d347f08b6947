"""Proof of life of long-running processes, in the database: a worker that is silent is seen, whatever its ping says."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db import DatabaseError, connection

from portal.kernel import ticks
from portal.kernel.ids import uuid7
from portal.kernel.workqueue.claims import owner

logger = logging.getLogger(__name__)

EVERY_SECONDS = 15
SILENT_SECONDS = 60
"""A kind of which nobody was heard for so long is silent."""


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


def is_alive(kind: str) -> bool:
    """Whether an instance of ``kind`` gave a sign of life lately, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM kernel_heartbeat"
            " WHERE kind = %s AND seen_at > now() - make_interval(secs => %s))",
            [kind, SILENT_SECONDS],
        )
        row = cursor.fetchone()
    return bool(row and row[0])


def forget(kind: str) -> None:
    """This process ends in order: it is not to be missed."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM kernel_heartbeat WHERE kind = %s AND instance = %s", [kind, owner()])


def keep_beating(kind: str) -> Callable[[], None]:
    """Give signs of life from a thread of its own; what ends it (and takes the last sign back) is the answer.

    While the database is away nothing is told, and nothing breaks.
    """
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            _quietly(lambda: beat(kind))
            ended.wait(EVERY_SECONDS)

    thread = threading.Thread(target=run, name=f"heartbeat-{kind}", daemon=True)
    thread.start()

    def end() -> None:
        ended.set()
        thread.join(2)
        _quietly(lambda: forget(kind))

    return end


def _quietly(tell: Callable[[], None]) -> None:
    try:
        tell()
    except DatabaseError as error:
        logger.warning("a sign of life could not be given", extra={"why": str(error)})
    finally:
        connection.close()


@ticks.every(EVERY_SECONDS, "kernel.worker_heartbeat")
def worker_heartbeat() -> None:
    """Runs in a worker: it proves clock, broker, worker and database in one."""
    beat("tasks", "clock, broker, worker")


@ticks.every(3600, "kernel.clean")
def clean() -> None:
    """Remove what is of no use any more: processes silent for a week, sessions that are over."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM kernel_heartbeat WHERE seen_at < now() - interval '7 days'")
        cursor.execute("DELETE FROM django_session WHERE expire_date < now()")
