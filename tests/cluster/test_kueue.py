"""Kueue told of quotas, through our own reconciler: on the simulator and on real API servers, with CRDs of our own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from infra.adapters.kueue import VERSIONS
from infra.kube.client import KubeClient
from infra.kube.errors import ApiMissing, NotFound
from infra.models import AppliedObject, GPUType
from portal.kernel.models import WorkItem
from portal.kernel.workqueue import run_item
from tenants.kueue import LOCAL_QUEUE
from tenants.models import ClusterQueueing
from tenants.services.queueing import queueing_switch
from tenants.services.quotas import quota_set
from tests.cluster.quota_estate import delete, fleet, hand_over, made, prepared, vc
from tests.support.estate import ADMIN, PATIENCE, Estate
from tests.support.tenants import CARD

__all__ = ["fleet", "made"]  # fixtures, found by their names

pytestmark = pytest.mark.django_db(transaction=True)


def crd(kind: str, plural: str, scope: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A CRD that takes exactly these fields of the spec: a name that is none would be dropped."""
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": fields},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.kueue.x-k8s.io",
                     "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"}},
        "spec": {
            "group": "kueue.x-k8s.io",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": scope,
            "versions": [
                {"name": "v1beta2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }  # fmt: skip


TEXT: dict[str, Any] = {"type": "string"}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT}
QUANTITY: dict[str, Any] = {"x-kubernetes-int-or-string": True}
GROUPS: dict[str, Any] = {"type": "array", "items": {"type": "object", "properties": {
    "coveredResources": TEXTS,
    "flavors": {"type": "array", "items": {"type": "object", "properties": {
        "name": TEXT,
        "resources": {"type": "array", "items": {"type": "object", "properties": {
            "name": TEXT, "nominalQuota": QUANTITY, "borrowingLimit": QUANTITY, "lendingLimit": QUANTITY,
        }}},
    }}},
}}}  # fmt: skip
CRDS = [
    crd("ResourceFlavor", "resourceflavors", "Cluster",
        {"nodeLabels": {"type": "object", "additionalProperties": TEXT}}),
    crd("Cohort", "cohorts", "Cluster", {"parentName": TEXT, "resourceGroups": GROUPS}),
    crd("ClusterQueue", "clusterqueues", "Cluster", {
        "cohortName": TEXT, "queueingStrategy": TEXT, "stopPolicy": TEXT, "resourceGroups": GROUPS,
        "namespaceSelector": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "preemption": {"type": "object", "properties": {"reclaimWithinCohort": TEXT, "withinClusterQueue": TEXT}},
    }),
    crd("LocalQueue", "localqueues", "Namespaced", {"clusterQueue": TEXT}),
]  # fmt: skip
API = VERSIONS[0]


@pytest.fixture
def with_kueue(made: Estate) -> Iterator[Estate]:
    """The first cluster serves Kueue's kinds; from then on, as definitions that come and go hold up a real server's
    controllers: they begin to watch anew, and count no quota meanwhile."""
    client = made.client(next(iter(made.clusters)))
    for each in CRDS:
        client.apply(each)
    end = time.monotonic() + PATIENCE
    while not all(_served(client, each["spec"]["names"]["kind"]) for each in CRDS):
        assert time.monotonic() < end, "the CRDs are not served"
        time.sleep(0.2)
    yield made
    for kind in (each["spec"]["names"]["kind"] for each in CRDS):
        for one in client.list_all(API, kind).items:
            delete(client, API, kind, one["metadata"]["name"], one["metadata"].get("namespace", ""))


def _served(client: KubeClient, kind: str) -> bool:
    try:
        client.list_all(API, kind)
    except (ApiMissing, NotFound):
        client._discovered.pop(API, None)
        return False
    return True


def run_kueue() -> None:
    item = WorkItem.objects.get(kind="kueue")
    WorkItem.objects.filter(pk=item.pk).update(next_attempt_at=item.marked_at)
    run_item(item.pk)


def there(client: KubeClient, kind: str, name: str) -> bool:
    try:
        client.get(API, kind, name)
    except NotFound:
        return False
    return True


def test_kueue_is_told_the_same_parts_and_told_once(with_kueue: Estate) -> None:
    made = with_kueue
    name = next(iter(made.clusters))
    cluster, client = made.clusters[name], made.client(name)
    quota_set(
        tenant=made.tenant,
        gpu_type=GPUType.objects.get(slug__contains="h100"),
        limit=8 * CARD,
        guaranteed=2 * CARD,
        actor=ADMIN,
    )
    hand_over(made, None, name, 5)
    prepared(made, {name: 5})
    queueing_switch(cluster=cluster, enabled=True, actor=ADMIN)

    def told() -> bool:
        run_kueue()
        return there(client, "ClusterQueue", made.tenant.namespace)

    made.until(told, "the queue")  # a real server serves a definition some moments after it has taken it
    queue = client.get(API, "ClusterQueue", made.tenant.namespace)
    assert queue["spec"]["cohortName"] == f"zone-{made.tenant.zone.slug}"
    group = next(one for one in queue["spec"]["resourceGroups"] if "nvidia.com/gpu" in one["coveredResources"])
    flavor = next(one for one in group["flavors"] if "h100" in one["name"])
    assert {"name": "nvidia.com/gpu", "nominalQuota": "2", "borrowingLimit": "3"} in flavor["resources"]
    assert client.get(API, "LocalQueue", LOCAL_QUEUE, vc(made))["spec"] == {"clusterQueue": made.tenant.namespace}
    assert client.get(API, "Cohort", f"zone-{made.tenant.zone.slug}")["spec"] == {"parentName": "aifactory"}
    assert client.get(API, "ResourceFlavor", flavor["name"])["spec"]["nodeLabels"]["nvidia.com/gpu.product"]
    row = ClusterQueueing.objects.get()
    assert (row.api_version, row.queues) == (API, {vc(made): made.tenant.slug})
    before = versions(client)
    AppliedObject.objects.filter(owner_kind="kueue").update(drift_suspected=True)
    run_kueue()
    assert versions(client) == before
    # Somebody changes a figure: it is taken back.
    client.apply(
        {
            "apiVersion": API,
            "kind": "LocalQueue",
            "metadata": {"name": LOCAL_QUEUE, "namespace": vc(made)},
            "spec": {"clusterQueue": "another"},
        },
        field_manager="somebody",
        force=True,
    )
    AppliedObject.objects.filter(owner_kind="kueue").update(drift_suspected=True)
    run_kueue()
    assert client.get(API, "LocalQueue", LOCAL_QUEUE, vc(made))["spec"] == {"clusterQueue": made.tenant.namespace}


def test_switched_off_the_queues_are_drained_before_they_go(with_kueue: Estate) -> None:
    made = with_kueue
    name = next(iter(made.clusters))
    cluster, client = made.clusters[name], made.client(name)
    hand_over(made, None, name, 2)
    prepared(made, {name: 2})
    queueing_switch(cluster=cluster, enabled=True, actor=ADMIN)
    run_kueue()
    client.apply(
        {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": made.tenant.namespace},
         "status": {"admittedWorkloads": 1, "reservingWorkloads": 1}},
        field_manager="kueue",
    )  # fmt: skip
    queueing_switch(cluster=cluster, enabled=False, actor=ADMIN)
    run_kueue()
    assert client.get(API, "ClusterQueue", made.tenant.namespace)["spec"]["stopPolicy"] == "HoldAndDrain"
    assert client.get(API, "LocalQueue", LOCAL_QUEUE, vc(made))
    row = ClusterQueueing.objects.get()
    assert row.draining
    assert f"{made.tenant.namespace} (1)" in row.conditions[0]["message"]
    client.apply(
        {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": made.tenant.namespace},
         "status": {"admittedWorkloads": 0, "reservingWorkloads": 0}},
        field_manager="kueue",
    )  # fmt: skip
    end = time.monotonic() + PATIENCE
    while ClusterQueueing.objects.get().draining:
        assert time.monotonic() < end, ClusterQueueing.objects.get().conditions
        run_kueue()
        time.sleep(0.2)
    for kind, where in (("LocalQueue", vc(made)), ("ClusterQueue", ""), ("Cohort", ""), ("ResourceFlavor", "")):
        assert client.list_all(API, kind, namespace=where).items == [], kind


def test_without_the_crds_it_says_so_and_writes_nothing(made: Estate) -> None:
    cluster = list(made.clusters.values())[1]
    queueing_switch(cluster=cluster, enabled=True, actor=ADMIN)
    run_kueue()
    row = ClusterQueueing.objects.get()
    assert (row.conditions[0]["reason"], row.queues) == ("NotServed", {})
    assert not AppliedObject.objects.filter(owner_kind="kueue").exists()


def versions(client: KubeClient) -> dict[str, str]:
    return {
        f"{kind}/{one['metadata']['name']}": one["metadata"]["resourceVersion"]
        for kind in ("ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue")
        for one in client.list_all(API, kind).items
    }
