"""What pods hold of pools, beside what is promised of them."""

from __future__ import annotations

import uuid

import pytest

from infra.models import Cluster, PodObservation, Reservation
from infra.pod_devices import GPU
from infra.selectors.overview import pool_figures
from infra.services.reservations import Holder, Line, reserve
from tests.support.fleet import make_cluster, make_node, make_pod, make_pool

pytestmark = pytest.mark.django_db


def figures(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """Pool → promised, held; millionths of a card."""
    return {one.pool.name: (one.promised, one.held) for one in pool_figures([cluster])}


def test_held_is_what_pods_have_and_promised_what_deployments_will_have(django_assert_num_queries) -> None:
    cluster = make_cluster()
    whole, shared, cut = (make_pool(sharing, cluster=cluster) for sharing in ("whole", "hami", "mig"))
    node = make_node(whole, name="w")
    make_node(cut, name="m")
    make_node(shared, name="h")
    assert whole.gpu_type is not None
    line = Line(node.pk, whole.pk, whole.gpu_type.pk, "whole", "e/Standalone/0/0/gpu", 2_000_000, cards=2)
    reserve(holder=Holder(uuid.uuid4(), uuid.uuid4(), "t-team", uuid.uuid4(), uuid.uuid4()), lines=[line])
    assert figures(cluster) == {"pool-whole": (2_000_000, 0), "pool-hami": (0, 0), "pool-mig": (0, 0)}
    make_pod(node, requests={GPU: "3"})
    make_pod(shared.nodes.get(), requests={GPU: "1"}, hami=[("GPU-h-0", 81_559 // 2, 10)])
    make_pod(cut.nodes.get(), requests={"nvidia.com/mig-1g.10gb": "2"})
    make_pod(node, requests={GPU: "1"}, gone_at="2026-11-30T00:00Z")
    assert figures(cluster) == {
        "pool-whole": (2_000_000, 3_000_000), "pool-hami": (0, 499_993), "pool-mig": (0, 285_714),
    }  # fmt: skip
    with django_assert_num_queries(8):
        pool_figures([cluster])
    assert (Reservation.objects.count(), PodObservation.objects.count()) == (1, 4)
