"""Nodes as they change: capacity in service, when it was lost, types, pools, cards."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.models import CapacitySpan, Cluster, Device, GPUType, Node, NodePool
from infra.node_reading import read_node
from infra.services.capacity import pool_zone_changed
from infra.services.changes import lock_changes
from infra.watcher.items import NodeSight
from infra.watcher.nodes import store_nodes
from tests.support.fleet import make_cluster

pytestmark = pytest.mark.django_db
T0 = datetime(2026, 11, 29, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


class Nodes:
    """Node events of one cluster, each with a higher version."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.version = cluster, 100

    def thing(self, name: str = "n", *, cards: int = 8, ready: str = "True", turned: float = 0, uid: str = "",
              product: str = "NVIDIA-H100-80GB-HBM3", memory: int = 81559, **more: Any) -> dict[str, Any]:  # fmt: skip
        self.version += 1
        allocatable = {"nvidia.com/gpu": str(more.get("allocatable", cards))}
        return {
            "metadata": {
                "name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(self.version),
                "labels": {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": str(memory),
                           "nvidia.com/gpu.count": str(cards), **more.get("labels", {})},
                "annotations": more.get("annotations", {}),
            },
            "spec": {"unschedulable": more.get("cordoned", False)},
            "status": {
                "capacity": {"nvidia.com/gpu": str(cards)}, "allocatable": allocatable,
                "conditions": [{"type": "Ready", "status": ready, "reason": "KubeletNotReady",
                                "lastTransitionTime": at(turned).isoformat()}],
            },
        }  # fmt: skip

    def see(self, minutes: float, *, renewed: float | None = None, **values: Any) -> set[Any]:
        sight = NodeSight(
            read_node(self.thing(**values)), at(minutes), lease_renewed_at=None if renewed is None else at(renewed)
        )
        return self.store([sight])

    def store(self, sights: list[NodeSight], **listed: Any) -> set[Any]:
        changes = lock_changes(self.cluster.pk)
        marks = store_nodes(self.cluster, sights, changes, **listed)
        changes.save()
        return marks

    def delete(self, minutes: float, unwatched_since: float | None = None, **values: Any) -> None:
        since = None if unwatched_since is None else at(unwatched_since)
        self.store([NodeSight(read_node(self.thing(**values)), at(minutes), True, since)])


@pytest.fixture
def nodes(cluster: Cluster) -> Nodes:
    return Nodes(cluster)


def spans(name: str = "n") -> list[tuple[float, float | None, int, int, bool]]:
    """(from minute, to minute, cards, unavailable, lost)"""
    rows = CapacitySpan.objects.filter(node__name=name).order_by("started_at", "pk")
    return [
        (
            (row.started_at - T0).total_seconds() / 60,
            (row.ended_at - T0).total_seconds() / 60 if row.ended_at else None,
            row.cards,
            row.unavailable_cards,
            row.lost,
        )
        for row in rows
    ]


def test_a_lost_node_was_lost_when_its_lease_was_last_renewed(nodes: Nodes) -> None:
    nodes.see(0)
    nodes.see(10, ready="Unknown", turned=9.5, renewed=8.8)
    nodes.see(30, ready="True", turned=29.9)
    assert spans() == [(0, 8.8, 8, 0, False), (8.8, 29.9, 8, 8, True), (29.9, None, 8, 0, False)]
    assert Node.objects.get().ready is True


def test_without_a_lease_the_condition_says_when(nodes: Nodes) -> None:
    nodes.see(0)
    nodes.see(10, ready="Unknown", turned=9.5)
    assert spans() == [(0, 9.5, 8, 0, False), (9.5, None, 8, 8, True)]


def test_ready_false_with_a_live_lease_is_suspect_and_not_lost(nodes: Nodes) -> None:
    nodes.see(0)
    nodes.see(10, ready="False", turned=9)
    assert spans() == [(0, 9, 8, 0, False), (9, None, 8, 8, False)]
    assert CapacitySpan.objects.latest("started_at").reason == "node suspect: Ready is False: KubeletNotReady"


def test_a_lost_node_is_lost_until_it_is_ready_again(nodes: Nodes) -> None:
    """Its kubelet is back and says that it is not ready yet: nobody is charged for that."""
    nodes.see(0)
    nodes.see(10, ready="Unknown", turned=9.5, renewed=8.8)
    nodes.see(20, ready="False", turned=19)
    nodes.see(21, ready="False", turned=19, cordoned=True)
    nodes.see(30, ready="True", turned=29.9)
    nodes.see(40, ready="False", turned=39)
    assert [(start, end, lost) for start, end, _, _, lost in spans()] == [
        (0, 8.8, False), (8.8, 19, True), (19, 29.9, True), (29.9, 39, False), (39, None, False),
    ]  # fmt: skip


def test_a_node_that_was_made_while_nobody_watched_serves_since_it_is_ready(nodes: Nodes) -> None:
    """Not only since the next list: its pods are charged from when they were bound to it."""
    thing = nodes.thing("new", turned=6)
    thing["metadata"]["creationTimestamp"] = at(5).isoformat()
    old = nodes.thing("old", turned=-600)
    old["metadata"]["creationTimestamp"] = at(-600).isoformat()
    sights = [NodeSight(read_node(one), at(10)) for one in (thing, old)]
    nodes.store(sights, listed=frozenset({"uid-new", "uid-old"}), listed_at=at(10), last_proof=at(2))
    assert spans("new") == [(6, None, 8, 0, False)]
    assert spans("old") == [(10, None, 8, 0, False)]


def test_cordon_and_falling_allocatable(nodes: Nodes) -> None:
    nodes.see(0)
    nodes.see(5, allocatable=6)
    nodes.see(6, allocatable=6, cordoned=True)
    nodes.see(7)
    assert spans() == [(0, 5, 8, 0, False), (5, 6, 8, 2, False), (6, 7, 8, 8, False), (7, None, 8, 0, False)]


def test_the_same_again_is_no_change_and_marks_nothing(nodes: Nodes) -> None:
    assert nodes.see(0)
    before = CapacitySpan.objects.get().changed_seq
    assert nodes.see(1) == set()
    assert nodes.see(2) == set()
    assert CapacitySpan.objects.get().changed_seq == before
    assert Node.objects.get().resource_version == str(nodes.version)


def test_an_older_event_changes_nothing(nodes: Nodes) -> None:
    old = read_node(nodes.thing(cards=4))
    nodes.see(1)
    assert nodes.store([NodeSight(old, at(2))]) == set()
    assert Node.objects.get().cards == 8


def test_a_removed_node_is_out_of_service(nodes: Nodes) -> None:
    nodes.see(0)
    nodes.delete(20)
    nodes.delete(21)
    assert spans() == [(0, 20, 8, 0, False)]
    assert Node.objects.get().gone_at == at(20)
    nodes.see(30, uid="another")
    assert spans()[-1] == (30, None, 8, 0, False)
    assert Node.objects.count() == 2


def test_a_node_removed_while_nobody_watched_served_until_the_last_proof(nodes: Nodes) -> None:
    nodes.see(0)
    nodes.delete(20, unwatched_since=12)
    assert spans() == [(0, 12, 8, 0, False)]
    assert Node.objects.get().gone_at == at(20)


def test_missing_in_a_list_is_out_of_service_since_the_last_proof(nodes: Nodes) -> None:
    nodes.see(0)
    nodes.see(0, name="m")
    there = read_node(nodes.thing("m"))
    nodes.store([NodeSight(there, at(30))], listed=frozenset({"uid-m"}), listed_at=at(30), last_proof=at(25))
    assert spans("n") == [(0, 25, 8, 0, False)]
    assert spans("m") == [(0, None, 8, 0, False)]


def test_a_card_that_is_added_or_pulled_counts_from_then(nodes: Nodes) -> None:
    nodes.see(0, cards=8)
    nodes.see(10, cards=7)
    nodes.see(20, cards=0)
    nodes.see(30, cards=8)
    assert spans() == [(0, 10, 8, 0, False), (10, 20, 7, 0, False), (30, None, 8, 0, False)]


def test_rows_of_a_node_never_overlap_whatever_times_come(nodes: Nodes) -> None:
    nodes.see(10)
    nodes.see(11, ready="Unknown", turned=3, renewed=2)  # dated before we saw the node at all
    nodes.see(12, ready="True", turned=1)
    rows = list(CapacitySpan.objects.order_by("started_at", "ended_at"))
    assert all(one.ended_at <= two.started_at for one, two in itertools.pairwise(rows) if one.ended_at)
    assert sum(row.ended_at is None for row in rows) == 1


def test_nodes_without_cards_are_not_kept(nodes: Nodes) -> None:
    nodes.see(0, cards=0)
    assert not Node.objects.exists()


def test_one_type_for_one_product_on_every_cluster(nodes: Nodes) -> None:
    nodes.see(0)
    other = Nodes(make_cluster("beta"))
    other.see(0)
    gpu_type = GPUType.objects.get()
    assert (gpu_type.slug, gpu_type.name) == ("nvidia-h100-80gb-hbm3", "NVIDIA H100 80GB HBM3")
    assert gpu_type.attributes["architecture"] == {"string": "Hopper"}
    assert gpu_type.attributes["cudaComputeCapability"] == {"version": "9.0.0"}
    assert gpu_type.capacity == {"memory": {"value": "81559Mi"}}
    assert NodePool.objects.filter(gpu_type=gpu_type).count() == 2


def test_a_declared_type_with_these_figures_is_taken(nodes: Nodes) -> None:
    declared = GPUType.objects.create(
        slug="hopper-81559-mib", name="Hopper 81559 MiB", memory_mib=81559, source="manifest",
        attributes={"architecture": {"string": "Hopper"}},
    )  # fmt: skip
    nodes.see(0)
    nodes.see(1, name="m", product="NVIDIA-H100-PCIe")  # the same memory, but another product: it is taken already
    declared.refresh_from_db()
    assert declared.product == "NVIDIA-H100-80GB-HBM3"
    assert set(GPUType.objects.values_list("slug", flat=True)) == {"hopper-81559-mib", "nvidia-h100-pcie"}


def test_declared_pools_take_the_nodes_they_select(nodes: Nodes, cluster: Cluster) -> None:
    pool = NodePool.objects.create(cluster=cluster, name="gpu-h100", node_selector={"team.example/pool": "a"})
    nodes.see(0, labels={"team.example/pool": "a"})
    nodes.see(0, name="m")
    nodes.see(0, name="o", labels={"team.example/pool": "a"}, product="NVIDIA-L40S", memory=46068)
    found = dict(Node.objects.values_list("name", "pool__name"))
    assert found == {"n": "gpu-h100", "m": "nvidia-h100-80gb-hbm3-whole", "o": "nvidia-l40s-whole"}
    pool.refresh_from_db()
    assert pool.gpu_type is not None
    assert pool.gpu_type.slug == "nvidia-h100-80gb-hbm3"
    assert Node.objects.get(name="n").labels["team.example/pool"] == "a"


def test_hami_cards_come_move_and_go(nodes: Nodes) -> None:
    def register(*ids: str, healthy: bool = True) -> dict[str, str]:
        cards = [{"id": i, "index": n, "count": 10, "devmem": 163118, "devcore": 100, "health": healthy}
                 for n, i in enumerate(ids)]  # fmt: skip
        return {"hami.io/node-nvidia-register": json.dumps(cards)}

    nodes.see(0, annotations=register("GPU-a", "GPU-b"))
    card = Device.objects.get(uuid="GPU-a")
    assert (card.memory_mib, card.register_memory_mib, card.register_slots) == (81559, 163118, 10)
    nodes.see(1, annotations=register("GPU-a"))
    nodes.see(2, name="m", annotations=register("GPU-b"))
    assert dict(Device.objects.values_list("uuid", "node__name")) == {"GPU-a": "n", "GPU-b": "m"}
    nodes.see(3, annotations={"hami.io/node-nvidia-register": "nonsense"})
    assert Device.objects.get(uuid="GPU-a").gone_at is None, "what can't be read ends nothing"
    nodes.delete(4)
    assert Device.objects.get(uuid="GPU-a").gone_at == at(4)


def test_a_pool_that_changes_its_zone_changes_the_evidence_from_then_on(nodes: Nodes, cluster: Cluster) -> None:
    nodes.see(0)
    zone = cluster.pk
    pool_zone_changed([Node.objects.get().pk], cluster_id=cluster.pk, zone_id=zone, at=at(5))
    assert [row.zone_id for row in CapacitySpan.objects.order_by("started_at")] == [None, zone]
    assert spans() == [(0, 5, 8, 0, False), (5, None, 8, 0, False)]
