"""1,000 deployments on real API servers: from the last commit until every object is applied at its generation, against
`kubectl apply --server-side` of the same objects.

Run: python tests/bench/bench_converge.py [--deployments N] [--workers N]. Two clusters; each deployment has one
replica with one card. The workers are processes of their own that run the work queue's due items, started
before; nothing is worked on until the last deployment is committed. Ours places, reserves, applies, looks at what came
of it and records that. kubectl then applies the very same manifests into another namespace of the same servers, one
kubectl for each cluster at the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.database import ROOT, bench_database
from tests.bench.line import seconds, tell
from tests.bench.planes import CARDS, bench_planes

DEPLOYMENTS, WORKERS, CLUSTERS = 1000, 4, 2
REACH = 1.5
PATIENCE = 1200.0
WATCHER_TICK = 5.0
YARDSTICK = "t-yardstick"


@contextmanager
def warm_workers(count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that begin to run due items when a line is written to them."""
    command = [sys.executable, "-m", "tests.support.worker", "--serve", "deployment", "replica", "namespace"]
    workers = [
        subprocess.Popen(command, cwd=ROOT, env=os.environ.copy(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         text=True, process_group=0)
        for _ in range(count)
    ]  # fmt: skip
    try:
        yield workers
    finally:
        for worker in workers:
            os.killpg(worker.pid, 9)  # the group is the worker's own: it, and the fork that works
            worker.wait(20)


def elsewhere(manifest: dict[str, Any]) -> dict[str, Any]:
    """The same object for the yardstick's namespace."""
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": YARDSTICK}}


def wait_until(done: Any, what: str) -> None:
    """Ask now and then."""
    until = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < until, f"{what} did not come about within {PATIENCE:.0f} s"
        time.sleep(0.2)


def main() -> None:
    """Print the line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--deployments", type=int, default=DEPLOYMENTS)
    parser.add_argument("--workers", type=int, default=WORKERS)
    given = parser.parse_args()
    nodes = -(-given.deployments // (CARDS * CLUSTERS)) + 1
    with bench_planes(clusters=CLUSTERS, nodes=nodes) as planes, bench_database("converge"):
        from django.db.models import F

        from portal.kernel.scoping import system_scope
        from tenants.models import ModelReplica
        from tenants.render import render_replica
        from tenants.services.deployments import deployment_apply
        from tenants.stored import replica_facts
        from tests.support.estate import estate
        from tests.support.tenants import TESTER
        from tests.unit.tenants.manifests import manifest_data

        with estate(planes, *planes, clear=False, tick=WATCHER_TICK) as made:
            made.quota("h100", given.deployments)
            deployment_apply(tenant=made.tenant, manifest=manifest_data("warm"), actor=TESTER)
            made.until(lambda: made.ready("warm"), "a first deployment")
            with warm_workers(given.workers) as workers:
                began = time.perf_counter()
                for number in range(given.deployments - 1):
                    deployment_apply(tenant=made.tenant, manifest=manifest_data(f"model-{number}"), actor=TESTER)
                committing = time.perf_counter() - began

                def applied() -> bool:
                    """Each replica is recorded as applied, and looked at, at its generation."""
                    with system_scope("bench"):
                        rows = ModelReplica.objects.filter(deleted_at__isnull=True)
                        return rows.filter(observed_generation__gte=F("generation")).count() >= given.deployments

                began = time.perf_counter()
                for worker in workers:
                    assert worker.stdin is not None
                    worker.stdin.write("\n")
                    worker.stdin.flush()
                wait_until(applied, "the apply of every deployment")
                took = time.perf_counter() - began
            objects: dict[str, list[dict[str, Any]]] = {name: [] for name in planes}
            with system_scope("bench"):
                rows = ModelReplica.objects.filter(deleted_at__isnull=True)
                for row in rows.select_related("cluster", "deployment", "tenant"):
                    facts = replica_facts(row, row.deployment, row.tenant, plain_slices=frozenset())
                    objects[row.cluster.slug] += [elsewhere(manifest) for manifest in render_replica(facts)]
        yardstick = kubectl(planes, objects)
    count = sum(len(rows) for rows in objects.values())
    tell(
        f"converge {given.deployments:,} deployments ({count:,} objects)",
        f"{seconds(took)} with {given.workers} workers",
        f"kubectl apply --server-side: {seconds(yardstick)}",
        f"{took / yardstick:.2f}x",
        f"<= {REACH:g}x",
        met=took / yardstick <= REACH,
        bench="converge",
        deployments=given.deployments,
        objects=count,
        seconds=round(took, 3),
        committing_seconds=round(committing, 3),
        yardstick_seconds=round(yardstick, 3),
    )


def kubectl(planes: Any, objects: dict[str, list[dict[str, Any]]]) -> float:
    """Seconds for one kubectl per cluster, side by side. Raises AssertionError where one of them fails."""
    with tempfile.TemporaryDirectory(prefix="aif-bench-") as folder:
        for name, rows in objects.items():
            planes[name].call("POST", "/api/v1/namespaces", {"metadata": {"name": YARDSTICK}})
            (Path(folder) / f"{name}.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": rows}))
        began = time.perf_counter()
        running = [
            subprocess.Popen(
                [planes.programs["kubectl"], "--kubeconfig", str(planes[name].kubeconfig), "apply", "--server-side",
                 "--field-manager", "kubectl", "-f", str(Path(folder) / f"{name}.json")],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )
            for name in objects
        ]  # fmt: skip
        for each in running:
            _, said = each.communicate(timeout=PATIENCE)
            assert each.returncode == 0, said[-2000:]
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
