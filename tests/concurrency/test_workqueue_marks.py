"""What a mark does to a row, and what finishing does with marks that came meanwhile."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from portal.kernel.models import WorkItem
from portal.kernel.workqueue import Claimed, Done, LeaseLost, Mark, Outcome, RetryAfter, claim, mark, mark_many, runner
from portal.kernel.workqueue.claims import due_ids
from portal.kernel.workqueue.marks import Cause
from portal.kernel.workqueue.registry import register, unregister

pytestmark = pytest.mark.django_db
KIND = "test-marks"
Step = Callable[[Claimed], Outcome]


class Script:
    """The reconciler of the tests: what its next run does."""

    def __init__(self) -> None:
        self.step: Step = lambda item: Done()
        self.stalled: list[str] = []


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()
    register(KIND, lease_seconds=90, on_stalled=lambda item, message: script.stalled.append(message))(
        lambda item: script.step(item)
    )
    yield script
    unregister(KIND)


def row(object_id: uuid.UUID) -> WorkItem:
    return WorkItem.objects.get(object_id=object_id)


def wait(item: WorkItem) -> float:
    """Seconds until the next attempt, by the transaction's clock (the tests run within one)."""
    assert item.next_attempt_at is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        return (item.next_attempt_at - cursor.fetchone()[0]).total_seconds()


def test_without_a_cluster_there_is_one_row(script: Script) -> None:
    object_id = uuid.uuid4()
    mark(KIND, object_id)
    mark(KIND, object_id, cause="watch")
    assert row(object_id).mark_seq == 2
    assert row(object_id).spec_seq == 1
    mark(KIND, object_id, cluster_id=uuid.uuid4())
    assert WorkItem.objects.filter(object_id=object_id).count() == 2


def test_an_object_named_twice_is_marked_once_and_spec_wins(script: Script) -> None:
    object_id = uuid.uuid4()
    mark_many([Mark(KIND, object_id, cause="spec"), Mark(KIND, object_id, cause="watch")])
    assert row(object_id).mark_seq == 1
    assert row(object_id).cause == "spec"


def test_done_parks_the_row(script: Script) -> None:
    object_id = uuid.uuid4()
    mark(KIND, object_id)
    assert runner.run_item(row(object_id).id) == Done()
    item = row(object_id)
    assert item.next_attempt_at is None
    assert item.lease_until is None
    assert item.attempts == 0
    assert runner.run_item(item.id) is None, "a parked row can't be claimed"


@pytest.mark.parametrize("cause", ["spec", "watch", "resync"])
def test_a_mark_during_the_run_is_not_lost(script: Script, cause: Cause) -> None:
    object_id = uuid.uuid4()
    mark(KIND, object_id)

    def step(item: Claimed) -> Outcome:
        mark(KIND, object_id, cause=cause)
        return Done()

    script.step = step
    runner.run_item(row(object_id).id)
    assert wait(row(object_id)) == 0


def test_a_watch_mark_does_not_shorten_the_back_off(script: Script) -> None:
    object_id = uuid.uuid4()
    mark(KIND, object_id)

    def fails_and_causes_an_event(item: Claimed) -> Outcome:
        mark(KIND, object_id, cause="watch")
        raise RuntimeError("crash loop")

    script.step = fails_and_causes_an_event
    runner.run_item(row(object_id).id)
    assert wait(row(object_id)) >= 1
    mark(KIND, object_id, cause="watch")
    assert wait(row(object_id)) >= 1
    mark(KIND, object_id, cause="spec")
    item = row(object_id)
    assert wait(item) == 0
    assert item.attempts == 0
    assert item.not_before is None


def test_a_spec_mark_during_a_failing_run_is_looked_at_at_once(script: Script) -> None:
    object_id = uuid.uuid4()
    mark(KIND, object_id)

    def step(item: Claimed) -> Outcome:
        mark(KIND, object_id, cause="spec")
        mark(KIND, object_id, cause="watch")
        raise RuntimeError("old spec")

    script.step = step
    runner.run_item(row(object_id).id)
    item = row(object_id)
    assert wait(item) == 0
    assert item.attempts == 0


def test_retry_after_waits_without_counting_as_a_failure(script: Script) -> None:
    object_id = uuid.uuid4()
    mark(KIND, object_id)
    script.step = lambda item: RetryAfter(30, "waits for quota")
    runner.run_item(row(object_id).id)
    item = row(object_id)
    assert wait(item) == 30
    assert (item.attempts, item.last_error) == (0, "waits for quota")
    mark(KIND, object_id, cause="resync")
    assert wait(row(object_id)) == 30


def test_a_watch_mark_does_not_push_a_due_row_back(script: Script) -> None:
    object_id = uuid.uuid4()
    mark(KIND, object_id)
    WorkItem.objects.update(next_attempt_at=timezone.now() - timedelta(minutes=5))
    mark(KIND, object_id, cause="watch")
    assert wait(row(object_id)) < -200


def test_failures_back_off_with_jitter_up_to_five_minutes(script: Script) -> None:
    delays = {attempts: [runner.backoff(attempts) for _ in range(200)] for attempts in (1, 4, 40)}
    assert all(1 <= delay <= 2 for delay in delays[1])
    assert all(1 <= delay <= 16 for delay in delays[4])
    assert 150 < max(delays[40]) <= 300
    assert len(set(delays[40])) > 100


def test_an_error_may_say_when_to_come_back(script: Script) -> None:
    class Busy(Exception):
        retry_after = 120

    object_id = uuid.uuid4()
    mark(KIND, object_id)

    def step(item: Claimed) -> Outcome:
        raise Busy("429")

    script.step = step
    runner.run_item(row(object_id).id)
    assert wait(row(object_id)) == 120


def test_many_failures_stall_and_success_recovers(script: Script) -> None:
    object_id = uuid.uuid4()
    mark(KIND, object_id)

    def step(item: Claimed) -> Outcome:
        raise RuntimeError("no such image")

    script.step = step
    for _ in range(runner.STALLED_AFTER):
        WorkItem.objects.update(next_attempt_at=timezone.now() - timedelta(seconds=1))
        runner.run_item(row(object_id).id)
    item = row(object_id)
    assert item.stalled_at is not None
    assert script.stalled == ["RuntimeError: no such image"]
    assert wait(item) <= 300, "it is still tried"
    script.step = lambda item: Done()
    WorkItem.objects.update(next_attempt_at=timezone.now() - timedelta(seconds=1))
    runner.run_item(item.id)
    assert row(object_id).stalled_at is None


def test_a_run_that_kills_its_worker_counts_as_a_failure(script: Script) -> None:
    object_id = uuid.uuid4()
    mark(KIND, object_id)
    for attempts in range(runner.STALLED_AFTER + 1):
        item = claim(row(object_id).id)
        assert item is not None
        assert item.attempts == attempts
        # The process is gone: nothing finishes, the lease runs out.
        WorkItem.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    runner.run_item(row(object_id).id)
    assert script.stalled == ["It failed many times in a row."]


def test_a_late_finish_changes_nothing(script: Script) -> None:
    object_id = uuid.uuid4()
    mark(KIND, object_id)

    def step(item: Claimed) -> Outcome:
        WorkItem.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
        assert claim(item.item_id) is not None
        return Done()

    script.step = step
    runner.run_item(row(object_id).id)
    item = row(object_id)
    assert item.lease_until is not None
    assert item.next_attempt_at is not None


def test_lease_must_outlast_the_request(script: Script) -> None:
    object_id = uuid.uuid4()
    mark(KIND, object_id)
    item = claim(row(object_id).id)
    assert item is not None
    item.require(60)
    with pytest.raises(LeaseLost):
        item.require(91)


def test_unknown_kinds_wait(script: Script) -> None:
    object_id = uuid.uuid4()
    mark("kind-of-a-later-version", object_id)
    assert due_ids(10) == []
    assert claim(row(object_id).id) is None
    assert row(object_id).next_attempt_at is not None


def test_due_items_are_the_oldest_and_fit_their_cluster(script: Script, settings) -> None:
    settings.AIF_CLUSTER_CONCURRENCY = 2
    cluster = uuid.uuid4()
    for age in range(5):
        object_id = uuid.uuid4()
        mark(KIND, object_id, cluster_id=cluster)
        WorkItem.objects.filter(object_id=object_id).update(
            next_attempt_at=timezone.now() - timedelta(minutes=age), tenant_id=uuid.UUID(int=age)
        )
    other = uuid.uuid4()
    mark(KIND, other)
    due = list(WorkItem.objects.filter(pk__in=due_ids(10)).order_by("next_attempt_at"))
    assert [item.tenant_id for item in due] == [uuid.UUID(int=4), uuid.UUID(int=3), None]


def test_dispatch_sends_once_and_again_when_the_message_is_lost(script: Script, monkeypatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(runner, "send", lambda ids: sent.extend(ids))
    object_id = uuid.uuid4()
    mark(KIND, object_id)
    assert runner.dispatch_due() == 0, "the mark's own hint is on its way"
    WorkItem.objects.update(dispatched_at=timezone.now() - timedelta(minutes=1))
    assert runner.dispatch_due() == 1
    assert runner.dispatch_due() == 0
    assert sent == [str(row(object_id).id)]


def test_a_mark_within_the_back_off_sends_nothing_so_the_tick_does(script: Script, monkeypatch) -> None:
    object_id = uuid.uuid4()
    mark(KIND, object_id)
    script.step = lambda item: RetryAfter(3, "It starts.")
    runner.run_item(row(object_id).id)
    mark(KIND, object_id, cause="watch")
    over = timezone.now() - timedelta(minutes=1)
    WorkItem.objects.update(next_attempt_at=over, not_before=over)
    sent: list[str] = []
    monkeypatch.setattr(runner, "send", sent.extend)
    assert runner.dispatch_due() == 1
    assert sent == [str(row(object_id).id)]


def test_a_broker_that_is_down_stops_nothing(script: Script, monkeypatch) -> None:
    from portal.kernel import tasks

    calls: list[object] = []

    def refuse(*args: object, **kwargs: object) -> None:
        calls.append(args)
        raise ConnectionError("refused")

    monkeypatch.setattr(tasks.run, "apply_async", refuse)
    monkeypatch.setattr(runner, "_broker_down_until", 0.0)
    runner.send(["a", "b"])
    runner.send(["c"])
    assert len(calls) == 1, "a broker that has just refused is left alone for some seconds"
