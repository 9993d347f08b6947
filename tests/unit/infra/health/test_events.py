"""Faults as rows: monotonic and once, what they withhold, and when they end."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from infra.models import CapacitySpan, Cluster, Device, HealthEvent, Node
from infra.services.health import health_event_end, xid_samples, xids_write
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_VIEWER, Actor
from portal.kernel.clock import epoch_ms
from portal.kernel.problems import Conflict, Forbidden, Invalid
from portal.kernel.scoping import system_scope
from tests.support.fleet import make_cluster
from tests.unit.infra.test_watch_nodes import Nodes, at

pytestmark = pytest.mark.django_db
ADMIN = Actor(kind="user", name="platform-admin", platform_role=PLATFORM_ADMIN)


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


class Faulty(Nodes):
    """Nodes with conditions and a boot id."""

    boot = "boot-1"
    conditions: list[dict[str, Any]] = []

    def thing(self, name: str = "n", **values: Any) -> dict[str, Any]:
        node = super().thing(name, **values)
        node["status"]["conditions"] += self.conditions
        node["status"]["nodeInfo"] = {"bootID": self.boot}
        return node


def card(cluster: Cluster, uuid: str = "GPU-1") -> Device:
    return Device.objects.create(
        cluster=cluster, node=Node.objects.get(name="n"), uuid=uuid, memory_mib=81559, first_seen_at=at(0)
    )


def gauge(cluster: Cluster, *values: tuple[float, int], uuid: str = "GPU-1") -> int:
    with system_scope("test"):
        samples = [(epoch_ms(at(minute)), Decimal(value)) for minute, value in values]
        return xids_write(cluster, {uuid: samples}, {})


def events() -> list[tuple[str, str, str, bool]]:
    return [
        (one.kind, one.code, one.fault_class, one.ended_at is None)
        for one in HealthEvent.objects.order_by("started_at", "code")
    ]


def spans() -> list[tuple[float, int, list[str], str]]:
    return [
        ((one.started_at - at(0)) / timedelta(minutes=1), one.unavailable_cards, one.unavailable_devices, one.reason)
        for one in CapacitySpan.objects.order_by("started_at")
    ]


def test_a_condition_begins_and_ends_once(cluster: Cluster) -> None:
    nodes = Faulty(cluster)
    nodes.see(0)
    turned = {"type": "GpuSmWatch", "status": "True", "message": "SM", "lastTransitionTime": at(5).isoformat()}
    nodes.conditions = [turned]
    nodes.see(6)
    nodes.see(7)
    [event] = HealthEvent.objects.all()
    assert (event.started_at, event.ended_at, event.fault_class, event.message) == (at(5), None, "reset", "SM")
    assert spans() == [(0, 0, [], ""), (6, 8, [], "GpuSmWatch")], "no card is named: all free ones of the node"
    nodes.conditions = [turned | {"status": "False"}]
    nodes.see(20)
    event.refresh_from_db()
    assert event.ended_at == at(20)
    assert spans()[-1] == (20, 0, [], "")


def test_an_xid_withholds_its_card_until_the_node_starts_anew(cluster: Cluster) -> None:
    nodes = Faulty(cluster)
    nodes.see(0)
    card(cluster)
    assert gauge(cluster, (1, 0), (2, 79), (3, 79)) == 1
    assert events() == [("xid", "79", "node", True)]
    event = HealthEvent.objects.get()
    assert (event.started_at, event.not_before, event.boot_id) == (at(2), at(1), "boot-1")
    assert spans() == [(0, 0, [], ""), (2, 1, ["GPU-1"], "XID 79")]
    assert gauge(cluster, (2, 79), (3, 79), (4, 79)) == 0, "windows overlap; the gauge sticks"
    nodes.see(10, allocatable=7)
    assert spans()[-1][1:3] == (1, ["GPU-1"]), "the card that is no longer allocatable is taken for the same one"
    nodes.boot = "boot-2"
    nodes.see(30)
    event.refresh_from_db()
    assert (event.ended_at, event.ended_by) == (at(30), "the node was started anew")
    assert spans()[-1] == (30, 0, [], "")
    assert gauge(cluster, (31, 0), (32, 79)) == 1, "the same XID after a start is another event"


def test_an_applications_xid_is_a_moment_and_withholds_nothing(cluster: Cluster) -> None:
    nodes = Faulty(cluster)
    nodes.see(0)
    card(cluster)
    gauge(cluster, (1, 0), (2, 31), (3, 13), (4, 999))
    assert events() == [
        ("xid", "31", "application", False), ("xid", "13", "application", False), ("xid", "999", "unknown", False),
    ]  # fmt: skip
    assert spans() == [(0, 0, [], "")]


def test_operators_lists(cluster: Cluster, settings: Any) -> None:
    from infra.health import FaultClass

    settings.AIF_HEALTH_XIDS = {94: FaultClass.RESET}
    settings.AIF_HEALTH_WITHHELD = frozenset({"node"})
    Faulty(cluster).see(0)
    card(cluster)
    gauge(cluster, (1, 0), (2, 94))
    assert events() == [("xid", "94", "reset", True)]
    assert spans() == [(0, 0, [], "")], "resets withhold nothing here"


def test_a_person_says_that_it_is_over(cluster: Cluster) -> None:
    Faulty(cluster).see(0)
    card(cluster)
    gauge(cluster, (1, 0), (2, 95))
    event = HealthEvent.objects.get()
    with pytest.raises(Forbidden):
        health_event_end(event=event, reason="x", actor=Actor(kind="user", name="v", platform_role=PLATFORM_VIEWER))
    with pytest.raises(Invalid):
        health_event_end(event=event, reason=" ", actor=ADMIN)
    health_event_end(event=event, reason="nvidia-smi --gpu-reset", actor=ADMIN)
    assert CapacitySpan.objects.get(ended_at__isnull=True).unavailable_cards == 0
    with pytest.raises(Conflict):
        health_event_end(event=event, reason="again", actor=ADMIN)


def test_a_card_of_an_unknown_node_is_left_alone(cluster: Cluster) -> None:
    assert gauge(cluster, (1, 0), (2, 79)) == 0
    assert events() == []


def test_rows_of_slices_repeat_their_card() -> None:
    name = {"__name__": "DCGM_FI_DEV_XID_ERRORS", "UUID": "GPU-1"}
    first, second = [(1, Decimal(0)), (2, Decimal(79))], [(2, Decimal(79))]
    rows: list[tuple[dict[str, str], Any]] = [
        (name | {"GPU_I_ID": "1"}, first), (name | {"GPU_I_ID": "2"}, second),
        ({"__name__": "DCGM_FI_DEV_GPU_UTIL", "UUID": "GPU-1"}, [(1, Decimal(5))]),
    ]  # fmt: skip
    assert xid_samples(rows) == {"GPU-1": [(1, Decimal(0)), (2, Decimal(79))]}
