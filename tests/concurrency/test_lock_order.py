"""Who takes the locks of quotas, namespaces, tenants and work items takes them in one order: nobody waits in a circle.

Each test holds two transactions at the point where, in another order, each would hold what the other waits for;
PostgreSQL would then end one of them with an error, which :func:`at_once` hands back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection

from infra.models import Cluster, Reservation
from infra.services.claims import namespace_claim_set
from infra.services.inventory import ApplyReport
from portal.kernel.clock import utcnow
from portal.kernel.models import WorkItem
from portal.kernel.problems import Conflict
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import claim, run_item
from tenants.models import ModelDeployment, ModelReplica, QuotaAllotment, Tenant, TenantCluster, TenantNamespace
from tenants.reconcilers import namespace as namespace_reconciler
from tenants.reconcilers.namespace import QuotaSeen
from tenants.services import placing, replicas
from tenants.services.allotments import allotment_fix, allotment_require, quota_locked
from tenants.services.deployments import deployment_apply
from tenants.services.tenantcluster_state import tenant_cluster_ended
from tenants.services.zones import tenant_set_zone
from tests.support.fleet import make_cluster, make_node, make_pool, make_type
from tests.support.tenants import CARD, TESTER, give_quota, make_tenant
from tests.support.threads import at_once
from tests.unit.tenants.manifests import manifest_data

pytestmark = [pytest.mark.django_db(transaction=True)]


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


@pytest.fixture
def tenant(cluster: Cluster) -> Tenant:
    """A quota of 4 on two types, each on a node of one cluster."""
    tenant = make_tenant()
    for slug in ("nvidia-h100", "nvidia-l40s"):
        gpu_type = make_type(slug)
        make_node(make_pool(cluster=cluster, name=slug, gpu_type=gpu_type), cards=4, name=slug)
        give_quota(tenant, gpu_type, 4)
    return tenant


def run(kind: str, object_id: Any) -> None:
    item = WorkItem.objects.get(kind=kind, object_id=object_id)
    WorkItem.objects.filter(pk=item.pk).update(next_attempt_at=item.marked_at, lease_until=None)
    run_item(item.pk)


def placed(tenant: Tenant, name: str, product: str) -> ModelReplica:
    """A replica on a card of that type."""
    cel = f'device.attributes["gpu.nvidia.com"].productName == "{product}"'
    for row in tenant_types(product):
        row.attributes = row.attributes | {"productName": {"string": product}}
        row.save()
    data = manifest_data(name, tenant=tenant.slug, cel=cel)
    deployment = deployment_apply(tenant=tenant, manifest=data, actor=TESTER).deployment
    run("deployment", deployment.pk)
    with system_scope("test"):
        return ModelReplica.objects.get(deployment=deployment)


def tenant_types(product: str) -> Any:
    from infra.models import GPUType

    return GPUType.objects.filter(slug=product)


def when_somebody_waits() -> None:
    """Return when another transaction waits for a lock (or after a while, where the order keeps it from that)."""
    event = threading.Event()
    for _ in range(40):
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if cursor.fetchone()[0]:
                return
        event.wait(0.05)


def no_failures(jobs: list[Callable[[], Any]]) -> None:
    failures = [result for result in at_once(jobs, timeout=60) if isinstance(result, BaseException)]
    assert not failures, failures


def test_a_namespace_is_confirmed_while_something_is_placed(
    tenant: Tenant, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(tenant, "first", "nvidia-h100")
    monkeypatch.setattr(namespace_reconciler, "inventory_apply", lambda **_: ApplyReport())
    holds, loaded = threading.Event(), threading.Event()

    def enforced(wanted: Any) -> QuotaSeen:
        loaded.set()
        assert holds.wait(20)
        return QuotaSeen(counted=True, enforced=True)

    monkeypatch.setattr(namespace_reconciler, "_quota_seen", enforced)
    with system_scope("test"):
        row = TenantNamespace.objects.get()

    def place() -> None:
        assert loaded.wait(20)
        with system_scope("test"):
            quota = next(iter(quota_locked(tenant.pk, [make_type("nvidia-h100").pk]).values()))
            holds.set()
            when_somebody_waits()
            allotment_require(quota=quota, cluster=cluster, namespace=row.name, needed=2 * CARD)

    item = WorkItem.objects.get(kind="namespace", object_id=row.pk)
    no_failures([place, lambda: run_item(item.pk)])
    assert WorkItem.objects.get(pk=item.pk).last_error == ""


def test_replicas_of_two_types_end_at_once(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    ending = [placed(tenant, name, name) for name in ("nvidia-h100", "nvidia-l40s")]
    both, release = threading.Barrier(2), replicas.release

    def released(replica_id: Any) -> int:
        with suppress(threading.BrokenBarrierError):
            both.wait(2)
        return release(replica_id)

    monkeypatch.setattr(replicas, "release", released)

    def end(replica: ModelReplica) -> None:
        with system_scope("test"):
            replicas.replica_ended(replica.pk)

    no_failures([lambda one=one: end(one) for one in ending])
    assert not Reservation.objects.filter(released_at__isnull=True).exists()


def test_replicas_of_deployments_that_wait_end_at_once(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    other = make_tenant("team-vision", zone="zone-ml-team")
    give_quota(other, make_type("nvidia-l40s"), 4)
    ending = [placed(tenant, "one", "nvidia-h100"), placed(other, "two", "nvidia-l40s")]
    with system_scope("test"):
        ModelDeployment.objects.update(waiting_since=utcnow())
    both, wake = threading.Barrier(2), replicas.deployments_wake

    def woken(**values: Any) -> int:
        with suppress(threading.BrokenBarrierError):
            both.wait(2)
        return wake(**values)

    monkeypatch.setattr(replicas, "deployments_wake", woken)

    def end(replica: ModelReplica) -> None:
        with system_scope("test"):
            replicas.replica_ended(replica.pk)

    no_failures([lambda one=one: end(one) for one in ending])


def test_a_tenant_is_moved_only_after_what_is_being_placed_and_takes_it_along(
    tenant: Tenant, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its reservation would stand for a zone that the tenant is not in, and its card be shared across zones."""
    first = placed(tenant, "first", "nvidia-h100")  # rows of before: nothing else refers to the tenant's row
    with system_scope("test"):
        replicas.replica_ended(first.pk)
        assert QuotaAllotment.objects.exists()
    zone = make_tenant("elsewhere").zone
    reserving, reserve = threading.Event(), placing.reserve

    def reserved(**values: Any) -> Any:
        reserving.set()
        when_somebody_waits()
        return reserve(**values)

    monkeypatch.setattr(placing, "reserve", reserved)
    refused: list[Conflict] = []

    def move() -> None:
        assert reserving.wait(20)
        try:
            tenant_set_zone(tenant=tenant, zone=zone, actor=TESTER)
        except Conflict as conflict:
            refused.append(conflict)

    no_failures([lambda: placed(tenant, "second", "nvidia-h100"), move])
    held = Reservation.objects.get(released_at__isnull=True)
    tenant.refresh_from_db()
    assert not refused, "nobody shares its cards, so it takes them along"
    assert tenant.zone_id == zone.pk
    assert held.zone_id == tenant.zone_id


def test_a_tenant_cluster_ends_while_something_is_placed_there_for_the_first_time(
    tenant: Tenant, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one gives a namespace's claim back, the other makes one: both change the cluster's evidence."""
    with system_scope("test"):
        row = TenantCluster.objects.create(
            tenant=tenant, cluster=cluster, name=tenant.slug, endpoint="https://ml.example.test",
            kubernetes_version="1.33.4", chart_version="0.28.0", requested_by="test",
        )  # fmt: skip
        TenantNamespace.objects.create(tenant=tenant, cluster=cluster, name=row.namespace)
        quota = next(iter(quota_locked(tenant.pk, [make_type("nvidia-h100").pk]).values()))
        allotment_fix(quota=quota, cluster=cluster, namespace=row.namespace, amount=CARD)
        namespace_claim_set(
            cluster=cluster, namespace=row.namespace, tenant_id=tenant.pk, valid_from=utcnow(), actor=TESTER
        )
    claimed, ensure = threading.Event(), placing.namespace_ensure

    def ensured(**values: Any) -> Any:
        found = ensure(**values)
        claimed.set()
        when_somebody_waits()
        return found

    monkeypatch.setattr(placing, "namespace_ensure", ensured)

    def end() -> None:
        assert claimed.wait(20)
        with system_scope("test"):
            tenant_cluster_ended(row.pk)

    no_failures([lambda: placed(tenant, "first", "nvidia-h100"), end])
    with system_scope("test"):
        assert TenantCluster.objects.get(pk=row.pk).deleted_at is not None


def test_nothing_is_placed_for_a_tenant_that_was_suspended_since_the_plan(tenant: Tenant) -> None:
    cel = 'device.driver == "gpu.nvidia.com"'
    data = manifest_data("late", tenant=tenant.slug, cel=cel)
    deployment = deployment_apply(tenant=tenant, manifest=data, actor=TESTER).deployment
    item = claim(WorkItem.objects.get(kind="deployment", object_id=deployment.pk).pk)
    assert item is not None
    from tenants.reconcilers.deployment import _act, _view, decide

    view = _view(item)
    assert view is not None
    decision = decide(view)
    Tenant.objects.filter(pk=tenant.pk).update(state="suspended")
    with pytest.raises(placing.Stale, match="suspended"):
        _act(item, view, decision)
    assert not Reservation.objects.exists()
