"""Between followers, which read, and committers, which write: small batches, in order, bounded.

A follower blocks in the network, so it can't also keep the promise that what it read is written within 200 ms; and a
thread that holds a database connection for each of four hundred streams would be too many. So a few committers serve
all inboxes, each inbox by one of them at a time.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from django.db import DatabaseError, DataError, IntegrityError, close_old_connections, connection

from infra.watcher.commit import commit
from infra.watcher.items import Failed, Item
from infra.watcher.targets import Held, LeaseLost, Rewound
from portal.kernel.clock import utcnow

logger = logging.getLogger(__name__)

LINGER = 0.2
"""Seconds that an event may wait for others to be written with."""
LARGEST_BATCH = 500
CAPACITY = 2000
"""Items that an inbox holds before its follower has to wait."""
_RETRY_FIRST, _RETRY_LAST = 0.5, 30.0

Commit = Callable[[Held, Sequence[Item]], Held]


class Closed(Exception):
    """The inbox takes nothing more: the target is not ours any longer, or the process ends."""


class Inbox:
    """What was read of one target and is not written yet."""

    def __init__(self, held: Held, committers: Committers) -> None:
        self.held = held
        self._committers = committers
        self._items: list[Item] = []
        self._changed = threading.Condition()
        self._closed = False
        self._scheduled = False
        self._retry = _RETRY_FIRST

    def put(self, item: Item) -> None:
        """Add an item; waits while the inbox is full. Raises Closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < CAPACITY)
            if self._closed:
                raise Closed
            self._items.append(item)
            if self._scheduled:
                return
            self._scheduled = True
        self._committers.schedule(self, LINGER)

    def close(self) -> None:
        """Take nothing more and forget what is not written: it is read again from the stored version."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        return self._closed

    def write(self, do_commit: Commit) -> None:
        """Commit the oldest items; called by one committer at a time."""
        with self._changed:
            batch = self._items[:LARGEST_BATCH]
        delay = LINGER
        try:
            self.held = do_commit(self.held, batch)
            self._retry = _RETRY_FIRST
        except LeaseLost as lost:
            logger.info("%s", lost)
            self.close()
            return
        except Rewound as rewound:
            logger.warning("%s", rewound)
            self.close()
            return
        except Exception as error:
            if not isinstance(error, DatabaseError) or isinstance(error, DataError | IntegrityError):
                # This batch will never go through. Whoever follows next begins at the stored version.
                logger.exception("a batch of %s can't be written; the target is let go", self.held.resource)
                self._tell(do_commit)
                self.close()
                return
            # The same batch again: nothing of it was written.
            logger.exception("a batch could not be written; it is tried again in %.1f s", self._retry)
            connection.close()
            delay, self._retry = self._retry, min(_RETRY_LAST, self._retry * 2)
            batch = []
        with self._changed:
            del self._items[: len(batch)]
            self._changed.notify_all()
            self._scheduled = bool(self._items) and not self._closed
            again = self._scheduled
        if again:
            self._committers.schedule(self, delay if not batch or len(self._items) < LARGEST_BATCH else 0.0)

    def _tell(self, do_commit: Commit) -> None:
        sentence = f"What the cluster says of its {self.held.resource} can't be stored; see the watcher's log."
        not_before = utcnow() + timedelta(seconds=_RETRY_LAST)
        with suppress(DatabaseError, LeaseLost, Rewound):
            do_commit(self.held, [Failed("NotStored", sentence, self.held.failures + 1, not_before)])


class Committers:
    """A few threads with a database connection each, writing whichever inbox is due."""

    def __init__(self, threads: int = 4, do_commit: Commit = commit) -> None:
        self._due: list[tuple[float, int, Inbox]] = []
        self._changed = threading.Condition()
        self._number = 0
        self._stopping = False
        self._commit = do_commit
        self._threads = [threading.Thread(target=self._run, name=f"committer-{n}", daemon=True) for n in range(threads)]

    def start(self) -> None:
        """Begin to write."""
        for thread in self._threads:
            thread.start()

    def schedule(self, inbox: Inbox, delay: float) -> None:
        """Have the inbox written in ``delay`` seconds."""
        with self._changed:
            self._number += 1
            heapq.heappush(self._due, (time.monotonic() + delay, self._number, inbox))
            self._changed.notify()

    def stop(self, timeout: float) -> bool:
        """Write what is due and end; answers whether all of it was written in time."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _next(self) -> Inbox | None:
        with self._changed:
            while True:
                if self._stopping and not self._due:
                    return None
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(wait)

    def _run(self) -> None:
        try:
            while (inbox := self._next()) is not None:
                if not inbox.closed:
                    close_old_connections()
                    inbox.write(self._commit)
        finally:
            connection.close()
