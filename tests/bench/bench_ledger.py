"""Placing 10 replicas over 200 clusters that hold 5,000, with the fleet read from PostgreSQL and the devices reserved.

Run: python tests/bench/bench_ledger.py. What a worker does to the ledger for one deployment: the fleet read (each
node's free vector from capacity, reservations and what is seen), the plan made, and each replica's devices promised in
a transaction of its own under its node's lock. The fleet is the one of bench_placement.py. Median of several runs,
each with a deployment of its own; its reservations stay, as they would.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from uuid import UUID

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import bench_placement
from tests.bench.database import bench_database
from tests.bench.line import seconds, tell

RUNS = 11
REACH_SECONDS = 0.2


def store(zone: UUID, tenant: UUID) -> int:
    """The fleet of bench_placement as rows; how many cards are held."""
    from infra.models import Cluster, GPUType, Node, NodePool, Reservation, Site
    from portal.kernel.ids import uuid7
    from portal.kernel.scoping import system_scope
    from tests.support.fleet import ISOLATION, ISOLATION_SAID, SEEN

    types = {
        name: GPUType.objects.create(
            slug=name, name=name, memory_mib=mib,
            attributes={"productName": {"string": name}, "architecture": {"string": name}},
            capacity={"memory": {"value": memory}},
        )
        for name, memory, mib in bench_placement.KINDS
    }  # fmt: skip
    sites = {f"site-{n}": Site.objects.create(slug=f"site-{n}", name=f"site-{n}") for n in range(5)}
    allocatable = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"}
    clusters, pools, nodes, held = [], [], [], []
    for shape in bench_placement.fleet().clusters:
        cluster = Cluster(
            slug=shape.name, name=shape.name, site=sites[shape.site], mode="manage", api_server="https://127.0.0.1:1",
            kubeconfig_ciphertext=b"none", identity=shape.name, labels=dict(shape.labels),
            isolation=ISOLATION, isolation_said=ISOLATION_SAID,
        )  # fmt: skip
        clusters.append(cluster)
        for group in shape.pools:
            pool = NodePool(
                cluster=cluster, name=group.name, sharing="whole", gpu_type=types[group.entries[0].gpu_type]
            )
            pools.append(pool)
            for one in group.nodes:
                node = Node(
                    cluster=cluster, pool=pool, name=one.name, uid=f"{shape.name}/{one.name}", ready=True, cards=8,
                    first_seen_at=SEEN, allocatable=allocatable,
                )  # fmt: skip
                nodes.append(node)
                held += [
                    Reservation(
                        cluster=cluster, pool=pool, node=node, gpu_type=pool.gpu_type, sharing="whole",
                        tenant_id=tenant, zone_id=zone, namespace="t-bench", deployment_id=uuid7(), replica_id=uuid7(),
                        member="engine/Standalone/0/0/gpu", cards=1, share=1_000_000,
                    )
                    for _ in range(8 - dict(one.free.devices)["gpu"])
                ]  # fmt: skip
    Cluster.objects.bulk_create(clusters)
    NodePool.objects.bulk_create(pools)
    Node.objects.bulk_create(nodes, batch_size=1000)
    with system_scope("bench"):
        Reservation.objects.bulk_create(held, batch_size=1000)
    return len(held)


def main() -> None:
    """Print the line."""
    with bench_database("ledger") as clone:
        from django.db import connection
        from django.test.utils import CaptureQueriesContext

        from infra.placement import place
        from infra.selectors.snapshot import fleet_snapshot
        from infra.services.reservations import Holder, lines_for, reserve
        from portal.kernel.ids import uuid7
        from portal.kernel.scoping import system_scope

        zone, tenant = uuid7(), uuid7()
        held = store(zone, tenant)
        assert held == bench_placement.HELD
        with clone.connect("postgres") as administrator:
            administrator.execute("VACUUM ANALYZE")
        steps: dict[str, list[float]] = {"load": [], "place": [], "reserve": [], "all": [], "cpu": []}
        queries = 0
        for number in range(RUNS + 1):
            deployment = uuid7()
            began, cpu = time.perf_counter(), time.process_time()
            with system_scope("bench"):
                snapshot = fleet_snapshot()
                loaded = time.perf_counter()
                plan = place(snapshot, bench_placement.ask(1000 + number, zone=str(zone)))
            planned = time.perf_counter()
            with CaptureQueriesContext(connection) as captured:
                for placement in plan.placements:
                    holder = Holder(tenant, zone, "t-bench", deployment, uuid7())
                    with system_scope("bench"):
                        reserve(holder=holder, lines=lines_for(placement))
            ended = time.perf_counter()
            if len(plan.placements) != bench_placement.WANTED:
                sys.exit(f"placed {len(plan.placements)} of {bench_placement.WANTED}: {plan.summary()}")
            if number:  # the first one sets up the CEL environments and the connection, once for a process
                for name, value in zip(
                    steps,
                    (loaded - began, planned - loaded, ended - planned, ended - began, time.process_time() - cpu),
                    strict=True,
                ):
                    steps[name].append(value)
                queries = len(captured)
        median = {name: statistics.median(values) for name, values in steps.items()}
        best = min(steps["all"])
        tell(
            "place 10 over 200 clusters, with load and reserve",
            seconds(median["all"]),
            f"Modelplane 0.3.1, in memory: {bench_placement.YARDSTICK_SECONDS} s",
            f"1/{bench_placement.YARDSTICK_SECONDS / median['all']:.0f}",
            f"<= {REACH_SECONDS} s",
            met=median["all"] <= REACH_SECONDS,
            bench="ledger",
            held=held,
            seconds={name: round(value, 4) for name, value in median.items()},
            fastest=round(best, 4),
            queries_to_reserve=queries,
        )


if __name__ == "__main__":
    main()
