"""Keeping a pool for a zone, and moving a tenant, against reservations that are being made: no card crosses zones.

Each race is first shown with its lock off.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from infra.models import Node, NodePool, Reservation
from infra.services import pools, reservations
from infra.services.reservations import Holder, Line, NoCapacity, reserve
from portal.kernel.problems import Conflict
from portal.kernel.scoping import system_scope
from tenants.models import Tenant
from tenants.services import zones
from tenants.services.zones import pool_keep, tenant_set_zone
from tests.support.fleet import make_node, make_pool
from tests.support.tenants import TESTER, make_tenant
from tests.support.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)


def ask(tenant: Tenant, node: Node, *, share: bool = False) -> bool:
    """One card, or a share of the first one; whether it was promised."""
    assert node.pool is not None
    assert node.pool.gpu_type is not None
    what: dict[str, Any] = {"cards": 1}
    if share:
        what = {"device_uuid": f"GPU-{node.name}-0", "memory_mib": 1000, "cores": 10}
    line = Line(
        node.pk, node.pool.pk, node.pool.gpu_type.pk, node.pool.sharing, "e/Standalone/0/0", 1_000, **what
    )  # fmt: skip
    holder = Holder(tenant.pk, tenant.zone_id, tenant.namespace, uuid.uuid4(), uuid.uuid4())
    try:
        with system_scope("test"), transaction.atomic():
            reserve(holder=holder, lines=[line])
    except NoCapacity:
        return False
    return True


def done(change: Callable[[], object]) -> bool:
    try:
        change()
    except Conflict:
        return False
    return True


def interleaved(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, first: Callable[[], bool], second: Callable[[], bool]
) -> list[Any]:
    """Run both; the second starts when the first has looked (``module.name`` has answered), and the first goes on when
    the second has ended, or after a while, where a lock makes it wait."""
    looked, ended = threading.Event(), threading.Event()
    real = getattr(module, name)

    def slowly(*args: Any, **kwargs: Any) -> Any:
        answer = real(*args, **kwargs)
        if not looked.is_set():
            looked.set()
            ended.wait(1.5)
        return answer

    monkeypatch.setattr(module, name, slowly)

    def later() -> bool:
        assert looked.wait(20)
        try:
            return second()
        finally:
            ended.set()

    results = at_once([first, later])
    assert not [each for each in results if isinstance(each, BaseException)], results
    return results


def _without(monkeypatch: pytest.MonkeyPatch, *modules: Any) -> None:
    for module in modules:
        monkeypatch.setattr(module, "LOCK_NODES", False)


def _strangers_in_kept_pools() -> int:
    kept = dict(NodePool.objects.filter(zone_id__isnull=False).values_list("pk", "zone_id"))
    held = Reservation.objects.filter(released_at__isnull=True, pool__in=kept)
    return sum(1 for one in held if one.zone_id != kept[one.pool_id])


def _keep_against_reserve(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    ours, theirs = make_tenant("ml-team"), make_tenant("team-vision")
    node = make_node(make_pool())
    assert node.pool is not None
    pool = node.pool
    return interleaved(
        monkeypatch, pools, "held_on",
        lambda: done(lambda: pool_keep(pool=pool, zone=ours.zone, actor=TESTER)),
        lambda: ask(theirs, node),
    )  # fmt: skip


def test_without_the_lock_a_pool_is_kept_while_a_stranger_moves_in(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, pools, reservations)
    assert _keep_against_reserve(monkeypatch) == [True, True]
    assert _strangers_in_kept_pools() == 1


def test_with_the_lock_the_stranger_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _keep_against_reserve(monkeypatch) == [True, False]
    assert _strangers_in_kept_pools() == 0


def test_a_pool_that_came_with_the_node_before_the_wait_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for a node's lock has joined its pool as it was before: the pool is read anew."""
    monkeypatch.setattr(reservations, "_kept", lambda lines: {})
    assert _keep_against_reserve(monkeypatch) == [True, True]
    assert _strangers_in_kept_pools() == 1


def test_a_stranger_that_came_first_keeps_the_pool_from_being_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = make_tenant("ml-team"), make_tenant("team-vision")
    node = make_node(make_pool())
    assert node.pool is not None
    pool = node.pool
    results = interleaved(
        monkeypatch, reservations, "taken_by_node",
        lambda: ask(theirs, node),
        lambda: done(lambda: pool_keep(pool=pool, zone=ours.zone, actor=TESTER)),
    )  # fmt: skip
    assert results == [True, False]
    assert _strangers_in_kept_pools() == 0


def _move_against_share(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    tenant, beside = make_tenant("ml-team", zone="research"), make_tenant("team-vision", zone="research")
    elsewhere = make_tenant("elsewhere").zone
    node = make_node(make_pool("hami"), cards=1)
    assert ask(tenant, node, share=True)
    return interleaved(
        monkeypatch, zones, "shared_with",
        lambda: done(lambda: tenant_set_zone(tenant=tenant, zone=elsewhere, actor=TESTER)),
        lambda: ask(beside, node, share=True),
    )  # fmt: skip


def _zones_on_the_card() -> int:
    return Reservation.objects.filter(released_at__isnull=True).values("zone_id").distinct().count()


def test_without_the_lock_a_tenant_takes_a_shared_card_to_another_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, zones, reservations)
    assert _move_against_share(monkeypatch) == [True, True]
    assert _zones_on_the_card() == 2


def test_with_the_lock_the_other_one_finds_the_card_in_another_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _move_against_share(monkeypatch) == [True, False]
    assert _zones_on_the_card() == 1


def test_a_tenant_is_not_moved_out_of_a_pool_that_is_being_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    tenant, elsewhere = make_tenant("ml-team"), make_tenant("elsewhere").zone
    node = make_node(make_pool())
    assert node.pool is not None
    pool = node.pool
    assert ask(tenant, node)
    results = interleaved(
        monkeypatch, pools, "held_on",
        lambda: done(lambda: pool_keep(pool=pool, zone=tenant.zone, actor=TESTER)),
        lambda: done(lambda: tenant_set_zone(tenant=tenant, zone=elsewhere, actor=TESTER)),
    )  # fmt: skip
    assert results == [True, False]
    assert _strangers_in_kept_pools() == 0
