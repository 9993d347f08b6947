"""Idle hours as the meter writes them: by reason, exactly the capacity hours' idle time, and with who was blocked."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction

from billing.models import BlockedHour, CapacityHour, DeviceAllocation, IdleHour
from billing.services.metering import meter_again, meter_cluster
from infra.models import Cluster, Device, Node, Reservation
from portal.kernel.clock import HOUR, Interval
from portal.kernel.scoping import system_scope
from tenants.models import ModelDeployment, Tenant, WaitSpan
from tests.billing.factories import (
    T0,
    claim_namespaces,
    make_cluster,
    make_gpu_type,
    make_node,
    make_tenant,
    observe,
    pod_evidence,
    set_watermark,
)

pytestmark = pytest.mark.django_db
CARD_HOUR = 3_600_000_000_000
COLUMNS = ("no_demand", "quota", "fragmented", "stranded", "reserved", "pending", "zone")


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


def waits(tenant: Tenant, node: Node, start: datetime, end: datetime | None, **values: object) -> WaitSpan:
    with system_scope("test"):
        deployment = ModelDeployment.objects.create(tenant=tenant, name=f"d-{uuid4().hex[:8]}", spec={}, created_by="t")
        facts = {"reason": "NoCapacity", "rule": "capacity", "sharing": "whole", "count": 1, "pods": 1} | values
        return WaitSpan.objects.create(
            tenant=tenant, deployment=deployment, part="e/Standalone/gpu", cluster_id=node.cluster_id,
            pool_id=node.pool_id, gpu_type=node.pool.gpu_type,
            started_at=start, ended_at=end, **facts,
        )  # fmt: skip


def reserve(tenant: Tenant, node: Node, cards: int, start: datetime, end: datetime | None = None) -> Reservation:
    row = Reservation.objects.create(
        cluster=node.cluster, pool=node.pool, node=node, gpu_type=node.pool.gpu_type, sharing="whole",
        tenant_id=tenant.pk, zone_id=tenant.zone_id, namespace="v", deployment_id=uuid4(), replica_id=uuid4(),
        member="e/Standalone/0", cards=cards, share=cards * 1_000_000, released_at=end,
    )  # fmt: skip
    Reservation.objects.filter(pk=row.pk).update(created_at=start)
    return row


def meter(cluster: Cluster, hours: int = 1) -> None:
    set_watermark(cluster, T0 + hours * HOUR)
    while not meter_cluster(cluster.pk, budget_seconds=600).done:
        pass
    check(cluster)


def check(cluster: Cluster) -> None:
    """Every capacity hour's idle time has its reasons, and nothing else has."""
    idle = {
        (row.node_id, row.gpu_type_id, row.sharing, row.hour): row.idle
        for row in CapacityHour.objects.filter(cluster=cluster)
        if row.idle
    }
    found = {
        (row.node_id, row.gpu_type_id, row.sharing, row.hour): sum(getattr(row, name) for name in COLUMNS)
        for row in IdleHour.objects.filter(cluster=cluster)
        if row.idle
    }
    assert found == idle
    blocked: dict[object, int] = {}
    for row in BlockedHour.objects.filter(cluster=cluster):
        blocked[row.node_id, row.hour] = blocked.get((row.node_id, row.hour), 0) + row.units
    quota = {(r.node_id, r.hour): r.quota for r in IdleHour.objects.filter(cluster=cluster) if r.quota}
    assert blocked == quota


def hours_of(node: Node, hour: datetime = T0) -> dict[str, float]:
    """Card-hours by reason, without those that are 0."""
    row = IdleHour.objects.get(node=node, hour=hour)
    return {name: getattr(row, name) / CARD_HOUR for name in (*COLUMNS, "geometry", "lopsided") if getattr(row, name)}


def test_nobody_waits_and_a_zone(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    claim_namespaces(cluster, tenant, ["v"])
    free, kept = make_node(cluster, cards=4), make_node(cluster, "node-1", cards=2, zone_id=tenant.zone_id)
    observe(cluster, pod_evidence("p", namespace="v", node="node-0", gpu=3, start=T0, end=T0 + HOUR / 2))
    meter(cluster, 2)
    assert hours_of(free) == {"no_demand": 2.5}
    assert hours_of(free, T0 + HOUR) == {"no_demand": 4}
    assert hours_of(kept) == {"zone": 2}


def test_blocked_by_a_quota_with_the_owner_of_the_guarantee(cluster: Cluster) -> None:
    asking, owner = make_tenant("vision"), make_tenant("audio")
    node, full = make_node(cluster, cards=4), make_node(cluster, "node-1", cards=1)
    claim_namespaces(cluster, asking, ["v"])
    observe(cluster, pod_evidence("p", namespace="v", node="node-1", gpu=1, start=T0))
    span = waits(asking, node, T0 + HOUR / 4, T0 + HOUR * 3 / 4, reason="QuotaExceeded", rule="quota", count=2, pods=1,
                 owner_tenant_id=owner.pk)  # fmt: skip
    meter(cluster)
    assert hours_of(node) == {"quota": 1.0, "no_demand": 3.0}
    assert not IdleHour.objects.filter(node=full).exists(), "a full card has no idle hour"
    [row] = BlockedHour.objects.all()
    assert (row.tenant_id, row.owner_tenant_id, row.units) == (asking.pk, owner.pk, CARD_HOUR)
    assert row.deployment_id == span.deployment_id


def test_fragmented_over_two_nodes(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    left, right = make_node(cluster, cards=3), make_node(cluster, "node-1", cards=2)
    waits(tenant, left, T0, None, count=4, pods=5)
    meter(cluster)
    assert (hours_of(left), hours_of(right)) == ({"fragmented": 3}, {"fragmented": 1, "no_demand": 1})


def test_an_ask_is_counted_in_its_own_pool_only(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    here = make_node(cluster, cards=2)
    there = make_node(cluster, "node-1", gpu_type=make_gpu_type("a100"), cards=2)
    waits(tenant, here, T0, None, reason="QuotaExceeded", rule="quota")
    waits(tenant, here, T0, None, reason="PriceAboveLimit", rule="price", pods=9)
    meter(cluster)
    assert hours_of(here) == {"quota": 1, "no_demand": 1}, "a price limit is no demand for this card"
    assert hours_of(there) == {"no_demand": 2}


def test_reserved_until_a_pod_of_the_replica_is_bound(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    claim_namespaces(cluster, tenant, ["v"])
    node = make_node(cluster, cards=4)
    promised = reserve(tenant, node, 2, T0 - HOUR)
    pod = pod_evidence("p", namespace="v", node="node-0", gpu=2, start=T0 + HOUR / 2)
    observe(cluster, pod)
    cluster.pods.filter(uid=pod.uid).update(replica_id=promised.replica_id)
    other = reserve(tenant, node, 1, T0 + HOUR * 3 / 4, T0 + HOUR)
    meter(cluster, 2)
    assert other.pk
    # Two cards for half an hour, then one for a quarter; the rest of the four is nobody's wish.
    assert hours_of(node) == {"reserved": 1.25, "no_demand": 1.75}
    assert hours_of(node, T0 + HOUR) == {"no_demand": 2}


def hami_node(cluster: Cluster, cards: int = 2) -> Node:
    gpu_type = make_gpu_type("a100", memory_mib=80_000)
    node = make_node(cluster, "hami-0", gpu_type=gpu_type, sharing="hami", cards=cards)
    for index in range(cards):
        Device.objects.create(
            cluster=cluster, node=node, uuid=f"GPU-{index}", index=index, memory_mib=80_000, register_memory_mib=80_000,
            register_cores=100, register_slots=10, first_seen_at=T0,
        )  # fmt: skip
    return node


def test_a_shared_card_whose_cores_are_short(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    claim_namespaces(cluster, tenant, ["v"])
    node = hami_node(cluster)
    waits(tenant, node, T0, T0 + HOUR / 2, sharing="hami", memory_mib=32_000, cores=40, pods=3)
    observe(
        cluster,
        pod_evidence("a", namespace="v", node="hami-0", gpu=1, gpumem=8_000, gpucores=70, start=T0),
        pod_evidence("b", namespace="v", node="hami-0", gpu=1, gpumem=40_000, gpucores=20, start=T0),
    )
    set_watermark(cluster, T0)
    meter_cluster(cluster.pk)
    with system_scope("test"):  # as HAMi's record would have bound them
        DeviceAllocation.objects.filter(pod_name="a").update(device_uuid="GPU-0")
        DeviceAllocation.objects.filter(pod_name="b").update(device_uuid="GPU-1")
    meter(cluster)
    # Card 0: 30 % idle, of which 90 % of memory and 30 % of cores are free: stranded while the ask for 40/40 waits.
    # Card 1: 50 % idle with room for it (50/80), and the ask is about to be placed there: 40 %. What that leaves
    # (10/40) is stranded for the two asks that remain.
    found = hours_of(node)
    assert found.pop("lopsided") == pytest.approx(0.6 + 0.3)
    assert found == {"stranded": 0.2, "pending": 0.2, "no_demand": pytest.approx(0.4)}


def test_mig_geometry_stands_beside(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    claim_namespaces(cluster, tenant, ["v"])
    node = make_node(cluster, "mig-0", sharing="mig", cards=1)
    Node.objects.filter(pk=node.pk).update(capacity={"nvidia.com/mig-1g.10gb": "3", "nvidia.com/mig-2g.20gb": "1"})
    waits(tenant, node, T0, None, sharing="mig", profile="3g.40gb")
    observe(cluster, pod_evidence("p", namespace="v", node="mig-0", mig_1g_10gb=1, start=T0, end=T0 + HOUR))
    meter(cluster)
    found = hours_of(node)
    assert found["geometry"] == pytest.approx(2 / 7, abs=1e-5), "5 of 7 slices are cut"
    assert found["stranded"] == pytest.approx(3 / 7, abs=1e-5), "four slices are free, and none is a 3g"
    assert found["no_demand"] == pytest.approx(1 / 7, abs=1e-5)


def test_late_evidence_rewrites_the_hour(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    claim_namespaces(cluster, tenant, ["v"])
    node = make_node(cluster, cards=2)
    span = waits(tenant, node, T0, None, reason="QuotaExceeded", rule="quota", pods=5)
    meter(cluster, 2)
    assert hours_of(node) == {"quota": 2}
    observe(cluster, pod_evidence("late", namespace="v", node="node-0", gpu=2, start=T0, end=T0 + HOUR * 3 / 2))
    meter(cluster, 2)
    assert not IdleHour.objects.filter(node=node, hour=T0).exists()
    assert hours_of(node, T0 + HOUR) == {"quota": 1}
    with system_scope("test"):
        WaitSpan.objects.filter(pk=span.pk).update(ended_at=T0 + timedelta(minutes=105))
    stamp = IdleHour.objects.get(node=node).updated_at
    meter_again(cluster.pk, Interval(T0, T0 + 2 * HOUR))
    check(cluster)
    assert hours_of(node, T0 + HOUR) == {"quota": 0.5, "no_demand": 0.5}
    again = IdleHour.objects.get(node=node).updated_at
    assert again >= stamp
    meter_again(cluster.pk, Interval(T0, T0 + 2 * HOUR))
    assert IdleHour.objects.get(node=node).updated_at == again, "what is right already is left alone"


def test_the_database_refuses_reasons_that_are_not_the_idle_time(cluster: Cluster) -> None:
    node = make_node(cluster)
    with pytest.raises(IntegrityError, match="idle_hour_adds_up"), transaction.atomic():
        IdleHour.objects.create(cluster=cluster, node=node, sharing="whole", hour=T0, idle=5, no_demand=4)
