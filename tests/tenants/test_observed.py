"""What pods that nobody reserved for count against a quota."""

from __future__ import annotations

import uuid

import pytest

from infra.models import Node, NodePool
from infra.pod_devices import GPU
from tenants.selectors.quota import observed_unreserved
from tests.support.fleet import make_node, make_pod, make_pool, make_type
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
