"""Celery's limits: a task is over before the broker hands its message out again."""

from types import SimpleNamespace

import pytest
from django.core.exceptions import ImproperlyConfigured

from portal.celery import app, check_limits


def test_limits_that_would_run_a_task_twice_stop_the_start() -> None:
    check_limits()
    with pytest.raises(ImproperlyConfigured, match="visibility_timeout"):
        check_limits(SimpleNamespace(task_time_limit=61, visibility_timeout=180))


def test_messages_are_acknowledged_late_and_carry_json() -> None:
    assert app.conf.task_acks_late
    assert app.conf.task_reject_on_worker_lost
    assert app.conf.accept_content == ["json"]
    assert app.conf.worker_prefetch_multiplier == 1


def test_leases_outlast_tasks() -> None:
    from portal.kernel.workqueue.registry import kinds, registered

    for kind in kinds():
        reconciler = registered(kind)
        assert reconciler is not None
        assert reconciler.lease_seconds > app.conf.task_time_limit, kind
