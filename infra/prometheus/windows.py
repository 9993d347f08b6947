"""Long times cut into bounded windows, read one after another and gently."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from infra.prometheus.errors import PrometheusError

_T = TypeVar("_T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_WAIT = 60.0


@dataclass(frozen=True)
class Window:
    """``[start, end)``, UTC."""

    start: datetime
    end: datetime

    @property
    def length(self) -> timedelta:
        """How long it is."""
        return self.end - self.start


def next_window(start: datetime, end: datetime, size: timedelta) -> Window:
    """The window that begins at ``start`` and ends at the next multiple of ``size`` (counted from the epoch), at most
    at ``end``. So a time that is read again is cut in the same way."""
    edge = _EPOCH + ((start - _EPOCH) // size + 1) * size
    return Window(start, min(edge, end))


def windows(
    start: datetime,
    end: datetime,
    ask: Callable[[Window], _T],
    *,
    size: timedelta = timedelta(minutes=5),
    least: timedelta = timedelta(seconds=30),
    tries: int = 5,
    pause: float = 1.0,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[tuple[Window, _T]]:
    """``(window, ask(window))`` for each window of ``[start, end)`` in time's order.

    A window that is too large for the server is halved, down to ``least``; after a success the next ones grow again.
    A failure that may pass is tried again after ``pause``, 2 × ``pause``, 4 × … seconds, or as long as the server
    asks. What was yielded is done: whoever stores the window's end goes on from there.

    Args:
        tries: for one window.

    Raises:
        PrometheusError: one that does not pass, the last of ``tries``, or still too large at ``least``.
    """
    if end <= start:
        return
    at, current, failures = start, size, 0
    while at < end:
        window = next_window(at, end, current)
        try:
            found = ask(window)
        except PrometheusError as error:
            if error.too_large and current / 2 >= least:
                current = current / 2
                continue
            failures += 1
            if not error.retry or failures >= tries:
                raise
            sleep(min(error.retry_after or pause * 2 ** (failures - 1), LONGEST_WAIT))
            continue
        failures = 0
        yield window, found
        at, current = window.end, min(current * 2, size)
