"""What waits is woken by whatever may end its waiting; what is held nowhere any more gives the quota back."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from infra.kube.apply import Owner
from infra.models import Cluster, NamespaceClaim, Node, PodObservation, Reservation
from infra.services import clusters
from infra.services.changes import lock_changes
from infra.services.inventory import ApplyReport
from infra.watcher.items import NodeSight
from infra.watcher.nodes import store_nodes
from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.clock import utcnow
from portal.kernel.models import WorkItem
from portal.kernel.problems import Conflict
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import RetryAfter, run_item
from tenants.models import ModelDeployment, ModelReplica, QuotaAllotment, Tenant, TenantNamespace
from tenants.reconcilers import namespace as namespace_reconciler
from tenants.reconcilers.namespace import QuotaSeen
from tenants.services.deployments import deployment_apply
from tenants.services.tenants import tenant_set_state
from tests.support.fleet import make_cluster, make_node, make_pod, make_pool, make_type
from tests.support.tenants import CARD, TESTER, give_quota, make_tenant
from tests.unit.infra.test_watch_nodes import Nodes
from tests.unit.tenants.manifests import manifest_data

pytestmark = pytest.mark.django_db(transaction=True)
ADMIN = Actor(kind="user", name="platform-admin", user_id=uuid4(), platform_role=PLATFORM_ADMIN)


@pytest.fixture
def tenant() -> Tenant:
    """A quota of 4 on two clusters with one node of 2 cards each."""
    tenant = make_tenant()
    for slug in ("alpha", "beta"):
        make_node(make_pool(cluster=make_cluster(slug)), cards=2, name=f"{slug}-0")
    give_quota(tenant, make_type(), 4)
    return tenant


@pytest.fixture(autouse=True)
def bundles(monkeypatch: pytest.MonkeyPatch) -> list[Owner]:
    """Clusters that take every bundle; the owners of those that were applied."""
    applied: list[Owner] = []

    def apply(*, owner: Owner, **_: Any) -> ApplyReport:
        applied.append(owner)
        return ApplyReport()

    monkeypatch.setattr(namespace_reconciler, "inventory_apply", apply)
    monkeypatch.setattr(namespace_reconciler, "_quota_seen", lambda wanted: QuotaSeen(counted=True, enforced=True))
    return applied


def run(kind: str, object_id: Any) -> Any:
    item = WorkItem.objects.get(kind=kind, object_id=object_id)
    WorkItem.objects.filter(pk=item.pk).update(next_attempt_at=item.marked_at, lease_until=None)
    outcome = run_item(item.pk)
    assert outcome is not None, WorkItem.objects.get(pk=item.pk).last_error
    return outcome


def deploy(tenant: Tenant, name: str, **values: Any) -> ModelDeployment:
    """Applied, and planned until it knows its state."""
    deployment = deployment_apply(tenant=tenant, manifest=manifest_data(name, **values), actor=TESTER).deployment
    run("deployment", deployment.pk)
    run("deployment", deployment.pk)
    with system_scope("test"):
        return ModelDeployment.objects.get(pk=deployment.pk)


def replicas(deployment: ModelDeployment) -> list[ModelReplica]:
    with system_scope("test"):
        return list(ModelReplica.objects.filter(deployment=deployment, deleted_at__isnull=True))


def is_due(deployment: ModelDeployment) -> bool:
    item = WorkItem.objects.get(kind="deployment", object_id=deployment.pk)
    return item.next_attempt_at is not None and item.next_attempt_at <= utcnow()


@pytest.fixture
def waiting(tenant: Tenant) -> ModelDeployment:
    """Five cards on four."""
    give_quota(tenant, make_type(), 9)
    deployment = deploy(tenant, "waits", replicas=5)
    assert deployment.waiting_since is not None
    assert not is_due(deployment)
    return deployment


def test_who_begins_to_wait_looks_again_at_once(tenant: Tenant) -> None:
    """What was freed while it planned woke nobody: it was not written down yet that it waits."""
    deployment = deployment_apply(tenant=tenant, manifest=manifest_data("w", replicas=5), actor=TESTER).deployment
    first, second = run("deployment", deployment.pk), run("deployment", deployment.pk)
    assert isinstance(first, RetryAfter)
    assert isinstance(second, RetryAfter)
    assert first.seconds <= 1 < second.seconds


@pytest.mark.parametrize("change", ["resume", "update", "mode"])
def test_a_cluster_that_changes_wakes_who_waits(waiting: ModelDeployment, change: str) -> None:
    cluster = Cluster.objects.get(slug="alpha")
    if change == "resume":
        Cluster.objects.filter(pk=cluster.pk).update(paused=True)
        clusters.cluster_resume(cluster=cluster, actor=ADMIN)
    elif change == "update":
        clusters.cluster_update(cluster=cluster, labels={"tier": "gold"}, actor=ADMIN)
    else:
        other = make_cluster("gamma", mode="observe")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(clusters, "probe", lambda *_, **__: None)
            patch.setattr(clusters, "_require_identity", lambda *_: None)
            patch.setattr(clusters.Credentials, "loads", lambda _: None)
            patch.setattr(clusters.crypto, "decrypt", lambda _: b"")
            clusters.cluster_set_mode(cluster=other, mode="manage", actor=ADMIN)
    assert is_due(waiting)


def seen(cluster: Cluster, **values: Any) -> set[str]:
    """The kinds that a sight of a node marks."""
    nodes = Nodes(cluster)
    nodes.version = 10_000 + values.pop("version", 0)
    from infra.node_reading import read_node

    with system_scope("test"):
        changes = lock_changes(cluster.pk)
        sights = [NodeSight(read_node(nodes.thing(**values)), utcnow())]
        marks = store_nodes(cluster, sights, changes)
        changes.save()
    return {mark.kind for mark in marks}


def test_a_node_with_more_to_give_wakes_who_waits_and_one_with_less_does_not(waiting: ModelDeployment) -> None:
    cluster = Cluster.objects.get(slug="alpha")
    assert "deployment" in seen(cluster, name="new", cards=4, version=1)
    assert "deployment" not in seen(cluster, name="new", cards=4, cordoned=True, version=2)
    assert "deployment" in seen(cluster, name="new", cards=4, version=3)
    assert "deployment" not in seen(cluster, name="new", cards=4, allocatable=3, version=4)
    assert "deployment" not in seen(make_cluster("watched", mode="observe"), name="n", cards=4)


def test_a_suspended_tenant_that_is_active_again_gets_its_places(tenant: Tenant) -> None:
    before = deploy(tenant, "before")
    with system_scope("test"):
        row = TenantNamespace.objects.get(cluster=replicas(before)[0].cluster)
    run("namespace", row.pk)
    tenant_set_state(tenant=tenant, state="suspended", actor=ADMIN)
    late = deployment_apply(tenant=tenant, manifest=manifest_data("late"), actor=TESTER).deployment
    run("deployment", late.pk)
    assert not replicas(late)
    tenant_set_state(tenant=tenant, state="active", actor=ADMIN)
    assert is_due(late)
    with system_scope("test"):
        row.refresh_from_db()
    # A generation that nobody was told to apply would keep what waits for its namespace waiting for ever.
    assert row.observed_generation == row.generation


def test_an_abandoned_cluster_gives_the_quota_back(tenant: Tenant) -> None:
    deployment = deploy(tenant, "there", replicas=2, clusterSelector={})
    lost = replicas(deployment)[0].cluster
    pods = make_pod(Node.objects.get(cluster=lost), namespace=tenant.namespace)
    assert pods.gone_at is None
    clusters.cluster_abandon(cluster=lost, reason="the site burned down", actor=ADMIN)
    assert is_due(deployment)
    for _ in range(3):
        run("deployment", deployment.pk)
        for replica in replicas(deployment):
            if replica.deleting_at is not None:
                run("replica", replica.pk)
    with system_scope("test"):
        for row in TenantNamespace.objects.all():
            run("namespace", row.pk)
        parts = {part.cluster.slug: part.amount for part in QuotaAllotment.objects.select_related("cluster")}
    other = next(slug for slug in ("alpha", "beta") if slug != lost.slug)
    assert parts == {lost.slug: 0, other: 2 * CARD}
    assert {replica.cluster.slug for replica in replicas(deployment)} == {other}


def test_a_part_that_is_held_no_longer_does_not_block_the_quota(tenant: Tenant) -> None:
    """Pods made by hand in the tenant's namespace made its part on a cluster larger; then they ended."""
    give_quota(tenant, make_type(), 3)
    alpha = Cluster.objects.get(slug="alpha")
    NamespaceClaim.objects.create(
        cluster=alpha, namespace=tenant.namespace, tenant_id=tenant.pk, valid_from=utcnow(), created_by="test"
    )
    by_hand = make_pod(Node.objects.get(cluster=alpha), namespace=tenant.namespace)
    first = deploy(tenant, "first")
    assert replicas(first)[0].cluster == alpha or Reservation.objects.exists()
    with system_scope("test"):
        parts = QuotaAllotment.objects.all()
        assert [part.amount for part in parts if part.cluster_id == alpha.pk] in ([2 * CARD], [])
    PodObservation.objects.filter(pk=by_hand.pk).update(gone_at=utcnow(), ended_at=utcnow())
    with system_scope("test"):
        # As it is left where the replica came to lie beside the pod.
        QuotaAllotment.objects.filter(cluster=replicas(first)[0].cluster).update(amount=3 * CARD, target=3 * CARD)
    make_pod(Node.objects.get(cluster=replicas(first)[0].cluster), namespace="somebody-else")
    second = deploy(tenant, "second", replicas=2)
    assert len(replicas(second)) < 2
    with system_scope("test"):
        for row in TenantNamespace.objects.all():
            run("namespace", row.pk)
    assert is_due(second)
    run("deployment", second.pk)
    assert len(replicas(second)) == 2


def test_another_way_of_sharing_has_its_quota_written_before_pods_are_made(tenant: Tenant) -> None:
    """The part is large enough, but the ResourceQuota counts by resource: cards are no MIG slices."""
    first = deploy(tenant, "first")
    cluster = replicas(first)[0].cluster
    with system_scope("test"):
        row = TenantNamespace.objects.get(cluster=cluster)
        run("namespace", row.pk)
        QuotaAllotment.objects.filter(cluster=cluster).update(amount=2 * CARD, target=2 * CARD)
        row.refresh_from_db()
        before = row.generation
    Cluster.objects.exclude(pk=cluster.pk).update(paused=True)
    second = deploy(tenant, "second")
    assert replicas(second)[0].cluster == cluster
    with system_scope("test"):
        row.refresh_from_db()
    assert row.generation > before


def test_a_cluster_with_reservations_does_not_go_to_observe(tenant: Tenant) -> None:
    """Nothing is applied there yet, but a replica is on its way; in observe mode it could never be made."""
    deployment = deploy(tenant, "first")
    with pytest.raises(Conflict, match="reservations hold devices"):
        clusters.cluster_set_mode(cluster=replicas(deployment)[0].cluster, mode="observe", actor=ADMIN)
