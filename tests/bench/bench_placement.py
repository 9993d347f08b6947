"""Placing 10 replicas over 200 clusters that hold 5,000, from a snapshot in memory.

Run: python tests/bench/bench_placement.py (bench_ledger.py is the same with the database). The yardstick, Modelplane
0.3.1 (its own function, same sizes), took 4.5 s. The figure is CPU time (nothing is waited for, so on an idle machine
it is wall time too): the median of several runs, each with a deployment of its own (other selectors, so that no answer
of an earlier run is reused). `warm` is the same deployment asked again, `held_twice` a fleet that holds 10,000.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from infra.placement import (
    Cluster,
    Device,
    DeviceEntry,
    DeviceRequest,
    EngineSpec,
    FreeVector,
    MemberSpec,
    Node,
    Pool,
    Request,
    Sharing,
    Snapshot,
    place,
)
from tests.bench.line import seconds, tell

CLUSTERS = 200
HELD = 5_000
WANTED = 10
YARDSTICK_SECONDS = 4.5
REACH_SECONDS = 0.01
KINDS = (("h100", "81559Mi", 81_559), ("l40s", "46068Mi", 46_068), ("a100", "81920Mi", 81_920))


def entry(kind: int) -> DeviceEntry:
    """The device entry of one of three kinds of cards."""
    name, memory, mib = KINDS[kind]
    device = Device.of("gpu.nvidia.com", {"productName": name, "architecture": name}, {"memory": memory})
    return DeviceEntry("gpu", device, gpu_type=name, count=8, memory_mib=mib)


def fleet(clusters: int = CLUSTERS, held: int = HELD, seed: int = 1) -> Snapshot:
    """Clusters of one to three pools with 16 nodes of 8 cards; `held` cards are taken at random."""
    rng = random.Random(seed)
    layout = [(c, k) for c in range(clusters) for k in range(1 + c % 3)]
    free = {(c, k, n): 8 for c, k in layout for n in range(16)}
    keys = list(free)
    left = held
    while left:
        key = rng.choice(keys)
        if free[key]:
            free[key] -= 1
            left -= 1
    pools: dict[int, list[Pool]] = {}
    for c, k in layout:
        nodes = tuple(
            Node(
                f"node-{c:03d}-{k}-{n:02d}",
                FreeVector.of(devices={"gpu": free[c, k, n]}, cpu_millis=64_000, memory_bytes=512 << 30),
            )
            for n in range(16)
        )
        pools.setdefault(c, []).append(Pool(f"pool-{k}", (entry(k),), Sharing.WHOLE, nodes))
    return Snapshot(
        tuple(
            Cluster(f"cluster-{c:03d}", site=f"site-{c % 5}", pools=tuple(pools[c]), labels={"tier": "prod"})
            for c in range(clusters)
        )
    )


def ask(number: int, zone: str = "zone-a") -> Request:
    """A deployment of its own; the selector's text is new, so nothing about it is remembered."""
    selectors = (f'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{20_000 + number}Mi")) >= 0',)
    member = MemberSpec(devices=(DeviceRequest("gpu", 1, selectors),), cpu_millis=4_000, memory_bytes=16 << 30)
    return Request(
        name=f"deployment-{number}",
        replicas=WANTED,
        engines=(EngineSpec("engine", (member,)),),
        cluster_selector={"tier": "prod"},
        allowed_sites=frozenset({"site-0", "site-1", "site-2", "site-3", "site-4"}),
        zone=zone,
        quota_free={name: 100_000_000 for name, _, _ in KINDS},
    )


def measure(snapshot: Snapshot, numbers: range) -> list[float]:
    """CPU seconds of each placement."""
    times = []
    for number in numbers:
        request = ask(number)
        start = time.process_time()
        plan = place(snapshot, request)
        times.append(time.process_time() - start)
        if len(plan.placements) != WANTED:
            sys.exit(f"placed {len(plan.placements)} of {WANTED}: {plan.summary()}")
    return times


def main() -> None:
    """Print the line."""
    snapshot = fleet()
    place(snapshot, ask(0))  # sets up the CEL environments, once for a process
    cold = measure(snapshot, range(1, 22))
    warm = measure(snapshot, range(1, 22))
    double = measure(fleet(CLUSTERS, HELD * 2), range(30, 41))
    took = statistics.median(cold)
    tell(
        "place 10 over 200 clusters that hold 5,000",
        seconds(took),
        f"Modelplane 0.3.1: {YARDSTICK_SECONDS} s",
        f"1/{YARDSTICK_SECONDS / took:.0f}",
        f"<= {REACH_SECONDS} s",
        met=took <= REACH_SECONDS,
        bench="placement",
        clusters=CLUSTERS,
        held=HELD,
        replicas=WANTED,
        seconds=round(took, 5),
        warm=round(statistics.median(warm), 5),
        held_twice=round(statistics.median(double), 5),
    )


if __name__ == "__main__":
    main()
