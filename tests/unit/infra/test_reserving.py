"""Promises: what fits, what does not and with which numbers, and that nothing is ever promised twice."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.models import Device, Node, Reservation
from infra.placement.model import DeviceGrant, EnginePlacement, Placement, PodPlacement, Role, Sharing
from infra.pod_devices import GPU
from infra.services.reservations import Holder, Line, NoCapacity, lines_for, move, release, reserve
from tests.support.fleet import SEEN, make_cluster, make_node, make_pod, make_pool

pytestmark = pytest.mark.django_db
ZONE = uuid.uuid4()


def holder(zone: uuid.UUID = ZONE) -> Holder:
    return Holder(uuid.uuid4(), zone, "t-team", uuid.uuid4(), uuid.uuid4())


def line(node: Node, member: str = "e/Standalone/0/0", **what: Any) -> Line:
    assert node.pool is not None
    assert node.pool.gpu_type is not None
    return Line(node.pk, node.pool.pk, node.pool.gpu_type.pk, node.pool.sharing, member, 1, **what)


def share(node: Node, card: int = 0, memory: int = 10_000, cores: int = 10) -> Line:
    return line(node, device_uuid=f"GPU-{node.name}-{card}", memory_mib=memory, cores=cores)


def refused(*lines: Line, by: Holder | None = None) -> NoCapacity:
    before = Reservation.objects.count()
    with pytest.raises(NoCapacity) as caught:
        reserve(holder=by or holder(), lines=lines)
    assert Reservation.objects.count() == before
    return caught.value


def test_the_refusal_has_the_numbers() -> None:
    node = make_node(make_pool(), cards=8)
    make_pod(node, requests={GPU: "3"})
    reserve(holder=holder(), lines=[line(node, cards=4)])
    error = refused(line(node, cards=2))
    assert error.facts == {"cluster": "alpha", "pool": "pool-whole", "node": "node-0", "resource": "whole cards",
                           "wanted": 2, "free": 1}  # fmt: skip
    assert "has 1 whole cards free, 2 are wanted" in error.sentence


def test_all_lines_or_none() -> None:
    pool = make_pool()
    first, second = make_node(pool, cards=2, name="a"), make_node(pool, cards=1, name="b")
    refused(line(first, "e/Worker/0/0", cards=2), line(second, "e/Worker/0/1", cards=2))


def test_lines_of_one_node_are_added_up() -> None:
    node = make_node(make_pool(), cards=3)
    refused(line(node, "e/Worker/0/0", cards=2), line(node, "e/Worker/0/1", cards=2))


def test_a_hami_card_is_full_when_one_of_its_dimensions_is() -> None:
    node = make_node(make_pool("hami"), cards=1)
    reserve(holder=holder(), lines=[share(node, memory=60_000, cores=10)])
    assert refused(share(node, memory=30_000)).facts["resource"] == "MiB of card GPU-node-0-0"
    reserve(holder=holder(), lines=[share(node, memory=1_000, cores=90)])
    assert refused(share(node, memory=1_000, cores=1)).facts["resource"] == "% cores of card GPU-node-0-0"


def test_scaled_memory_may_be_promised_beyond_the_card() -> None:
    node = make_node(make_pool("hami"), cards=1, scale=2.0)
    for _ in range(2):
        reserve(holder=holder(), lines=[share(node, memory=81_000, cores=40)])
    refused(share(node, memory=2_000, cores=1))


def test_mig_slices_are_counted_by_profile() -> None:
    node = make_node(make_pool("mig"), cards=1)
    reserve(holder=holder(), lines=[line(node, profile="1g.10gb", slices=7)])
    assert refused(line(node, profile="1g.10gb", slices=1)).facts["free"] == 0
    assert refused(line(node, profile="3g.40gb", slices=1)).facts["resource"] == "MIG slices 3g.40gb"


@pytest.mark.parametrize("sharing", ["hami", "mig"])
def test_nobody_of_another_zone_shares_a_card(sharing: str) -> None:
    node = make_node(make_pool(sharing), cards=2)
    ask = share(node) if sharing == "hami" else line(node, profile="1g.10gb", slices=1)
    reserve(holder=holder(), lines=[ask])
    assert refused(ask, by=holder(uuid.uuid4())).facts["reason"] == "zone"
    reserve(holder=holder(), lines=[ask])
    if sharing == "hami":  # another card of the node is another matter
        reserve(holder=holder(uuid.uuid4()), lines=[share(node, card=1)])


def test_whole_cards_of_one_node_may_go_to_several_zones() -> None:
    node = make_node(make_pool(), cards=2)
    for _ in range(2):
        reserve(holder=holder(uuid.uuid4()), lines=[line(node, cards=1)])


def test_a_pool_of_another_zone_is_closed() -> None:
    node = make_node(make_pool(zone_id=uuid.uuid4()))
    assert refused(line(node, cards=1)).facts["reason"] == "kept for another trust zone"


@pytest.mark.parametrize(
    ("cluster", "node", "why"),
    [
        ({"mode": "observe"}, {}, "on a cluster that is only observed"),
        ({"paused": True}, {}, "on a cluster that is paused"),
        ({}, {"unschedulable": True}, "cordoned"),
        ({}, {"ready": None}, "lost (Ready is Unknown)"),
        ({}, {"gone_at": "2026-11-02T00:00Z"}, "no longer there"),
    ],
)
def test_where_nothing_new_may_go(cluster: dict[str, Any], node: dict[str, Any], why: str) -> None:
    row = make_node(make_pool(cluster=make_cluster(**cluster)), **node)
    assert refused(line(row, cards=1)).facts["reason"] == why


def test_a_node_that_changed_its_mode_since_the_plan_is_refused() -> None:
    node = make_node(make_pool("whole"))
    refused(replace(line(node, cards=1), sharing="mig", cards=0, profile="1g.10gb", slices=1))


def test_a_foreign_share_without_a_card_stops_the_node() -> None:
    node = make_node(make_pool("hami"))
    make_pod(node, requests={GPU: "1", "nvidia.com/gpumem": "1k"}, hami=[])
    assert refused(share(node)).facts["unpinned"] == 1


def test_a_record_that_names_a_card_the_register_never_had_stops_the_node() -> None:
    node = make_node(make_pool("hami"))
    make_pod(node, requests={GPU: "1", "nvidia.com/gpumem": "60k"}, hami=[("GPU-elsewhere", 1, 0)])
    assert refused(share(node)).facts["unpinned"] == 1


def test_a_card_that_left_the_register_leaves_the_others_usable() -> None:
    node = make_node(make_pool("hami"), cards=2)
    make_pod(node, requests={GPU: "1", "nvidia.com/gpumem": "1k"}, hami=[("GPU-node-0-1", 1_000, 5)])
    Device.objects.filter(uuid="GPU-node-0-1").update(gone_at=SEEN)
    reserve(holder=holder(), lines=[share(node)])


@pytest.mark.parametrize("what", [{}, {"cards": 1, "device_uuid": "GPU-x", "memory_mib": 1}, {"profile": "1g.10gb"}])
def test_a_line_that_is_none(what: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="one kind of device"):
        reserve(holder=holder(), lines=[line(make_node(make_pool()), **what)])


def test_releasing_makes_room_once_the_pods_are_gone() -> None:
    node, who = make_node(make_pool(), cards=2), holder()
    reserve(holder=who, lines=[line(node, cards=2)])
    pod = make_pod(node, requests={GPU: "2"}, replica_id=who.replica_id)
    assert release(who.replica_id) == 1
    assert release(who.replica_id) == 0
    refused(line(node, cards=1))
    pod.delete()
    reserve(holder=holder(), lines=[line(node, cards=2)])


def test_who_holds_something_moves() -> None:
    pool, who = make_pool(), holder()
    first, second = make_node(pool, cards=2, name="a"), make_node(pool, cards=2, name="b")
    reserve(holder=who, lines=[line(first, cards=2)])
    with pytest.raises(ValueError, match="move"):
        reserve(holder=who, lines=[line(second, cards=2)])
    move(holder=who, lines=[line(second, cards=2)])
    live = Reservation.objects.filter(released_at=None)
    assert [row.node_id for row in live] == [second.pk]
    move(holder=who, lines=[line(second, cards=1)])  # within what it held itself
    with pytest.raises(NoCapacity):
        move(holder=who, lines=[line(first, cards=3)])
    assert [row.cards for row in live.all()] == [1], "a move that fails leaves what was held"


def test_lines_of_a_plan() -> None:
    node = make_node(make_pool("hami"), cards=2)
    grant = DeviceGrant("gpu", "gpu", "nvidia-h100-80gb-hbm3", 2, 250_001, cards=("GPU-node-0-0", "GPU-node-0-1"),
                        memory_mib=10_000, cores=13)  # fmt: skip
    nic = DeviceGrant("nic", "nic", "", 1, 0)
    pod = PodPlacement(Role.STANDALONE, 0, 0, "node-0", (grant, nic))
    plan = Placement(0, "alpha", (EnginePlacement("vllm", "pool-hami", Sharing.HAMI, (pod,)),))
    lines = lines_for(plan)
    assert [(one.device_uuid, one.memory_mib, one.cores, one.share) for one in lines] == [
        ("GPU-node-0-0", 10_000, 13, 125_001), ("GPU-node-0-1", 10_000, 13, 125_000),
    ]  # fmt: skip
    assert {one.member for one in lines} == {"vllm/Standalone/0/0/gpu"}
    reserve(holder=holder(), lines=lines)
    Node.objects.filter(pk=node.pk).update(gone_at="2026-11-02T00:00Z")
    with pytest.raises(NoCapacity, match="no longer there"):
        lines_for(plan)


asks = st.lists(st.tuples(st.integers(1, 40_000), st.integers(0, 60), st.integers(0, 1), st.booleans()), max_size=12)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asks)
def test_promised_shares_never_exceed_a_card(db: None, wanted: list[tuple[int, int, int, bool]]) -> None:
    Reservation.objects.all().delete()
    node = Node.objects.filter(cluster__slug="alpha").first() or make_node(make_pool("hami"), cards=2)
    for memory, cores, card, leave in wanted:
        who = holder()
        try:
            reserve(holder=who, lines=[share(node, card, memory, cores)])
        except NoCapacity:
            continue
        if leave:
            release(who.replica_id)
    for card in range(2):
        rows = Reservation.objects.filter(released_at=None, device_uuid=f"GPU-node-0-{card}")
        assert sum(row.memory_mib for row in rows) <= 81559
        assert sum(row.cores for row in rows) <= 100
        assert len(rows) <= 10


@pytest.mark.parametrize("before", ["whole", "hami", "mig"])
@pytest.mark.parametrize("after", ["whole", "hami", "mig"])
@pytest.mark.parametrize("seen", [False, True])
def test_cards_that_are_handed_out_in_another_way_are_still_held(before: str, after: str, seen: bool) -> None:
    """A node of one card; it is promised (or a pod has it) as it was handed out before, and then it is cut, shared, or
    made whole: nobody gets it a second time."""
    if before == after:
        return
    pool = make_pool(before)
    node = make_node(pool, cards=1)
    asks = {
        "whole": ({GPU: "1"}, None, {"cards": 1}),
        "hami": ({GPU: "1", "nvidia.com/gpumem": "10k"}, [("GPU-node-0-0", 10_000, 10)],
                 {"device_uuid": "GPU-node-0-0", "memory_mib": 10_000, "cores": 10}),
        "mig": ({"nvidia.com/mig-1g.10gb": "1"}, None, {"profile": "1g.10gb", "slices": 1}),
    }  # fmt: skip
    requests, record, what = asks[before]
    if seen:
        make_pod(node, requests=requests, hami=record)
    else:
        reserve(holder=holder(), lines=[line(node, **what)])
    other = make_pool(after, cluster=pool.cluster, gpu_type=pool.gpu_type)
    resources = {"whole": {GPU: "1"}, "hami": {GPU: "10"}, "mig": {GPU: "0", "nvidia.com/mig-1g.10gb": "7"}}[after]
    if after == "hami":
        Device.objects.create(
            cluster=pool.cluster, node=node, uuid="GPU-node-0-0", memory_mib=81_559, register_memory_mib=81_559,
            register_cores=100, register_slots=10, first_seen_at=SEEN,
        )  # fmt: skip
    node.pool, node.allocatable = other, {"cpu": "192", "memory": "2Ti", **resources}
    node.save()
    refused(line(node, **asks[after][2]))


@pytest.mark.parametrize("seen", [False, True])
def test_a_slice_with_an_attribute_is_one_whichever_way_it_is_spelled(seen: bool) -> None:
    """The resource writes ``.me`` where the profile is called ``+me``."""
    node = make_node(make_pool("mig"), profile="1g.10gb.me", slices=2)
    ask = line(node, profile="1g.10gb+me", slices=1)
    who = holder()
    reserve(holder=who, lines=[ask])
    if seen:
        make_pod(node, requests={"nvidia.com/mig-1g.10gb.me": "1"}, replica_id=who.replica_id)
    assert refused(replace(ask, slices=2)).facts["free"] == 1
    reserve(holder=holder(), lines=[ask])
