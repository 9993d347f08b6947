"""Claims under contention: each race is first shown without its lock."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from functools import partial

import pytest
from django.conf import settings
from django.db import connection, transaction

from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import Claimed, Done, LeaseLost, Mark, Outcome, claim, claims, mark, mark_many, run_due
from portal.kernel.workqueue.registry import register, unregister
from tests.support.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)
KIND = "test-claims"


@pytest.fixture(autouse=True)
def kind() -> Iterator[None]:
    @register(KIND)
    def reconcile(item: Claimed) -> Outcome:
        return Done()

    yield
    unregister(KIND)


def new_item(cluster_id: uuid.UUID | None = None) -> uuid.UUID:
    object_id = uuid.uuid4()
    mark(KIND, object_id, cluster_id=cluster_id)
    return WorkItem.objects.get(object_id=object_id).id


def live_leases(cluster_id: uuid.UUID) -> int:
    return WorkItem.objects.filter(cluster_id=cluster_id, lease_until__isnull=False).count()


def careless_claim(item_id: uuid.UUID) -> bool:
    """What claim() would be without the row's lock: look, then write."""
    with transaction.atomic():
        if WorkItem.objects.get(pk=item_id).lease_until is not None:
            return False
        time.sleep(0.05)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE kernel_workitem SET lease_until = now() + interval '90 s' WHERE id = %s", [item_id])
        return True


def test_one_item_is_claimed_once() -> None:
    item_id = new_item()
    careless = at_once([lambda: careless_claim(item_id)] * 8)
    assert careless.count(True) > 1, "without the lock the race must be seen"

    item_id = new_item()
    claimed = [item for item in at_once([lambda: claim(item_id)] * 8) if item is not None]
    assert len(claimed) == 1
    assert isinstance(claimed[0], Claimed)


def test_a_cluster_is_never_over_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "AIF_CLUSTER_CONCURRENCY", 3)

    def room_without_lock(cluster_id: uuid.UUID) -> bool:
        room = live_leases(cluster_id) < 3
        time.sleep(0.05)
        return room

    cluster_id = uuid.uuid4()
    ids = [new_item(cluster_id) for _ in range(10)]
    with monkeypatch.context() as patch:
        patch.setattr(claims, "_cluster_has_room", room_without_lock)
        at_once([partial(claim, one) for one in ids])
    assert live_leases(cluster_id) > 3, "without the lock the race must be seen"

    cluster_id = uuid.uuid4()
    ids = [new_item(cluster_id) for _ in range(10)]
    at_once([partial(claim, one) for one in ids])
    assert live_leases(cluster_id) == 3


def test_marks_at_once_make_one_row_and_count_each() -> None:
    object_id = uuid.uuid4()
    results = at_once([lambda: mark(KIND, object_id)] * 12)
    assert results == [None] * 12
    item = WorkItem.objects.get(object_id=object_id)
    assert item.mark_seq == 12


def test_bulk_marks_in_opposite_order_do_not_deadlock() -> None:
    ids = [uuid.uuid4() for _ in range(40)]
    forward = [Mark(KIND, one) for one in ids]

    def one_by_one(marks: list[Mark]) -> None:
        with transaction.atomic():
            for one in marks:
                mark(one.kind, one.object_id)
                time.sleep(0.002)

    careless = at_once([lambda: one_by_one(forward), lambda: one_by_one(forward[::-1])])
    assert any(isinstance(result, Exception) for result in careless), "unsorted marks must deadlock here"

    for _ in range(5):
        assert at_once([lambda: mark_many(forward), lambda: mark_many(forward[::-1])]) == [None, None]


def test_a_fenced_write_and_a_claim_exclude_each_other() -> None:
    item_id = new_item()
    first = claim(item_id)
    assert first is not None
    WorkItem.objects.filter(pk=item_id).update(lease_until="2020-01-01T00:00Z")

    def write_slowly() -> str:
        with first.fenced():
            time.sleep(0.3)
            # The lease is over, but nobody may take it while this transaction may still commit.
            return str(WorkItem.objects.get(pk=item_id).lease_token)

    def take_over() -> Claimed | None:
        time.sleep(0.1)
        return claim(item_id)

    assert at_once([write_slowly, take_over]) == ["1", None]
    second = claim(item_id)
    assert second is not None
    assert second.token == first.token + 1
    with pytest.raises(LeaseLost), first.fenced():
        pass
    with pytest.raises(LeaseLost):
        first.require(1)
    with second.fenced():
        pass


def test_a_service_and_a_fenced_write_do_not_deadlock() -> None:
    """The service locks its object and then marks; the reconciler checks its token and then locks the object."""
    object_item = new_item()
    item_id = new_item()
    item = claim(item_id)
    assert item is not None

    def service() -> None:
        with transaction.atomic():
            WorkItem.objects.select_for_update().get(pk=object_item)
            time.sleep(0.1)
            mark(item.kind, item.object_id)

    def reconciler() -> None:
        with item.fenced():
            time.sleep(0.05)
            WorkItem.objects.filter(pk=object_item).update(last_error="seen")

    assert at_once([service, reconciler]) == [None, None]


def test_two_runners_share_the_work() -> None:
    done: list[uuid.UUID] = []
    unregister(KIND)

    @register(KIND)
    def reconcile(item: Claimed) -> Outcome:
        with item.fenced():
            done.append(item.object_id)
        return Done()

    ids = {new_item() for _ in range(30)}
    results = at_once([lambda: run_due(100)] * 4)
    assert not [result for result in results if isinstance(result, BaseException)]
    assert len(done) == len(set(done)) == len(ids)
    assert not WorkItem.objects.filter(next_attempt_at__isnull=False).exists()
    with system_scope("check"):
        pass
