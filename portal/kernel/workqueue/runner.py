"""Running: claim, reconcile, finish. And the tick that sends what the hints have missed."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable
from uuid import UUID

from django.db import InterfaceError, InternalError, OperationalError, connection, transaction

from portal.kernel.metrics.instruments import RECONCILE_SECONDS
from portal.kernel.workqueue.claims import Claimed, LeaseLost, claim, due_ids
from portal.kernel.workqueue.registry import Done, Outcome, RetryAfter, registered

logger = logging.getLogger(__name__)

LONGEST_BACKOFF = 300.0
STALLED_AFTER = 8
"""Failures in a row after which the object is told to be stalled (it is still tried)."""
RESEND_AFTER = 30.0
"""Seconds after which a message that led to nothing counts as lost."""
RELEASE_PATIENCE = 60.0
"""Seconds for which the end of a run waits for a database that is away (a restart, a fail-over). Without it what was
under way would be left alone until its lease runs out, though its worker lives."""
_RELEASE_PAUSE = 0.5
_BROKER_PAUSE = 5.0

_broker_down_until = 0.0


def run_item(item_id: UUID) -> Outcome | None:
    """Claim the item, run its reconciler, finish it.

    Returns:
        What the reconciler answered; ``None`` if there was nothing to claim, the lease was lost, or it failed
        (then the row carries the error and its next time).
    """
    item = claim(item_id)
    if item is None:
        return None
    reconciler = registered(item.kind)
    assert reconciler is not None  # claim() answers only for kinds that are registered
    if item.attempts >= STALLED_AFTER:
        # Told before the run: a run that kills its process never gets to tell.
        _tell_stalled(item, "It failed many times in a row.")
    began = time.perf_counter()
    try:
        outcome = reconciler.reconcile(item)
    except LeaseLost as error:
        _counted(item.kind, "lost", began)
        logger.warning("lease lost", extra={"kind": item.kind, "object": item.object_id, "why": str(error)})
        return None
    except Exception as error:
        _counted(item.kind, "failed", began)
        logger.exception("reconcile failed", extra={"kind": item.kind, "object": item.object_id})
        _fail(item, error)
        return None
    _counted(item.kind, "done" if isinstance(outcome, Done) else "retry", began)
    _finish(item, outcome)
    return outcome


def _counted(kind: str, outcome: str, began: float) -> None:
    RECONCILE_SECONDS.labels(kind=kind, outcome=outcome).observe(time.perf_counter() - began)


def run_due(limit: int = 100) -> int:
    """Run up to ``limit`` due items in this process, one after the other; how many were run."""
    count = 0
    while count < limit:
        ids = due_ids(limit - count)
        ran = 0
        for item_id in ids:
            before = _token(item_id)
            run_item(item_id)
            ran += _token(item_id) != before
        if not ran:
            break
        count += ran
    return count


def dispatch_due(limit: int = 500) -> int:
    """Tell workers of items that are due and of which they were not told, or long ago; how many."""
    ids = due_ids(limit, undispatched_for=RESEND_AFTER)
    if ids:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE kernel_workitem SET dispatched_at = now() WHERE id = ANY(%s)", [ids])
        send(map(str, ids))
    return len(ids)


def send(item_ids: Iterable[str]) -> None:
    """Put messages on the broker. A broker that is down costs nothing but time: the tick sends again."""
    global _broker_down_until  # noqa: PLW0603  # per process, and only to spare waiting
    from portal.kernel.tasks import run

    if time.monotonic() < _broker_down_until:
        return
    try:
        for item_id in item_ids:
            run.apply_async((item_id,), retry=False)
    except Exception as error:  # noqa: BLE001  # whatever the transport raises
        _broker_down_until = time.monotonic() + _BROKER_PAUSE
        logger.warning("the broker does not take messages", extra={"why": repr(error)})


def backoff(attempts: int) -> float:
    """Seconds until the next try: random up to 2^attempts, at least 1, at most 300."""
    return max(1.0, random.uniform(0.0, min(LONGEST_BACKOFF, 2.0 ** min(attempts, 16))))  # noqa: S311


# What was marked since the claim decides: a spec change looks again at once, any other mark when the back-off
# allows. Without a mark the row is parked (delay NULL) or comes again after the delay.
_FINISH = """
UPDATE kernel_workitem SET
    lease_until = NULL,
    lease_owner = '',
    dispatched_at = NULL,
    finished_at = now(),
    last_error = %(message)s,
    attempts = CASE WHEN spec_seq > %(seq)s THEN 0 ELSE %(attempts)s END,
    stalled_at = CASE WHEN %(stalled)s THEN coalesce(stalled_at, now()) ELSE NULL END,
    not_before = CASE WHEN spec_seq > %(seq)s THEN NULL ELSE now() + make_interval(secs => %(delay)s::float8) END,
    next_attempt_at = CASE
        WHEN spec_seq > %(seq)s THEN now()
        WHEN %(delay)s::float8 IS NOT NULL THEN now() + make_interval(secs => %(delay)s::float8)
        WHEN mark_seq > %(seq)s THEN now()
        ELSE NULL
    END
WHERE id = %(id)s AND lease_token = %(token)s
RETURNING next_attempt_at <= now()
"""


def _finish(item: Claimed, outcome: Outcome) -> None:
    match outcome:
        case Done():
            _release(item, delay=None, attempts=0, message="")
        case RetryAfter(seconds, message):
            _release(item, delay=max(0.0, seconds), attempts=0, message=message)


def _fail(item: Claimed, error: Exception) -> None:
    attempts = item.attempts + 1
    asked = getattr(error, "retry_after", None)
    delay = max(backoff(attempts), float(asked) if isinstance(asked, int | float) else 0.0)
    message = f"{type(error).__name__}: {error}"[:2000]
    _release(item, delay=delay, attempts=attempts, message=message)
    if attempts >= STALLED_AFTER:
        _tell_stalled(item, message)


def _release(item: Claimed, *, delay: float | None, attempts: int, message: str) -> None:
    """Give the item back, also where the database comes back only later: to whom it belongs then is in its token."""
    deadline = time.monotonic() + RELEASE_PATIENCE
    while True:
        try:
            _finished(item, delay=delay, attempts=attempts, message=message)
        except (OperationalError, InterfaceError, InternalError):  # the last: a standby, which only reads
            if connection.in_atomic_block or time.monotonic() > deadline:
                raise
            connection.close()
            time.sleep(_RELEASE_PAUSE)
        else:
            return


def _finished(item: Claimed, *, delay: float | None, attempts: int, message: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            _FINISH,
            {
                "id": item.item_id,
                "token": item.token,
                "seq": item.claimed_seq,
                "delay": delay,
                "attempts": attempts,
                "stalled": attempts >= STALLED_AFTER,
                "message": message,
            },
        )
        row = cursor.fetchone()
        if row is not None and row[0]:
            transaction.on_commit(lambda: send([str(item.item_id)]), robust=True)


def _tell_stalled(item: Claimed, message: str) -> None:
    reconciler = registered(item.kind)
    if reconciler is None or reconciler.on_stalled is None:
        return
    try:
        reconciler.on_stalled(item, message)
    except Exception:
        logger.exception("the stalled hook failed", extra={"kind": item.kind, "object": item.object_id})


def _token(item_id: UUID) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT lease_token FROM kernel_workitem WHERE id = %s", [item_id])
        row = cursor.fetchone()
    return None if row is None else row[0]
