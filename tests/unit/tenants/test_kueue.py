"""What Kueue is told of quotas, and a replica that goes through a queue."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.adapters.kueue import VERSIONS
from infra.models import Cluster, NodePool
from portal.kernel.actors import Actor
from portal.kernel.models import WorkItem
from portal.kernel.problems import Conflict, Forbidden
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import run_item
from tenants.kueue import LOCAL_QUEUE, PLENTY, TenantFacts, TypeFacts, manifests, split
from tenants.models import ClusterQueueing, ModelReplica, Tenant
from tenants.render import render_replica
from tenants.selectors.queueing import queue_in_force
from tenants.services.deployments import deployment_apply
from tenants.services.queueing import queueing_switch
from tenants.stored import replica_facts
from tests.support.fleet import make_cluster, make_node, make_pool, make_type
from tests.support.tenants import TESTER, give_quota, make_tenant
from tests.unit.tenants.manifests import manifest_data

API = VERSIONS[0]
H100 = TypeFacts("h100", "NVIDIA-H100-80GB-HBM3", {"nvidia.com/gpu": 16})
L4 = TypeFacts("l4", "NVIDIA-L4", {"nvidia.com/gpu": 4, "nvidia.com/mig-1g.6gb": 2})


def facts(slug: str, guaranteed: int, total: int, zone: str = "research") -> TenantFacts:
    return TenantFacts(slug, zone, [f"t-{slug}"], {"h100": {"nvidia.com/gpu": (guaranteed, total)}})


def by_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == kind}


def test_every_flavor_covers_every_resource_of_its_group_and_every_queue_every_resource_of_a_pod() -> None:
    objects = manifests(API, [H100, L4], [facts("ml-team", 2, 5)])
    for spec in [*by_kind(objects, "ClusterQueue").values(), by_kind(objects, "Cohort")["aifactory"]]:
        covered = [name for group in spec["resourceGroups"] for name in group["coveredResources"]]
        assert sorted(covered) == sorted({*PLENTY, "nvidia.com/gpu", "nvidia.com/mig-1g.6gb"})
        for group in spec["resourceGroups"]:
            for flavor in group["flavors"]:
                assert [one["name"] for one in flavor["resources"]] == group["coveredResources"]
    named = {flavor["name"] for group in spec["resourceGroups"] for flavor in group["flavors"]}
    assert named == by_kind(objects, "ResourceFlavor").keys()


def test_the_cards_that_are_guaranteed_to_nobody_stand_above_the_zones() -> None:
    objects = manifests(API, [H100], [facts("ml-team", 2, 5), facts("team-vision", 4, 4, "secret")])
    cohorts = by_kind(objects, "Cohort")
    assert cohorts.keys() == {"aifactory", "zone-research", "zone-secret"}
    assert cohorts["zone-secret"] == {"parentName": "aifactory"}
    (gpu,) = cohorts["aifactory"]["resourceGroups"][0]["flavors"][0]["resources"]
    assert gpu == {"name": "nvidia.com/gpu", "nominalQuota": "10"}


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=6))
def test_what_is_nominal_anywhere_is_never_more_than_the_cards_unless_more_was_guaranteed(
    parts: list[tuple[int, int]],
) -> None:
    tenants = [facts(f"t{number}", *split(total, guaranteed)) for number, (total, guaranteed) in enumerate(parts)]
    objects = manifests(API, [H100], tenants)

    def nominal(spec: dict[str, Any]) -> int:
        return int(spec["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"])

    queues = sum(nominal(spec) for spec in by_kind(objects, "ClusterQueue").values())
    rest = nominal(by_kind(objects, "Cohort")["aifactory"])
    assert queues + rest == max(16, queues)
    for number, (total, _) in enumerate(parts):
        spec = by_kind(objects, "ClusterQueue")[f"t-t{number}"]
        (gpu,) = spec["resourceGroups"][0]["flavors"][0]["resources"]
        assert int(gpu["nominalQuota"]) + int(gpu["borrowingLimit"]) == total


def test_a_cluster_without_cards_is_told_nothing() -> None:
    assert manifests(API, [], [facts("ml-team", 0, 0)]) == []


# --- a replica's pods ------------------------------------------------------------------------------------------------


@pytest.fixture
def tenant(db: None) -> Tenant:
    made = make_tenant()
    make_node(make_pool(cluster=make_cluster("alpha")), cards=8, name="alpha-0")
    give_quota(made, make_type(), 8)
    return made


def placed(tenant: Tenant, name: str) -> ModelReplica:
    row = deployment_apply(tenant=tenant, manifest=manifest_data(name, tenant=tenant.slug), actor=TESTER).deployment
    run_item(WorkItem.objects.get(kind="deployment", object_id=row.pk).pk)
    with system_scope("test"):
        return ModelReplica.objects.select_related("deployment", "tenant", "cluster").get(deployment=row)


def pod_of(replica: ModelReplica) -> dict[str, Any]:
    with system_scope("test"):
        queue = queue_in_force(replica.placement, replica.cluster)
        objects = render_replica(replica_facts(replica, replica.deployment, replica.tenant, queue=queue))
    made: dict[str, Any] = next(one for one in objects if one["kind"] == "Deployment")["spec"]["template"]
    return made


def switch_on(tenant: Tenant, cluster: Cluster) -> None:
    ClusterQueueing.objects.create(cluster=cluster, enabled=True, queues={tenant.namespace: tenant.slug})


@pytest.mark.django_db
def test_only_what_is_placed_after_the_queue_is_there_goes_through_it(tenant: Tenant) -> None:
    before = placed(tenant, "before")
    assert "queue" not in before.placement
    switch_on(tenant, before.cluster)
    pool = NodePool.objects.get()
    pool.gpu_type.product = "NVIDIA-H100-80GB-HBM3"
    pool.gpu_type.save()
    after = placed(tenant, "after")
    pod = pod_of(after)
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == LOCAL_QUEUE
    assert pod["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert "nodeSelector" not in pod_of(before)["spec"]
    ClusterQueueing.objects.update(enabled=False, draining=True)
    assert "kueue.x-k8s.io/queue-name" not in pod_of(after)["metadata"]["labels"]
    assert "nodeSelector" not in pod_of(after)["spec"]


@pytest.mark.django_db
def test_a_namespace_without_a_local_queue_is_not_queued(tenant: Tenant) -> None:
    ClusterQueueing.objects.create(cluster=Cluster.objects.get(), enabled=True, queues={"t-another": "another"})
    assert "queue" not in placed(tenant, "alone").placement


@pytest.mark.django_db
def test_it_is_switched_by_platform_admins_on_managed_clusters(tenant: Tenant) -> None:
    cluster = Cluster.objects.get()
    with pytest.raises(Forbidden):
        queueing_switch(cluster=cluster, enabled=True, actor=Actor(kind="user", name="somebody"))
    assert queueing_switch(cluster=cluster, enabled=True, actor=TESTER).enabled
    assert WorkItem.objects.filter(kind="kueue", object_id=cluster.pk).exists()
    off = queueing_switch(cluster=cluster, enabled=False, actor=TESTER)
    assert (off.enabled, off.draining) == (False, True)
    cluster.mode = Cluster.Mode.OBSERVE
    cluster.save()
    with pytest.raises(Conflict, match="not managed"):
        queueing_switch(cluster=cluster, enabled=True, actor=TESTER)
