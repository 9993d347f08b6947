"""A node that is made again under its name keeps its cards: what pods held on it before stays what it was."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from billing.models import DeviceAllocation, UsageRecord
from billing.services.metering import meter_cluster
from infra.models import Cluster
from infra.node_reading import read_node
from infra.services.changes import lock_changes
from infra.watcher.items import NodeSight
from infra.watcher.nodes import store_nodes
from portal.kernel.clock import HOUR
from portal.kernel.scoping import system_scope
from tests.billing.factories import (
    T0,
    claim_namespaces,
    make_cluster,
    make_tenant,
    observe,
    pod_evidence,
    set_watermark,
)

pytestmark = pytest.mark.django_db

RECORD = (("hami.io/bind-phase", "success"), ("hami.io/vgpu-devices-allocated", "GPU-a,NVIDIA,81920,0:;"))


@pytest.fixture
def cluster() -> Cluster:
    cluster = make_cluster()
    claim_namespaces(cluster, make_tenant("vision"), ["v"])
    return cluster


def see(cluster: Cluster, uid: str, hours: int, *, deleted: bool = False) -> None:
    """The node tells of a card of 80 GiB, of which HAMi hands out twice as much."""
    thing: dict[str, Any] = {
        "metadata": {
            "name": "n", "uid": uid, "resourceVersion": str(100 + hours),
            "labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920",
                       "nvidia.com/gpu.count": "1"},
            "annotations": {"hami.io/node-nvidia-register": "GPU-a,10,163840,100,NVIDIA-A100-SXM4-80GB,0,true:"},
        },
        "status": {
            "capacity": {"nvidia.com/gpu": "10"}, "allocatable": {"nvidia.com/gpu": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip
    with system_scope("test"):
        changes = lock_changes(cluster.pk)
        store_nodes(cluster, [NodeSight(read_node(thing), T0 + hours * HOUR, deleted)], changes)
        changes.save()


def pod(end: int | None) -> Any:
    """It asked for half of what HAMi hands out of a card, which is all that the card has."""
    made = pod_evidence(
        "a", namespace="v", node="n", start=T0 + HOUR, end=None if end is None else T0 + end * HOUR,
        gpu=1, **{"nvidia.com/gpumem-percentage": 50},
    )  # fmt: skip
    return replace(made, scheduler="hami-scheduler", annotations=RECORD)


def metered(cluster: Cluster, hours: int) -> tuple[int, str, int]:
    """Share and card of the pod, and what it was charged so far, millionths·hours."""
    set_watermark(cluster, T0 + timedelta(hours=hours))
    meter_cluster(cluster.pk, budget_seconds=600)
    with system_scope("test"):
        row = DeviceAllocation.objects.get()
        charged = sum(UsageRecord.objects.filter(allocation_id=row.pk).values_list("charged", flat=True))
        return row.share, row.device_uuid, charged // 3_600_000


def test_what_a_pod_held_stays_when_its_node_is_made_again(cluster: Cluster) -> None:
    see(cluster, "uid-1", 0)
    observe(cluster, pod(None))
    assert metered(cluster, 3) == (1_000_000, "GPU-a", 2_000_000)
    see(cluster, "uid-1", 4, deleted=True)
    see(cluster, "uid-2", 5)
    observe(cluster, pod(4))  # its end is heard of after the node came back
    assert metered(cluster, 8) == (1_000_000, "GPU-a", 3_000_000)
