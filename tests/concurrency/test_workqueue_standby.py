"""A fail-over at whose first moment a standby answers, which only reads: the lease goes back to the one that writes."""

from __future__ import annotations

import uuid

import pytest
from django.db import connection

from portal.kernel.models import WorkItem
from portal.kernel.workqueue import Claimed, Done, Outcome, mark, runner
from portal.kernel.workqueue.registry import register, unregister

pytestmark = pytest.mark.django_db(transaction=True)
KIND = "test-standby"


def test_a_lease_is_given_back_when_what_answers_writes_again() -> None:
    def reconcile(item: Claimed) -> Outcome:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")  # until the next connection
        return Done()

    object_id = uuid.uuid4()
    register(KIND)(reconcile)
    try:
        mark(KIND, object_id)
        item = WorkItem.objects.get(object_id=object_id).pk
        assert runner.run_item(item) == Done()
    finally:
        unregister(KIND)
        connection.close()
    row = WorkItem.objects.get(pk=item)
    assert (row.lease_until, row.next_attempt_at, row.attempts) == (None, None, 0)
