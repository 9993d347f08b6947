"""The work queue: rows in PostgreSQL say what must be looked at, Celery only hurries.

A service marks an object in its own transaction (:func:`mark`); a worker claims the row with a lease and a
fencing token, runs the reconciler registered for its kind, and parks the row if nobody marked it meanwhile::

    @register("replica", lease_seconds=90)
    def reconcile(item: Claimed) -> Outcome:
        ...                                # read, decide
        item.require(seconds=20)           # the lease outlasts the request that follows
        client.apply(...)                  # no transaction is open here
        with item.fenced():                # LeaseLost if somebody else has claimed since
            ...                            # write status
        return Done()

Losing the broker delays work by some seconds and loses nothing; a message that comes twice finds nothing to claim.
"""

from portal.kernel.workqueue.claims import Claimed, LeaseLost, claim, claim_due, is_claimed
from portal.kernel.workqueue.marks import Mark, mark, mark_many
from portal.kernel.workqueue.registry import Done, Outcome, Reconciler, RetryAfter, register, registered
from portal.kernel.workqueue.runner import dispatch_due, run_due, run_item

__all__ = [
    "Claimed",
    "Done",
    "LeaseLost",
    "Mark",
    "Outcome",
    "Reconciler",
    "RetryAfter",
    "claim",
    "claim_due",
    "dispatch_due",
    "is_claimed",
    "mark",
    "mark_many",
    "register",
    "registered",
    "run_due",
    "run_item",
]
