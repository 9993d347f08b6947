"""Celery: ``celery -A portal worker`` and ``celery -A portal beat``. Tasks are short; truth is in PostgreSQL."""

import os
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.signals import worker_ready, worker_shutdown
from django.core.exceptions import ImproperlyConfigured

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings.production")

from django.conf import settings  # after the profile is known

from portal.kernel import broker
from portal.kernel.ticks import registered_ticks

SOFT_LIMIT = 45
HARD_LIMIT = 60
VISIBILITY_TIMEOUT = 180
"""Seconds after which the broker hands an unacknowledged message out again."""
LATEST_TICK = 15
"""Seconds for which a tick waits for a worker at least."""

broker.use()
app = Celery("portal")
app.conf.update(
    broker_url=settings.AIF_BROKER_URL,
    timezone="UTC",
    enable_utc=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_acks_on_failure=True,
    task_acks_on_timeout=True,
    task_ignore_result=True,
    task_track_started=False,
    task_serializer="json",
    accept_content=["json"],
    task_soft_time_limit=SOFT_LIMIT,
    task_time_limit=HARD_LIMIT,
    worker_prefetch_multiplier=1,
    # Threads can't be cancelled: what runs comes to its end, and its message comes again (see portal.kernel.broker).
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_max_tasks_per_child=500,
    worker_max_memory_per_child=400_000,
    worker_soft_shutdown_timeout=30,
    worker_enable_soft_shutdown_on_idle=True,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    worker_eta_task_limit=1000,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    task_publish_retry_policy={"max_retries": 3, "interval_start": 0, "interval_step": 0.2, "interval_max": 1},
    visibility_timeout=VISIBILITY_TIMEOUT,
    # The sweep for lost messages runs every interval times throttle seconds; the default throttle makes it 100 s.
    broker_transport_options={
        "visibility_timeout": VISIBILITY_TIMEOUT,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "socket_keepalive": True,
        "socket_connect_timeout": 3,
        "health_check_interval": 25,
        "global_keyprefix": "aif:",
    }
    if settings.AIF_BROKER_URL.startswith(("redis", "valkey", "unix"))
    else {"confirm_publish": True}
    if settings.AIF_BROKER_URL.startswith("amqp")
    else {},
    result_backend_transport_options={"visibility_timeout": VISIBILITY_TIMEOUT},
)
app.conf.beat_scheduler = "portal.kernel.beating:Scheduler"
if settings.AIF_BROKER_URL.startswith("amqp"):
    app.conf.update(task_default_queue_type="quorum", worker_detect_quorum_queues=True)
app.autodiscover_tasks(["portal.kernel"])


def check_limits(conf: Any = app.conf) -> None:
    """Refuse to start where a task could still run when the broker hands its message to somebody else.

    Raises:
        ImproperlyConfigured: the hard time limit times three is above the visibility timeout.
    """
    if conf.task_time_limit * 3 > conf.visibility_timeout:
        raise ImproperlyConfigured(
            f"task_time_limit ({conf.task_time_limit} s) times three must not be above visibility_timeout "
            f"({conf.visibility_timeout} s): a task would run twice at once."
        )


check_limits()


@worker_ready.connect(dispatch_uid="aif-worker-heartbeat")
def _worker_lives(**_: Any) -> None:
    """The worker's own sign of life; that it also *works* is told by the tick ``kernel.worker_heartbeat``."""
    from portal.kernel.heartbeat import keep_beating  # both need the apps
    from portal.kernel.metrics import serving

    serving.serve()
    worker_shutdown.connect(_ends(keep_beating("worker")), weak=False, dispatch_uid="aif-worker-ends")


def _ends(end: Callable[[], None]) -> Callable[..., None]:
    return lambda **_: end()


def schedule_ticks() -> None:
    """Have beat send every registered tick; the slot row decides whether it runs.

    Called when all apps are ready: a signal of beat comes too late, its scheduler has read the schedule by then.
    """
    app.conf.beat_schedule = {
        tick.name: {
            "task": "kernel.ticks.run",
            "args": (tick.name,),
            "schedule": float(tick.every),
            # Workers that were away find no heap of ticks; busy ones that come some seconds late still do them.
            "options": {"expires": max(tick.every, LATEST_TICK)},
        }
        for tick in registered_ticks().values()
    }
