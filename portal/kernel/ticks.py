"""Periodic work that is done once per slot, however many clocks tick (zero to three beats are harmless).

A tick first moves the task's slot row on; whoever moved it runs the task. So a second beat, a message that comes
twice, or a run by hand at the same time finds nothing to do. Slots are of UTC seconds by the database's clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from django.db import connection, transaction

from portal.kernel.ids import uuid7

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tick:
    """A periodic task: ``function`` once in each slot of ``every`` seconds."""

    name: str
    every: int
    function: Callable[[], object]


_ticks: dict[str, Tick] = {}


def every(seconds: int, name: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Register the decorated function as a periodic task.

    Args:
        seconds: length of a slot, a whole number of seconds.
        name: ``app.what``, at most 80 characters.
    """

    def decorate(function: Callable[[], object]) -> Callable[[], object]:
        _ticks[name] = Tick(name, seconds, function)
        return function

    return decorate


def registered_ticks() -> dict[str, Tick]:
    """All periodic tasks by name."""
    return dict(_ticks)


def run_tick(name: str) -> bool:
    """Run the task if nobody has run it in this slot; whether it was run.

    Raises:
        KeyError: no such task.
    """
    tick = _ticks[name]
    if not _take_slot(tick):
        return False
    error = ""
    try:
        tick.function()
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"[:2000]
        logger.exception("a periodic task failed", extra={"task": name})
    with connection.cursor() as cursor:
        cursor.execute("UPDATE kernel_tickslot SET finished_at = now(), last_error = %s WHERE task = %s", [error, name])
    return True


def _take_slot(tick: Tick) -> bool:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO kernel_tickslot AS t (id, task, slot_start, last_error)
            VALUES (%(id)s, %(task)s, to_timestamp(floor(extract(epoch FROM now()) / %(every)s) * %(every)s), '')
            ON CONFLICT (task) DO UPDATE SET slot_start = excluded.slot_start
            WHERE t.slot_start < excluded.slot_start
            RETURNING task
            """,
            {"id": uuid7(), "task": tick.name, "every": tick.every},
        )
        return cursor.fetchone() is not None
