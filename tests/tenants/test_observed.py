"""What pods that nobody reserved for count against a quota."""

from __future__ import annotations

import uuid

import pytest

from infra.models import Device, Node, NodePool
from infra.pod_devices import GPU
from infra.selectors.snapshot import hami_cards
from portal.kernel.scoping import system_scope
from tenants.selectors.holdings import quota_makings
from tenants.selectors.profiles import parts_held
from tenants.selectors.quota import observed_unreserved, quota_lines
from tests.support.fleet import make_node, make_pod, make_pool, make_type
from tests.support.tenants import give_quota, make_tenant
from tests.tenants.factories import CARD

pytestmark = pytest.mark.django_db
TENANT = uuid.uuid4()


def claimed(pool: NodePool) -> Node:
    node = make_node(pool, cards=2)
    node.cluster.claims.create(namespace="team-a", tenant_id=TENANT, valid_from="2026-01-01T00:00Z", created_by="x")
    return node


def counted(node: Node) -> int:
    assert node.pool is not None
    assert node.pool.gpu_type is not None
    return observed_unreserved(TENANT).total(node.pool.gpu_type.pk)


def test_a_share_counts_as_it_is_and_only_in_namespaces_of_the_tenant() -> None:
    node = claimed(make_pool("hami", gpu_type=make_type(memory_mib=80_000)))
    make_pod(node, requests={GPU: "1", "nvidia.com/gpumem": "20k"}, hami=[("GPU-node-0-0", 20_000, 10)])
    assert counted(node) == CARD // 4
    make_pod(node, namespace="of-nobody", requests={GPU: "1"}, hami=[("GPU-node-0-1", 20_000, 10)])
    assert counted(node) == CARD // 4


@pytest.mark.parametrize("record", [[], [("GPU-elsewhere", 1, 0)]])
def test_a_share_of_a_card_that_is_not_known_counts_as_the_card(record: list[tuple[str, int, int]]) -> None:
    node = claimed(make_pool("hami", gpu_type=make_type(memory_mib=80_000)))
    make_pod(node, requests={GPU: "1", "nvidia.com/gpumem": "20k"}, hami=record)
    assert counted(node) == CARD


def test_a_slice_of_a_node_that_calls_slices_cards_counts_as_a_slice() -> None:
    """Strategy single: ``nvidia.com/gpu: 2`` is two slices."""
    node = claimed(make_pool("mig", gpu_type=make_type(compute_slices=7)))
    Node.objects.filter(pk=node.pk).update(allocatable={GPU: "14"}, mig_profile="1g.10gb")
    make_pod(node, requests={GPU: "2"})
    assert counted(node) == 2 * 142_857


def test_a_slice_of_a_card_of_which_nobody_knows_its_slices_is_not_nothing() -> None:
    node = claimed(make_pool("mig", gpu_type=make_type(compute_slices=0)))
    make_pod(node, requests={"nvidia.com/mig-3g.40gb": "1"})
    assert counted(node) == 428_571


@pytest.mark.parametrize("resource", ["nvidia.com/mig-small", "nvidia.com/mig-7g.80gb"])
def test_a_slice_that_the_card_cannot_be_cut_into_counts_as_the_card(resource: str) -> None:
    """Who may make pods may name the node, and any resource."""
    node = claimed(make_pool("mig", gpu_type=make_type(compute_slices=4)))
    make_pod(node, requests={resource: "1"})
    assert counted(node) == CARD
    assert sum(parts_held(TENANT)[node.pool.gpu_type_id].profiles.values()) == 1  # type: ignore[union-attr, index]


def test_the_memory_of_the_card_counts_and_not_that_of_its_type() -> None:
    """Cards of one type may differ, and of a type nobody may know it."""
    gpu_type = make_type(memory_mib=80_000)
    node = claimed(make_pool("hami", gpu_type=gpu_type))
    Device.objects.filter(node=node).update(memory_mib=40_000)
    make_pod(node, requests={GPU: "1", "nvidia.com/gpumem": "20k"}, hami=[("GPU-node-0-0", 20_000, 10)])
    assert counted(node) == CARD // 2
    type(gpu_type).objects.update(memory_mib=0)
    assert counted(node) == CARD // 2
    Device.objects.filter(node=node).update(memory_mib=0)
    assert counted(node) == CARD, "unknown is not zero"


def test_a_register_that_hands_out_too_much_makes_no_share_smaller() -> None:
    """Where nobody but the register tells of a card's memory, its type's counts."""
    node = claimed(make_pool("hami", gpu_type=make_type(memory_mib=80_000)))
    Device.objects.filter(node=node).update(memory_mib=160_000, register_memory_mib=160_000)
    make_pod(node, requests={GPU: "1", "nvidia.com/gpumem": "20k"}, hami=[("GPU-node-0-0", 20_000, 10)])
    assert counted(node) == CARD // 4
    assert {card.physical_mib for card in hami_cards()[node.pk].values()} == {80_000}


def test_used_is_what_running_pods_hold() -> None:
    """A pod whose image is still pulled holds its card, and does not use it yet: as with pods of deployments."""
    tenant = make_tenant()
    node = make_node(make_pool(), cards=4)
    assert node.pool is not None
    node.cluster.claims.create(namespace="team-a", tenant_id=tenant.pk, valid_from="2026-01-01T00:00Z", created_by="x")
    give_quota(tenant, make_type(), 4)
    make_pod(node, requests={GPU: "1"})
    late = make_pod(node, requests={GPU: "2"})
    type(late).objects.filter(pk=late.pk).update(started_at=None)
    with system_scope("test"):
        (line,) = quota_lines(tenant)
        made = quota_makings(tenant, [make_type()])[make_type().pk]
    assert (line.admitted, line.used) == (3 * CARD, CARD)
    assert (made.seen, sum(pod.used for pod in made.pods)) == (3 * CARD, CARD)
