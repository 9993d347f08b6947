"""The only Celery tasks: run one item, run one tick. A message carries an id or a name, never data."""

from __future__ import annotations

from uuid import UUID

from celery import shared_task

from portal.kernel import heartbeat, purge, ticks, workqueue

assert heartbeat.worker_heartbeat is not None  # importing it registers its ticks
assert purge.purge is not None


@shared_task(name="kernel.workqueue.run")
def run(item_id: str) -> None:
    """Run the item if it can be claimed."""
    workqueue.run_item(UUID(item_id))


@shared_task(name="kernel.ticks.run")
def tick(name: str) -> None:
    """Run the periodic task if its slot is free."""
    ticks.run_tick(name)


@ticks.every(1, "kernel.workqueue.dispatch_due")
def dispatch_due() -> None:
    """Send what is due."""
    workqueue.dispatch_due()
