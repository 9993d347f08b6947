"""What is removed after its time, and what stays."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from portal.kernel import purge, workqueue
from portal.kernel.models import IdempotencyRecord, WorkItem
from portal.kernel.workqueue import Claimed, Done, run_item
from portal.kernel.workqueue.claims import LeaseLost
from portal.kernel.workqueue.registry import register, unregister

pytestmark = pytest.mark.django_db
KIND = "purge-test"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture(autouse=True)
def reconciler() -> Iterator[list[Claimed]]:
    seen: list[Claimed] = []

    def look(item: Claimed) -> Done:
        seen.append(item)
        return Done()

    register(KIND)(look)
    yield seen
    unregister(KIND)


def answer(age: timedelta) -> UUID:
    record = IdempotencyRecord.objects.create(principal="p", route="POST /x", key=str(age), body_digest="d")
    IdempotencyRecord.objects.filter(pk=record.pk).update(created_at=timezone.now() - age)
    return record.pk


def item(age: timedelta, **values: object) -> WorkItem:
    """An item that was finished so long ago."""
    object_id = uuid4()
    workqueue.mark(KIND, object_id)
    row = WorkItem.objects.get(object_id=object_id)
    run_item(row.pk)
    at = timezone.now() - age
    WorkItem.objects.filter(pk=row.pk).update(finished_at=at, marked_at=at, **values)
    row.refresh_from_db()
    return row


def test_answers_are_kept_for_a_day() -> None:
    young, old, older = answer(23 * HOUR), answer(25 * HOUR), answer(400 * DAY)
    assert purge.purge()["answers"] == 2
    assert set(IdempotencyRecord.objects.values_list("pk", flat=True)) == {young}
    assert {old, older}.isdisjoint(IdempotencyRecord.objects.values_list("pk", flat=True))


def test_more_than_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purge, "BATCH", 2)
    for number in range(5):
        answer(timedelta(days=2, minutes=number))
    assert purge.purge()["answers"] == 5


def test_only_what_was_parked_for_a_month_goes() -> None:
    now = timezone.now()
    parked = item(31 * DAY)
    stays = {
        item(29 * DAY).pk,
        item(31 * DAY, next_attempt_at=now + DAY).pk,
        item(31 * DAY, lease_until=now - DAY).pk,
        item(31 * DAY, stalled_at=now - 31 * DAY).pk,
    }
    marked = item(31 * DAY)
    workqueue.mark(KIND, marked.object_id)
    assert purge.purge()["parked"] == 1
    assert set(WorkItem.objects.filter(kind=KIND).values_list("pk", flat=True)) == stays | {marked.pk}
    assert parked.pk not in stays


def test_an_object_whose_item_is_gone_is_marked_and_looked_at_again(reconciler: list[Claimed]) -> None:
    row = item(31 * DAY)
    before = reconciler[-1]
    assert purge.purge()["parked"] == 1
    workqueue.mark(KIND, row.object_id)
    run_item(WorkItem.objects.get(object_id=row.object_id).pk)
    assert reconciler[-1].object_id == row.object_id
    assert reconciler[-1].item_id != before.item_id
    with pytest.raises(LeaseLost), before.fenced():
        pytest.fail("who worked on the old item may write nothing")
