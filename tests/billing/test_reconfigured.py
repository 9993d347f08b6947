"""Cards that are handed out in another way from some moment on: what pods held before stays what it was."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from billing.models import Bucket, DeviceAllocation, UsageRecord
from billing.services.metering import meter_cluster
from infra.models import CapacitySpan, Cluster
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

DAY = timedelta(days=1)
WHOLE = "NVIDIA-H100-80GB-HBM3"
SINGLE, LARGER = f"{WHOLE}-MIG-1g.10gb", f"{WHOLE}-MIG-3g.40gb"


@pytest.fixture
def cluster() -> Cluster:
    cluster = make_cluster()
    claim_namespaces(cluster, make_tenant("vision"), ["v"])
    return cluster


def see(
    cluster: Cluster, product: str, hours: int, devices: int, *, replicas: int = 1, resource: str = "nvidia.com/gpu"
) -> None:
    """The node says that it has so many devices of that product; ``replicas`` of them are one card, or one slice."""
    count = {"nvidia.com/gpu.count": str(devices // replicas), "nvidia.com/gpu.replicas": str(replicas)}
    tell(cluster, hours, {resource: str(devices)}, {"nvidia.com/gpu.product": product} | count)


def tell(cluster: Cluster, hours: int, amounts: dict[str, str], labels: dict[str, str]) -> None:
    """The node has these resources and labels."""
    thing: dict[str, Any] = {
        "metadata": {
            "name": "n", "uid": "uid-n", "resourceVersion": str(100 + hours),
            "labels": {"nvidia.com/gpu.memory": "81559"} | labels,
        },
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip
    with system_scope("test"):
        changes = lock_changes(cluster.pk)
        store_nodes(cluster, [NodeSight(read_node(thing), T0 + hours * HOUR)], changes)
        changes.save()


def metered(cluster: Cluster) -> dict[str, tuple[str, str, int]]:
    """Pod → mode, profile, share of each of its devices; and usage says the same."""
    set_watermark(cluster, T0 + DAY)
    meter_cluster(cluster.pk, budget_seconds=600)
    with system_scope("test"):
        rows = DeviceAllocation.objects.filter(bucket=Bucket.TENANTS)
        found = {row.pod_name: (row.sharing, row.profile, row.share) for row in rows}
        for row in rows:
            usage = UsageRecord.objects.filter(allocation_id=row.pk)
            assert row.ended_at is not None
            held = round((row.ended_at - row.started_at) / timedelta(milliseconds=1))
            assert sum(one.charged for one in usage) == row.share * held, row.pod_name
    return found


def pod(name: str, start: int, end: int | None, resource: str = "nvidia.com/gpu") -> Any:
    return pod_evidence(
        name, namespace="v", node="n", start=T0 + start * HOUR, end=None if end is None else T0 + end * HOUR,
        **{"gpu" if resource == "nvidia.com/gpu" else resource: 1},
    )  # fmt: skip


def test_a_whole_card_stays_whole_when_the_node_is_cut_afterwards(cluster: Cluster) -> None:
    see(cluster, WHOLE, 0, 1)
    observe(cluster, pod("before", 1, None))
    see(cluster, SINGLE, 5, 7)
    # Its end is heard of after the node was cut: what it held is worked out anew then.
    observe(cluster, pod("before", 1, 4), pod("after", 6, 8))
    assert metered(cluster) == {"before": ("whole", "", 1_000_000), "after": ("mig", "1g.10gb", 142_857)}


def test_slices_stay_slices_when_the_node_hands_out_whole_cards_again(cluster: Cluster) -> None:
    see(cluster, SINGLE, 0, 7)
    observe(cluster, pod("before", 1, 4))
    assert metered(cluster) == {"before": ("mig", "1g.10gb", 142_857)}
    see(cluster, WHOLE, 5, 1)
    observe(cluster, pod("before", 1, 4))  # it is looked at again, as when its namespace turns out to be another's
    assert metered(cluster) == {"before": ("mig", "1g.10gb", 142_857)}


def test_a_node_that_is_cut_into_other_slices_begins_anew(cluster: Cluster) -> None:
    see(cluster, SINGLE, 0, 7)
    observe(cluster, pod("before", 1, 4))
    see(cluster, LARGER, 5, 2)
    observe(cluster, pod("after", 6, 8))
    assert metered(cluster) == {"before": ("mig", "1g.10gb", 142_857), "after": ("mig", "3g.40gb", 428_571)}
    assert [span.mig_profile for span in CapacitySpan.objects.order_by("started_at")] == ["1g.10gb", "3g.40gb"]


def test_who_shared_a_card_with_three_keeps_a_quarter_when_more_share_it_afterwards(cluster: Cluster) -> None:
    see(cluster, WHOLE, 0, 4, replicas=4)
    observe(cluster, pod("before", 1, None))
    see(cluster, WHOLE, 5, 10, replicas=10)
    observe(cluster, pod("before", 1, 4), pod("after", 6, 8))
    assert metered(cluster) == {"before": ("timeslice", "", 250_000), "after": ("timeslice", "", 100_000)}
    see(cluster, WHOLE, 9, 1)
    observe(cluster, pod("before", 1, 4), pod("after", 6, 8), pod("alone", 10, 12))
    assert metered(cluster) == {
        "before": ("timeslice", "", 250_000), "after": ("timeslice", "", 100_000), "alone": ("whole", "", 1_000_000),
    }  # fmt: skip


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared"])
def test_who_shares_a_slice_holds_a_part_of_its_part(cluster: Cluster, resource: str) -> None:
    see(cluster, SINGLE, 0, 7)
    observe(cluster, pod("before", 1, 4))
    see(cluster, f"{SINGLE}-SHARED", 5, 14, replicas=2, resource=resource)
    observe(cluster, pod("before", 1, 4), pod("after", 6, 8, resource))
    assert metered(cluster) == {"before": ("mig", "1g.10gb", 142_857), "after": ("timeslice", "", 71_428)}
    assert [(span.cards, span.unavailable_cards) for span in CapacitySpan.objects.all()] == [(1, 0), (1, 0)]
