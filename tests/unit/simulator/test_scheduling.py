"""Scheduler filters, messages, HAMi's choice and the kubelets' devices, on a cluster without a server."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from simulator.clock import Timing
from simulator.cluster import Cluster
from simulator.controllers import fit
from simulator.controllers.hami import ALLOCATED, HamiScheduler, parse_allocated
from simulator.controllers.scheduler import Scheduler
from simulator.devices import NoDevices
from simulator.fleet import ClusterSpec, Gpu, Mig, Pool
from simulator.kinds import EVENT, NAMESPACE, POD
from simulator.machinery import furnish, furnish_devices
from simulator.objects import annotations_of, name_of
from simulator.options import Options
from tests.unit.simulator.conftest import pod, recorded

H100 = Gpu("NVIDIA-H100-80GB-HBM3", "NVIDIA H100 80GB HBM3", 8, 81559, "hopper")
A100 = Gpu("NVIDIA-A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", 8, 81920, "ampere")


def lab(*pools: Pool, hami: str = "shares") -> Cluster:
    """A cluster of those pools with the namespace `n`; its clock stands still."""
    cluster = Cluster(ClusterSpec("lab", hami=hami, pools=pools), Timing(), [], "seed", lambda: 1_800_000_000.0)
    furnish_devices(cluster, "seed")
    furnish(cluster)
    cluster.registry.create(NAMESPACE, "", {"metadata": {"name": "n"}}, Options())
    return cluster


def made(cluster: Cluster, body: dict[str, Any]) -> dict[str, Any]:
    return cluster.registry.create(POD, "n", body, Options()).obj


RECORDED_LAB = (
    Pool("whole", 2, "whole", H100, labels={"pool": "whole"}),
    Pool("hami", 2, "hami", A100, labels={"pool": "hami"}),
    Pool("mig", 2, "mig", H100, labels={"pool": "mig"}),
)


def test_the_recorded_sentence() -> None:
    cluster = lab(*RECORDED_LAB)
    big = made(cluster, pod("too-big", 16, nodeSelector={"pool": "whole"}))
    (row,) = [p for p in recorded("pods.json")["items"] if p["metadata"]["name"] == "too-big"]
    assert Scheduler(cluster).choose(big).message == row["status"]["conditions"][0]["message"]


def test_reasons_by_node() -> None:
    taint = {"key": "dedicated", "value": "a", "effect": "NoSchedule"}
    cluster = lab(Pool("a", 1, "whole", H100), Pool("b", 1, "whole", H100, taints=(taint,)), Pool("c", 1))
    scheduler = Scheduler(cluster)
    first = made(cluster, pod("p0", 8))
    scheduler.bind(first, scheduler.choose(first))
    assert scheduler.choose(made(cluster, pod("p1", 8))).message == (
        "0/3 nodes are available: 1 node(s) had untolerated taint {dedicated: a}, 2 Insufficient nvidia.com/gpu. "
        "no new claims to deallocate, preemption: 0/3 nodes are available: 1 No preemption victims found for "
        "incoming pod, 2 Preemption is not helpful for scheduling."
    )
    tolerant = made(cluster, pod("t", 8, tolerations=[{"key": "dedicated", "operator": "Exists"}]))
    assert scheduler.choose(tolerant).node == "lab-b-0000"


@pytest.mark.parametrize(
    ("expressions", "fields", "hit"),
    [
        ([{"key": "aifactory.dev/pool", "operator": "In", "values": ["a"]}], [], True),
        ([{"key": "aifactory.dev/pool", "operator": "NotIn", "values": ["a"]}], [], False),
        ([{"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": ["80000"]}], [], True),
        ([], [{"key": "metadata.name", "operator": "In", "values": ["lab-a-0000"]}], True),
        ([], [{"key": "metadata.name", "operator": "In", "values": ["lab-a-0001"]}], False),
        ([], [], False),
    ],
)
def test_required_affinity(expressions: Any, fields: Any, hit: bool) -> None:
    cluster = lab(Pool("a", 1, "whole", H100))
    term = {"matchExpressions": expressions, "matchFields": fields}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    body = made(cluster, pod("p", affinity={"nodeAffinity": required}))
    node = cluster.node("lab-a-0000")
    assert node
    assert fit.matches_node(body, node) is hit


def test_spread_over_nodes() -> None:
    cluster = lab(Pool("a", 3, "whole", H100))
    scheduler = Scheduler(cluster)
    for number in range(3):
        body = made(cluster, pod(f"p{number}", 2))
        scheduler.bind(body, scheduler.choose(body))
    assert len({p["spec"]["nodeName"] for p in cluster.store.objects(POD)}) == 3
    assert cluster.pods.asked("lab-a-0000") == {"nvidia.com/gpu": Fraction(2)}


SHARE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "20000", "nvidia.com/gpucores": "25"}


def bound(cluster: Cluster, name: str, limits: dict[str, str], **notes: str) -> Any:
    body = made(cluster, pod(name, limits=limits, annotations=notes))
    scheduler = HamiScheduler(cluster)
    choice = scheduler.choose(body)
    if choice.node:
        scheduler.bind(body, choice)
    return choice


def test_hami_shares_and_their_annotations() -> None:
    cluster = lab(Pool("whole", 1, "whole", H100), Pool("hami", 2, "hami", A100))
    uuids = {card.uuid for card in cluster.devices["lab-hami-0000"].cards}
    choice = bound(cluster, "a", SHARE)
    found = cluster.registry.find(POD, "n", "a")
    assert found
    assert found["spec"]["schedulerName"] == "hami-scheduler"
    assert found["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] == "20k"
    ((uuid, memory, cores),) = parse_allocated(annotations_of(found)[ALLOCATED])
    assert (memory, cores) == (20000, 25)
    assert uuid in uuids
    assert annotations_of(found)[ALLOCATED] == f"{uuid},NVIDIA,20000,25:;"
    assert annotations_of(found)["hami.io/vgpu-node"] == choice.node
    HamiScheduler(cluster).reconcile(("n", "a"))
    again = cluster.registry.find(POD, "n", "a")
    assert again
    assert annotations_of(again)["hami.io/bind-phase"] == "success"


def test_hami_fills_a_node_and_spreads_over_its_cards() -> None:
    cluster = lab(Pool("hami", 2, "hami", A100))
    choices = [bound(cluster, f"p{number}", SHARE) for number in range(8)]
    assert {choice.node for choice in choices} == {"lab-hami-0000"}
    cards = [parse_allocated((choice.annotations or {})[ALLOCATED])[0][0] for choice in choices]
    assert len(set(cards)) == 8


def test_hami_takes_the_named_card() -> None:
    cluster = lab(Pool("hami", 2, "hami", A100))
    wanted = cluster.devices["lab-hami-0001"].cards[5].uuid
    notes = {"nvidia.com/use-gpuuuid": wanted}
    for number in range(4):
        choice = bound(cluster, f"p{number}", SHARE, **notes)
        assert choice.node == "lab-hami-0001"
        assert parse_allocated((choice.annotations or {})[ALLOCATED]) == [(wanted, 20000, 25)]
    choice = bound(cluster, "one-more", SHARE, **notes)
    assert not choice.node
    assert choice.message.startswith("0/2 nodes are available: 1 CardInsufficientMemory, 1 CardUuidMismatch.")


def test_hami_two_cards_percentages_and_exclusive() -> None:
    cluster = lab(Pool("hami", 1, "hami", A100), hami="all")
    two = bound(cluster, "two", {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "10000", "nvidia.com/gpucores": "30"})
    rows = parse_allocated((two.annotations or {})[ALLOCATED])
    assert len({uuid for uuid, _, _ in rows}) == 2
    half = bound(cluster, "half", {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"})
    assert parse_allocated((half.annotations or {})[ALLOCATED])[0][1:] == (40960, 0)
    alone = bound(cluster, "alone", {"nvidia.com/gpu": "1"})
    assert parse_allocated((alone.annotations or {})[ALLOCATED])[0][1:] == (81920, 100)
    full = bound(cluster, "full", {"nvidia.com/gpu": "6"})
    assert not full.node
    assert "1 ExclusiveDeviceAllocateConflict" in full.message


def test_devices_go_to_pods_and_come_back() -> None:
    cluster = lab(Pool("mig", 1, "mig", H100, mig=Mig(per_card=7)))
    devices = cluster.devices["lab-mig-0000"]
    first = made(cluster, pod("a", limits={"nvidia.com/mig-1g.10gb": "3"}))
    held = devices.assign(first)
    assert [row.instance for row in held] == [7, 8, 9]
    assert devices.assign(first) == held
    second = made(cluster, pod("b", limits={"nvidia.com/mig-1g.10gb": "2"}))
    assert not {(r.uuid, r.instance) for r in devices.assign(second)} & {(r.uuid, r.instance) for r in held}
    devices.lost.update(card.uuid for card in devices.cards[1:])
    third = made(cluster, pod("c", limits={"nvidia.com/mig-1g.10gb": "3"}))
    with pytest.raises(NoDevices, match="Requested: 3, Available: 2"):
        devices.assign(third)
    devices.free(first["metadata"]["uid"])
    assert len(devices.assign(third)) == 3


def test_names_of_nodes_are_unique() -> None:
    cluster = lab(*RECORDED_LAB)
    assert sorted(cluster.devices) == sorted({name_of(n) for n in (cluster.node(d) for d in cluster.devices) if n})
    uuids = [card.uuid for devices in cluster.devices.values() for card in devices.cards]
    assert len(uuids) == len(set(uuids)) == 48


def test_events_count_up_and_end() -> None:
    now = [1_800_000_000.0]
    cluster = Cluster(ClusterSpec("lab"), Timing(), [], "seed", lambda: now[0])
    cluster.registry.create(NAMESPACE, "", {"metadata": {"name": "n"}}, Options())
    about = made(cluster, pod("p"))
    for _ in range(3):
        cluster.event(about, "BackOff", "again", "kubelet", warning=True)
    (found,) = cluster.store.objects(EVENT)
    assert (found["count"], found["type"]) == (3, "Warning")
    for _ in range(2):
        cluster.event(about, "FailedScheduling", "no room", "default-scheduler", warning=True, action="Scheduling")
    series = next(e for e in cluster.store.objects(EVENT) if e["reason"] == "FailedScheduling")
    assert series["series"]["count"] == 2
    assert (series["firstTimestamp"], series["eventTime"][:4]) == (None, "2027")
    now[0] += 3601
    cluster.event(about, "Killing", "end", "kubelet")
    assert [e["reason"] for e in cluster.store.objects(EVENT)] == ["Killing"]
