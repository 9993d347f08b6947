"""The snapshot: free = allocatable - max(our reservations, our observed) - foreign observed, per replica."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from infra import owners
from infra.ledger import UNKNOWN_ZONE
from infra.models import Node, NodePool, Reservation
from infra.placement.model import Sharing
from infra.pod_devices import GPU
from infra.selectors.snapshot import fleet_snapshot
from infra.selectors.usage import taken_by_node
from tests.support.fleet import make_cluster, make_node, make_pod, make_pool

pytestmark = pytest.mark.django_db

ZONE = uuid.uuid4()


def book(node: Node, replica: uuid.UUID | None = None, zone: uuid.UUID = ZONE, **values: object) -> Reservation:
    assert node.pool is not None
    assert node.pool.gpu_type is not None
    return Reservation.objects.create(
        cluster=node.cluster, pool=node.pool, node=node, gpu_type=node.pool.gpu_type, sharing=node.pool.sharing,
        tenant_id=uuid.uuid4(), zone_id=zone, namespace="t-a", deployment_id=uuid.uuid4(),
        replica_id=replica or uuid.uuid4(), member="e/Standalone/0/0", share=0, **values,
    )  # fmt: skip


def free(node: Node) -> int:
    pool = fleet_snapshot().by_name[node.cluster.slug].pools[0]
    return dict(pool.by_name[node.name].free.devices)["gpu"]


def test_foreign_pods_and_promises_add_up() -> None:
    node = make_node(make_pool(), cards=8)
    assert free(node) == 8
    make_pod(node, requests={GPU: "2"})
    assert free(node) == 6
    book(node, cards=3)
    assert free(node) == 3


def test_what_is_promised_and_seen_of_one_replica_counts_once() -> None:
    node, replica = make_node(make_pool(), cards=8), uuid.uuid4()
    book(node, replica, cards=3)
    make_pod(node, requests={GPU: "1"}, replica_id=replica)
    assert free(node) == 5
    make_pod(node, requests={GPU: "4"}, replica_id=replica)  # it holds more than was promised
    assert free(node) == 3


def test_a_replica_that_is_leaving_still_counts_beside_one_that_comes() -> None:
    """Per node, max(2 promised, 2 seen) would leave two cards that nobody can have."""
    node = make_node(make_pool(), cards=4)
    make_pod(node, requests={GPU: "2"}, replica_id=uuid.uuid4())
    book(node, cards=2)
    assert free(node) == 0


def test_ended_gone_and_unbound_pods_hold_nothing() -> None:
    node = make_node(make_pool(), cards=8)
    ways: tuple[dict[str, Any], ...] = ({"ended_at": "2026-11-02T00:00Z"}, {"gone_at": "2026-11-02T00:00Z"})
    for values in ways:
        make_pod(node, requests={GPU: "2"}, **values)
    released = book(node, cards=2)
    released.released_at = released.created_at
    Reservation.objects.filter(pk=released.pk).update(released_at="2026-11-02T00:00Z")
    assert free(node) == 8


def test_a_pod_of_an_older_node_of_that_name_holds_nothing_of_the_new_one() -> None:
    old = make_node(make_pool(), cards=8)
    Node.objects.filter(pk=old.pk).update(gone_at="2026-11-02T00:00Z")
    assert old.pool is not None
    make_node(old.pool, cards=8)
    make_pod(old, requests={GPU: "2"}, gone_at="2026-11-02T00:00Z")
    assert free(old) == 8


def test_hami_cards_keep_their_holders_zone() -> None:
    node = make_node(make_pool("hami"), cards=2, scale=1.5)
    book(node, device_uuid="GPU-node-0-0", memory_mib=20_000, cores=25)
    pool = fleet_snapshot().by_name["alpha"].pools[0]
    placed = pool.by_name["node-0"]
    cards = dict(zip(placed.card_uuids, placed.free.cards, strict=True))
    held, empty = cards["GPU-node-0-0"], cards["GPU-node-0-1"]
    assert (held.free_mib, held.free_cores, held.pods, held.free_slots) == (int(81559 * 1.5) - 20_000, 75, 1, 9)
    assert (held.physical_mib, held.zone) == (81559, str(ZONE))
    assert (empty.free_mib, empty.zone, pool.sharing) == (int(81559 * 1.5), "", Sharing.HAMI)


def test_a_foreign_share_has_a_zone_that_nobody_is_in() -> None:
    node = make_node(make_pool("hami"), cards=1)
    make_pod(node, requests={GPU: "1", "nvidia.com/gpumem": "10k"}, hami=[("GPU-node-0-0", 10_000, 10)])
    card = fleet_snapshot().by_name["alpha"].pools[0].by_name["node-0"].free.cards[0]
    assert (card.free_mib, card.zone) == (71559, UNKNOWN_ZONE)


@pytest.fixture
def zones() -> Iterator[dict[uuid.UUID, uuid.UUID]]:
    known: dict[uuid.UUID, uuid.UUID] = {}
    before = owners._Registered.zones
    owners.register_zones(lambda ids: {one: known[one] for one in ids if one in known})
    yield known
    owners.register_zones(before)


def test_a_claimed_namespaces_share_has_its_tenants_zone(zones: dict[uuid.UUID, uuid.UUID]) -> None:
    node, tenant = make_node(make_pool("hami"), cards=1), uuid.uuid4()
    zones[tenant] = ZONE
    node.cluster.claims.create(namespace="team-a", tenant_id=tenant, valid_from="2026-01-01T00:00Z", created_by="x")
    make_pod(node, requests={GPU: "1"}, hami=[("GPU-node-0-0", 10_000, 10)])
    card = fleet_snapshot().by_name["alpha"].pools[0].by_name["node-0"].free.cards[0]
    assert card.zone == str(ZONE)


def test_a_share_on_an_unknown_card_stops_the_node() -> None:
    node = make_node(make_pool("hami"), cards=2)
    make_pod(node, requests={GPU: "1", "nvidia.com/gpumem": "10k"}, hami=[])
    assert "not known on which cards" in fleet_snapshot().by_name["alpha"].pools[0].by_name["node-0"].unusable


def test_mig_slices_of_a_node_stay_in_one_zone() -> None:
    node = make_node(make_pool("mig"), cards=2)
    book(node, profile="1g.10gb", slices=3)
    make_pod(node, requests={"nvidia.com/mig-1g.10gb": "1"})
    vector = fleet_snapshot().by_name["alpha"].pools[0].by_name["node-0"].free
    assert dict(vector.mig) == {"1g.10gb": 10}
    assert vector.zone == "?"


def test_of_a_single_strategy_node_cards_are_slices(zones: dict[uuid.UUID, uuid.UUID]) -> None:
    """Pods ask for nvidia.com/gpu and get an instance; what is promised and seen of one replica counts once."""
    node = make_node(make_pool("mig"), allocatable={GPU: "14"}, mig_profile="1g.18gb", cards=2)
    replica = uuid.uuid4()
    book(node, replica, profile="1g.18gb", slices=3)
    make_pod(node, requests={GPU: "2"}, replica_id=replica)
    vector = fleet_snapshot().by_name["alpha"].pools[0].by_name["node-0"].free
    assert (dict(vector.mig), vector.zone) == ({"1g.18gb": 11}, str(ZONE))
    make_pod(node, requests={GPU: "1"})
    vector = fleet_snapshot().by_name["alpha"].pools[0].by_name["node-0"].free
    assert (dict(vector.mig), vector.zone) == ({"1g.18gb": 10}, "?")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"ready": None}, "lost (Ready is Unknown)"),
        ({"ready": False}, "not ready"),
        ({"unschedulable": True}, "cordoned"),
        ({"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]}, "tainted dedicated=x:NoSchedule"),
        ({"taints": [{"key": GPU, "effect": "NoSchedule"}]}, ""),
        ({"taints": [{"key": "soft", "effect": "PreferNoSchedule"}]}, ""),
        ({"unavailable_cards": 8, "unavailable_reason": "8 of 8 cards broken"}, "8 of 8 cards broken"),
    ],
)
def test_why_a_node_takes_nothing_new(values: dict[str, Any], why: str) -> None:
    make_node(make_pool(), **values)
    assert fleet_snapshot().by_name["alpha"].pools[0].by_name["node-0"].unusable == why


def test_a_cluster_that_is_not_watched_is_not_ready() -> None:
    condition = {"type": "PodsWatched", "status": "False", "reason": "NotReadable", "message": "no answer"}
    make_cluster(conditions=[condition])
    cluster = fleet_snapshot().by_name["alpha"]
    assert (cluster.ready, cluster.not_ready_reason) == (False, "no answer")


def test_time_sliced_pools_take_nothing() -> None:
    make_node(make_pool("timeslice"))
    assert fleet_snapshot().by_name["alpha"].pools == ()


def test_devices_of_a_class_are_entries() -> None:
    devices = [
        {"name": "h100", "claim": "DRA", "driver": "gpu.nvidia.com", "deviceClassName": "gpu.nvidia.com", "count": 8,
         "attributes": {"cudaComputeCapability": {"version": "9.0.0"}}, "capacity": {"memory": {"value": "81559Mi"}}},
        {"name": "nic", "claim": "Synthetic", "driver": "nic.nvidia.com", "count": 8,
         "attributes": {"linkType": {"string": "infiniband"}}},
    ]  # fmt: skip
    make_node(make_pool(devices=devices), cards=8)
    pool = fleet_snapshot().by_name["alpha"].pools[0]
    assert [(entry.name, entry.claim, entry.gpu_type != "") for entry in pool.entries] == [
        ("h100", "plugin", True), ("nic", "synthetic", False),
    ]  # fmt: skip
    assert dict(pool.by_name["node-0"].free.devices) == {"h100": 8, "nic": 8}
    Node.objects.update(allocatable={"cpu": "8"})
    pool = fleet_snapshot().by_name["alpha"].pools[0]
    assert (pool.entries[0].claim, pool.entries[0].device_class) == ("dra", "gpu.nvidia.com")
    assert dict(pool.by_name["node-0"].free.devices)["h100"] == 8


def test_a_fleet_that_stays_as_it_is_is_read_once() -> None:
    node = make_node(make_pool(), cards=2)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            fleet_snapshot()
        return len(captured)

    fleet_snapshot()
    assert queries() == 2
    make_pod(node, requests={"nvidia.com/gpu": "1"})  # what is taken is read each time
    assert dict(fleet_snapshot().by_name["alpha"].pools[0].by_name["node-0"].free.devices) == {"gpu": 1}
    assert queries() == 2
    # Twice in one transaction: the row's version is another one each time.
    for why, ready in (("not ready", False), ("", True)):
        Node.objects.update(ready=ready)
        assert fleet_snapshot().by_name["alpha"].pools[0].by_name["node-0"].unusable == why
    Node.objects.update(gone_at="2026-11-02T00:00Z")
    assert not fleet_snapshot().by_name["alpha"].pools[0].nodes


def test_the_number_of_queries_does_not_grow() -> None:
    def fleet(clusters: int) -> int:
        for number in range(clusters):
            cluster = make_cluster(f"c-{uuid.uuid4().hex[:6]}")
            for sharing in ("whole", "hami", "mig"):
                node = make_node(make_pool(sharing, cluster=cluster), cards=2, name=f"n{number}-{sharing}")
                make_pod(node)
        with CaptureQueriesContext(connection) as queries:
            fleet_snapshot()
        return len(queries)

    assert fleet(1) == fleet(5) <= 8
    assert NodePool.objects.count() == 18


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/gpumem"])
def test_a_pod_that_asks_for_an_absurd_number_breaks_no_sum(resource: str) -> None:
    """Who may make pods may name a node and any number; the kubelet says no, but the pod is seen first."""
    node = make_node(make_pool(), cards=2)
    make_pod(node, requests={resource: "9223372036854775807", "nvidia.com/gpu": "99999999999"})
    assert taken_by_node([node.pk])
    assert fleet_snapshot().clusters
