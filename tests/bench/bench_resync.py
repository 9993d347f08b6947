"""The slow comparison of 10,000 unchanged objects on a real API server, against a LIST of the same objects.

Run: python tests/bench/bench_resync.py [--objects N]. Both clients are the portal's own. Counted beside the time: what
the server was asked to change (its audit log), and what came into the work queue. Afterwards one object is changed
behind our back: the comparison must find exactly that one, or it would have compared nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.database import bench_database
from tests.bench.line import seconds, tell
from tests.bench.planes import bench_planes

OBJECTS, ROUNDS = 10_000, 5
REACH = 2.0
NAMESPACE = "t-bench"


def main() -> None:
    """Print the line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--objects", type=int, default=OBJECTS)
    objects = parser.parse_args().objects
    with bench_planes(clusters=1, nodes=1) as planes, bench_database("resync"):
        from infra.kube.client import KubeClient
        from infra.models import AppliedObject
        from infra.names import FIELD_MANAGER, MANAGED_BY, selector
        from infra.services.clusters import cluster_connect, site_create
        from portal.kernel.actors import PLATFORM_ADMIN, Actor
        from portal.kernel.models import WorkItem
        from portal.kernel.scoping import system_scope
        from tenants.reconcilers.resync import resync_cluster

        (served,) = planes.values()
        admin = Actor(kind="user", name="platform-admin", platform_role=PLATFORM_ADMIN)
        cluster = cluster_connect(
            slug=served.name, site=site_create(slug="site", actor=admin), mode="manage",
            kubeconfig=served.kubeconfig.read_text(), actor=admin,
        )  # fmt: skip
        root = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        served.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})

        def make(number: int) -> None:
            metadata = {"name": f"object-{number}", "labels": {MANAGED_BY: FIELD_MANAGER}}
            status, answer = served.call("POST", root, {"metadata": metadata, "data": {"n": str(number)}})
            assert status == 201, answer

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(make, range(objects)))
        client = KubeClient.for_cluster(cluster)
        ours = selector({MANAGED_BY: FIELD_MANAGER})
        listed = client.list_all("v1", "ConfigMap", label_selector=ours, metadata_only=True).items
        assert len(listed) == objects
        with system_scope("bench"):
            AppliedObject.objects.bulk_create(
                [
                    AppliedObject(
                        cluster=cluster, owner_kind="replica", owner_id=uuid4(), api_version="v1", kind="ConfigMap",
                        namespace=NAMESPACE, name=item["metadata"]["name"], uid=item["metadata"]["uid"],
                        resource_version=item["metadata"]["resourceVersion"], digest="bench", generation=1,
                    )
                    for item in listed
                ],
                batch_size=1000,
            )  # fmt: skip
        marks = WorkItem.objects.count()
        since = served.audit.mark()
        compared, lists = [], []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            client.list_all("v1", "ConfigMap", label_selector=ours, metadata_only=True)
            lists.append(time.perf_counter() - began)
            began = time.perf_counter()
            assert resync_cluster(cluster) == 0, "nothing was changed"
            compared.append(time.perf_counter() - began)
        writes = len(served.audit.writes(since=since))
        queued = WorkItem.objects.count() - marks
        status, _ = served.call(
            "PATCH", f"{root}/object-1", {"data": {"n": "other"}}, media="application/merge-patch+json"
        )
        assert status == 200
        assert resync_cluster(cluster) == 1, "the one that was changed"
        took, reading = statistics.median(compared), statistics.median(lists)
        tell(
            f"resync {objects:,} unchanged objects",
            f"{seconds(took)}, {writes} writes to the cluster, {queued} to the queue",
            f"LIST of the same objects: {seconds(reading)}",
            f"{took / reading:.2f}x",
            f"0 writes, <= {REACH:g}x",
            met=took / reading <= REACH and writes == 0 and queued == 0,
            bench="resync",
            objects=objects,
            seconds=[round(value, 3) for value in compared],
            yardstick_seconds=[round(value, 3) for value in lists],
            writes=writes,
            queued=queued,
        )


if __name__ == "__main__":
    main()
