"""The history of waiting: spans with the reason, the pool and the ask, and whose guarantee is unused."""

from __future__ import annotations

import pytest

from infra.models import Node, NodePool
from portal.kernel.scoping import system_scope
from tenants.models import GPUQuota, Tenant, WaitSpan
from tenants.services.deployments import deployment_delete, deployment_scale
from tests.support.fleet import SEEN, make_cluster, make_node, make_pool, make_type
from tests.support.tenants import CARD, TESTER, give_quota, make_tenant
from tests.unit.tenants.test_deployment_services import apply, place

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def tenant() -> Tenant:
    """A quota of 2; alpha has a node of 1 card and one of 2, beta one of 1."""
    tenant = make_tenant()
    pool = make_pool(cluster=make_cluster("alpha"))
    make_node(pool, cards=2, name="alpha-0")
    make_node(pool, cards=1, name="alpha-1")
    make_node(make_pool(cluster=make_cluster("beta")), cards=1, name="beta-0")
    give_quota(tenant, make_type(), 2)
    return tenant


def spans(*, ended: bool | None = False) -> list[WaitSpan]:
    with system_scope("test"):
        rows = WaitSpan.objects.select_related("gpu_type").order_by("started_at", "pk")
        return list(rows if ended is None else rows.filter(ended_at__isnull=not ended))


def test_a_full_quota_is_a_span_with_the_owner_of_an_unused_guarantee(tenant: Tenant) -> None:
    other, third = make_tenant("audio"), make_tenant("text")
    for owner, cards in ((other, 3), (third, 1)):
        give_quota(owner, make_type(), 4)
        with system_scope("test"):
            GPUQuota.objects.filter(tenant=owner).update(guaranteed=cards * CARD)
    deployment = place(apply(tenant, replicas=3))
    [span] = spans()
    assert (span.reason, span.rule, span.pods, span.count, span.sharing) == ("QuotaExceeded", "quota", 1, 1, "whole")
    pool = NodePool.objects.get(pk=span.pool_id)
    assert pool.cluster.slug == "alpha", "of the pools that would do, the one with most free cards"
    assert span.cluster_id == pool.cluster_id
    assert span.gpu_type == make_type()
    assert span.part == "engine/Standalone/gpu"
    assert span.owner_tenant_id == other.pk, "three cards unused are more than one"
    place(deployment)
    assert [one.pk for one in spans(ended=None)] == [span.pk], "the same wait is not written twice"
    give_quota(tenant, make_type(), 3)
    place(deployment)
    [ended] = spans(ended=True)
    assert ended.ended_at is not None
    assert ended.ended_at >= ended.started_at
    assert spans() == []


def test_missing_room_and_another_number(tenant: Tenant) -> None:
    give_quota(tenant, make_type(), 20)
    deployment = place(apply(tenant, replicas=6))
    [span] = spans()
    assert (span.reason, span.rule, span.pods, span.owner_tenant_id) == ("NoCapacity", "capacity", 2, None)
    deployment_scale(tenant=tenant, name=deployment.name, replicas=7, actor=TESTER)
    place(deployment)
    [more] = spans()
    assert (more.pods, len(spans(ended=None))) == (3, 2)
    deployment_delete(tenant=tenant, name=deployment.name, actor=TESTER)
    place(deployment)
    assert spans() == [], "what is being deleted waits for no card"


def test_no_pool_would_do(tenant: Tenant) -> None:
    Node.objects.update(gone_at=SEEN)
    place(apply(tenant, replicas=1))
    assert [(one.reason, one.pods) for one in spans()] == [("NoCapacity", 1)]
