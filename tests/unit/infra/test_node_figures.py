"""What no node has: it must not keep the other nodes of its cluster from being stored, or their hours from summing."""

from __future__ import annotations

from typing import Any

import pytest

from infra.models import Cluster, Node
from infra.node_reading import read_node
from tests.support.fleet import make_cluster

from .test_watch_nodes import Nodes

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


@pytest.fixture
def nodes(cluster: Cluster) -> Nodes:
    return Nodes(cluster)


@pytest.mark.parametrize(
    ("labels", "more"),
    [
        ({"nvidia.com/gpu.replicas": "9999999999"}, {}),
        ({"nvidia.com/gpu.count": "9999999999"}, {}),
        ({"nvidia.com/gpu.memory": "9" * 20}, {}),
        ({}, {"cards": 5_000_000_000}),
    ],
)
def test_a_figure_that_no_node_has_is_no_figure(nodes: Nodes, labels: dict[str, str], more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^node n: .* is more than any node has"):
        read_node(nodes.thing(labels=labels, **more))


@pytest.mark.parametrize(
    "register",
    [
        "GPU-a,10,81559,4294967295,NVIDIA-H100,0,true:",
        "GPU-a,10,17592186044134,100,NVIDIA-H100,0,true:",
        "GPU-a,10,81559,100,NVIDIA-H100,0,true,99999:",
        f"GPU-{'a' * 90},10,81559,100,NVIDIA-H100,0,true:",
        '[{"id": "GPU-a", "count": 10, "devmem": 81559, "devcore": 4294967295, "health": true}]',
    ],
)
def test_a_register_that_can_not_be_stored_makes_the_cards_unavailable(nodes: Nodes, register: str) -> None:
    nodes.see(0, cards=1, annotations={"hami.io/node-nvidia-register": register})
    row = Node.objects.get()
    assert (row.cards, row.unavailable_cards) == (1, 1)
    assert row.unavailable_reason.startswith("HAMi's register can't be read: card GPU-a")
