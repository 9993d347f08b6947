"""Periodic work: once a slot, however many clocks tick."""

from __future__ import annotations

import pytest

from portal.kernel import heartbeat, ticks
from portal.kernel.models import Heartbeat, TickSlot
from tests.support.threads import at_once


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    done: list[int] = []
    monkeypatch.setattr(ticks, "_ticks", {})
    ticks.every(86400 * 365, "test.tick")(lambda: done.append(1))
    return done


@pytest.mark.django_db(transaction=True)
def test_three_beats_at_once_run_it_once(ran: list[int]) -> None:
    assert sorted(map(str, at_once([lambda: ticks.run_tick("test.tick")] * 3))) == ["False", "False", "True"]
    assert ran == [1]
    TickSlot.objects.update(slot_start="2020-01-01T00:00Z")
    assert ticks.run_tick("test.tick")
    assert ran == [1, 1]


def test_a_failing_task_is_told_and_comes_again(db: None, ran: list[int]) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    ticks.every(3600, "test.fails")(fail)
    assert ticks.run_tick("test.fails")
    slot = TickSlot.objects.get(task="test.fails")
    assert slot.last_error == "RuntimeError: no"
    assert slot.finished_at is not None


def test_heartbeats_keep_one_row_per_process(db: None) -> None:
    assert heartbeat.last_seen("watcher") is None
    heartbeat.beat("watcher", "one")
    heartbeat.beat("watcher", "one", {"targets": 3})
    heartbeat.beat("watcher", "two")
    assert Heartbeat.objects.count() == 2
    assert heartbeat.last_seen("watcher") is not None


def test_alive_is_told_by_the_last_minute_and_an_orderly_end_is_not_missed(db: None) -> None:
    assert not heartbeat.is_alive("worker")
    heartbeat.beat("worker")
    assert heartbeat.is_alive("worker")
    heartbeat.forget("worker")
    assert not heartbeat.is_alive("worker")
    assert not Heartbeat.objects.exists()


def test_the_clock_gives_a_sign_of_life_from_its_own_loop(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from portal.celery import app
    from portal.kernel import beating

    monkeypatch.setattr(beating.connection, "close", lambda: None)  # the test's transaction goes on
    monkeypatch.setattr(beating.PersistentScheduler, "tick", lambda self: 1.0)
    scheduler = beating.Scheduler.__new__(beating.Scheduler)
    assert app.conf.beat_scheduler == "portal.kernel.beating:Scheduler"
    assert not heartbeat.is_alive("beat")
    assert scheduler.tick() == 1.0
    assert heartbeat.is_alive("beat")


def test_the_schedule_sends_every_tick() -> None:
    from portal.celery import app

    sent = {entry["args"][0] for entry in app.conf.beat_schedule.values()}
    assert sent == set(ticks.registered_ticks()) >= {"kernel.workqueue.dispatch_due", "kernel.worker_heartbeat"}
