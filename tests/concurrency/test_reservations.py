"""The last GPU: with the lock off two may get it, with the lock on exactly as many as there are."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest
from django.db import transaction

from infra.models import Node, Reservation
from infra.services import reservations
from infra.services.reservations import Holder, Line, NoCapacity, reserve
from tests.support.fleet import make_node, make_pool
from tests.support.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)


def holder(zone: uuid.UUID | None = None) -> Holder:
    return Holder(uuid.uuid4(), zone or uuid.uuid4(), "t-team", uuid.uuid4(), uuid.uuid4())


def whole(node: Node, cards: int = 1) -> Line:
    assert node.pool is not None
    assert node.pool.gpu_type is not None
    return Line(node.pk, node.pool.pk, node.pool.gpu_type.pk, "whole", "e/Standalone/0/0", cards * 10**6, cards=cards)


def ask(node: Node, cards: int = 1) -> bool:
    try:
        with transaction.atomic():
            reserve(holder=holder(), lines=[whole(node, cards)])
    except NoCapacity:
        return False
    return True


def held(node: Node) -> int:
    return sum(Reservation.objects.filter(node=node, released_at=None).values_list("cards", flat=True))


def test_without_the_lock_the_last_card_is_promised_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what we want: this shows that the next test would notice."""
    node = make_node(make_pool("whole"), cards=1)
    both_have_looked = threading.Barrier(2, timeout=20)
    check = reservations._check_fit

    def look_then_wait(*args: Any) -> None:
        check(*args)
        both_have_looked.wait()

    monkeypatch.setattr(reservations, "LOCK_NODES", False)
    monkeypatch.setattr(reservations, "_check_fit", look_then_wait)
    assert at_once([lambda: ask(node)] * 2) == [True, True]
    assert held(node) == 2


@pytest.mark.parametrize(("cards", "asks", "each"), [(1, 2, 1), (8, 24, 1), (8, 12, 3)])
def test_with_the_lock_no_more_than_there_are(cards: int, asks: int, each: int) -> None:
    node = make_node(make_pool("whole"), cards=cards)
    assert sorted(at_once([lambda: ask(node, each)] * asks)).count(True) == cards // each  # type: ignore[type-var]
    assert held(node) == cards // each * each


def test_several_nodes_in_any_order_do_not_deadlock() -> None:
    pool = make_pool("whole")
    nodes = [make_node(pool, cards=4, name=f"n{number}") for number in range(3)]

    def spread(turn: int) -> bool:
        order = nodes[turn % 3 :] + nodes[: turn % 3]
        lines = [
            Line(**{**_fields(whole(node)), "member": f"e/Worker/0/{number}"}) for number, node in enumerate(order)
        ]
        try:
            with transaction.atomic():
                reserve(holder=holder(), lines=lines)
        except NoCapacity:
            return False
        return True

    results = at_once([lambda turn=turn: spread(turn) for turn in range(12)])  # type: ignore[misc]
    assert results.count(True) == 4
    assert [held(node) for node in nodes] == [4, 4, 4]


def _fields(line: Line) -> dict[str, Any]:
    return {name: getattr(line, name) for name in line.__slots__}


def test_zones_that_race_for_one_card_never_share_it() -> None:
    pool = make_pool("hami")
    node = make_node(pool, cards=1)
    uuid_ = node.devices.get().uuid
    zones = [uuid.uuid4(), uuid.uuid4()]

    def share(zone: uuid.UUID) -> uuid.UUID | None:
        assert pool.gpu_type is not None
        line = Line(
            node.pk, pool.pk, pool.gpu_type.pk, "hami", "e/Standalone/0/0", 125_000,
            device_uuid=uuid_, memory_mib=10_000, cores=10,
        )  # fmt: skip
        try:
            with transaction.atomic():
                reserve(holder=holder(zone), lines=[line])
        except NoCapacity:
            return None
        return zone

    results = at_once([lambda zone=zones[turn % 2]: share(zone) for turn in range(12)])  # type: ignore[misc]
    assert len({zone for zone in results if zone is not None}) == 1
    assert Reservation.objects.filter(node=node).values("zone_id").distinct().count() == 1
