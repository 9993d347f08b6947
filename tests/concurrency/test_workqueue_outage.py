"""The database goes away while an item is worked on: its lease is given back as soon as it is there again."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from django.db import OperationalError, connection, connections

from portal.kernel.models import WorkItem
from portal.kernel.workqueue import Claimed, Done, Outcome, mark, runner
from portal.kernel.workqueue.registry import register, unregister

pytestmark = pytest.mark.django_db(transaction=True)
KIND = "test-outage"
REFUSALS = 3


class Outage:
    """Ends this thread's connection, and refuses the next three that are tried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        wrapper = type(connections["default"])
        connect = wrapper.get_new_connection

        def refuse(database: object, parameters: object) -> object:
            if self.left:
                self.left -= 1
                raise OperationalError("connection to server failed: Connection refused")
            return connect(database, parameters)

        monkeypatch.setattr(wrapper, "get_new_connection", refuse)

    def begin(self) -> None:
        """Raises OperationalError, as a statement does whose server ends."""
        self.left = REFUSALS
        with connection.cursor() as cursor:
            cursor.execute("RESET ROLE; SELECT pg_terminate_backend(pg_backend_pid())")


def run(reconcile: Callable[[Claimed], Outcome]) -> tuple[uuid.UUID, Outcome | None]:
    """Mark something and have it reconciled; the item, and what came of it."""
    object_id = uuid.uuid4()
    register(KIND)(reconcile)
    try:
        mark(KIND, object_id)
        item = WorkItem.objects.get(object_id=object_id).pk
        return item, runner.run_item(item)
    finally:
        unregister(KIND)


@pytest.mark.parametrize("where", ["while it writes", "after it has written"])
def test_a_lease_is_given_back_when_the_database_is_there_again(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outage = Outage(monkeypatch)

    def reconcile(item: Claimed) -> Outcome:
        if where == "while it writes":
            with item.fenced():
                outage.begin()
        with pytest.raises(OperationalError):
            outage.begin()
        return Done()

    with monkeypatch.context() as patch:
        patch.setattr(runner, "RELEASE_PATIENCE", -1.0)
        with pytest.raises(OperationalError):
            run(reconcile)
    outage.left = 0
    connection.close()
    assert WorkItem.objects.filter(lease_until__isnull=False).count() == 1, "without waiting it stays claimed"

    item, _ = run(reconcile)
    row = WorkItem.objects.get(pk=item)
    assert outage.left == 0, "it was tried until the database answered"
    assert row.lease_until is None
    if where == "while it writes":
        assert row.attempts == 1
        assert row.next_attempt_at is not None, "it is tried again"
    else:
        assert row.attempts == 0
        assert row.next_attempt_at is None, "it is done"


def test_a_lease_is_given_back_when_what_answers_writes_again() -> None:
    """A fail-over at whose first moment a standby answers, which only reads."""

    def reconcile(item: Claimed) -> Outcome:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")  # until the next connection
        return Done()

    try:
        item, outcome = run(reconcile)
    finally:
        connection.close()
    assert outcome == Done()
    row = WorkItem.objects.get(pk=item)
    assert (row.lease_until, row.next_attempt_at, row.attempts) == (None, None, 0)
