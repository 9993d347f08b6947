"""InferenceClass and InferenceCluster: what they become, and what is told of those that are wrong."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from infra.manifests import load_documents, read_class, read_cluster
from infra.models import Cluster, GPUType, InferenceClass, Node, NodePool, Reservation
from infra.selectors.snapshot import fleet_snapshot
from infra.services.classes import inference_class_apply, inference_cluster_apply
from portal.kernel.problems import Conflict, Forbidden, Invalid
from tests.support.fleet import make_cluster, make_node, make_pool

from .test_claims import ADMIN, VIEWER

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "manifests"

CLASS: dict[str, Any] = {
    "apiVersion": "modelplane.ai/v1alpha1",
    "kind": "InferenceClass",
    "metadata": {"name": "h100-8x"},
    "spec": {
        "description": "eight H100",
        "devices": [
            {"name": "gpu", "driver": "gpu.nvidia.com", "deviceClassName": "gpu.nvidia.com", "count": 8,
             "attributes": {"architecture": {"string": "Hopper"}, "cudaComputeCapability": {"version": "9.0.0"}},
             "capacity": {"memory": {"value": "81559Mi"}}},
            {"name": "nic", "claim": "Synthetic", "driver": "nic.nvidia.com", "count": 8},
        ],
    },
}  # fmt: skip
CLUSTER: dict[str, Any] = {
    "apiVersion": "modelplane.ai/v1alpha1",
    "kind": "InferenceCluster",
    "metadata": {"name": "alpha", "labels": {"modelplane.ai/region": "east"}},
    "spec": {
        "cluster": {"source": "Existing", "existing": {"secretRef": {"name": "kubeconfig"}}},
        "taints": [{"key": "reserved", "value": "x", "effect": "NoSchedule"}],
        "nodePools": [{"name": "gpu-h100", "className": "h100-8x", "nodeCount": 2, "maxNodeCount": 10}],
    },
}


def changed(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copied = copy.deepcopy(manifest)
    *parents, last = path.split(".")
    place: Any = copied
    for part in parents:
        place = place[int(part)] if part.isdigit() else place[part]
    if value is KeyError:
        del place[last]
    else:
        place[int(last) if last.isdigit() else last] = value
    return copied


def public_manifests(kind: str) -> list[Any]:
    if not SHARED.is_dir():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"the public manifests are not at {SHARED}"))]
    return [
        pytest.param(document, id=f"{path.parent.name}/{path.stem}")
        for path in sorted(SHARED.rglob("*.yaml"))
        for document in load_documents(path.read_text())
        if document.get("kind") == kind
    ]


@pytest.mark.parametrize("manifest", public_manifests("InferenceClass"))
def test_public_classes_are_read(manifest: dict[str, Any]) -> None:
    assert read_class(manifest).devices


@pytest.mark.parametrize("manifest", public_manifests("InferenceCluster"))
def test_public_clusters_are_read(manifest: dict[str, Any]) -> None:
    assert read_cluster(manifest).pools


@pytest.mark.django_db
@pytest.mark.skipif(not SHARED.is_dir(), reason="the public manifests are not there")
def test_all_public_manifests_are_applied() -> None:
    documents = [d for path in sorted(SHARED.rglob("*.yaml")) for d in load_documents(path.read_text())]
    for document in documents:
        if document["kind"] == "InferenceClass":
            inference_class_apply(manifest=document, actor=ADMIN)
    assert GPUType.objects.filter(memory_mib=81559).count() == 1, "one card, one type, whatever the provider"
    for document in documents:
        if document["kind"] == "InferenceCluster":
            name = document["metadata"]["name"]
            if not Cluster.objects.filter(slug=name).exists():
                make_cluster(name)
            applied = inference_cluster_apply(manifest=document, actor=ADMIN)
            assert len(applied.pools) == len(document["spec"]["nodePools"])
            assert bool(applied.notes) == (document["spec"]["cluster"]["source"] != "Existing")


@pytest.mark.parametrize(
    ("path", "value", "pointer", "says"),
    [
        ("apiVersion", "v1", "/apiVersion", "expected modelplane.ai/v1alpha1"),
        ("kind", "Pod", "/kind", "expected InferenceClass"),
        ("metadata.name", "H100", "/metadata/name", "small letters"),
        ("spec.devices", [], "/spec/devices", "1 to 16 entries, got 0 entries"),
        ("spec.device", [], "/spec/device", "unknown field; known here: description, devices, provisioning"),
        ("spec.devices.0.count", 65, "/spec/devices/0/count", "from 1 to 64, got 65"),
        ("spec.devices.0.count", True, "/spec/devices/0/count", "got True"),
        ("spec.devices.0.driver", None, "/spec/devices/0/driver", "required"),
        ("spec.devices.0.claim", "Magic", "/spec/devices/0/claim", "one of DRA, Synthetic"),
        ("spec.devices.0.deviceClassName", KeyError, "/spec/devices/0/deviceClassName", "required"),
        ("spec.devices.1.name", "gpu", "/spec/devices/1", "'gpu' is there twice"),
        ("spec.devices.0.attributes.a/b", {"string": 1}, "/spec/devices/0/attributes/a~1b", "is not a string"),
        ("spec.devices.0.capacity.memory", {"value": "80GB"}, "/spec/devices/0/capacity/memory", "no Kubernetes"),
        ("spec.devices.0.capacity.memory", {}, "/spec/devices/0/capacity/memory", "quantity"),
        ("spec.provisioning", {"provider": "GKE"}, "/spec/provisioning/gke", "required where the provider is GKE"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_class(path: str, value: Any, pointer: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_class(changed(CLASS, path, value))
    (error,) = caught.value.errors
    assert error["pointer"] == pointer
    assert says in error["detail"]


@pytest.mark.parametrize(
    ("path", "value", "pointer", "says"),
    [
        ("spec.cluster.source", "On-prem", "/spec/cluster/source", "one of GKE"),
        ("spec.cluster.existing", KeyError, "/spec/cluster/existing", "required where the source is Existing"),
        ("spec.nodePools", [], "/spec/nodePools", "1 to 8"),
        ("spec.nodePools.0.className", KeyError, "/spec/nodePools/0/className", "required"),
        ("spec.nodePools.0.maxNodeCount", 1, "/spec/nodePools/0/maxNodeCount", "less than the 2 nodes"),
        ("spec.nodePools.0.nodes", 2, "/spec/nodePools/0/nodes", "unknown field"),
        ("spec.taints.0.effect", "PreferNoSchedule", "/spec/taints/0/effect", "NoSchedule, NoExecute"),
        ("metadata.labels", {"tier": 1}, "/metadata/labels/tier", "in quotes"),
    ],
)
def test_what_is_wrong_with_a_cluster(path: str, value: Any, pointer: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_cluster(changed(CLUSTER, path, value))
    (error,) = caught.value.errors
    assert error["pointer"] == pointer
    assert says in error["detail"]


def test_all_errors_are_told_at_once() -> None:
    wrong = changed(changed(CLASS, "spec.devices.0.count", 0), "spec.devices.1.driver", "")
    with pytest.raises(Invalid) as caught:
        read_class(wrong)
    assert [e["pointer"] for e in caught.value.errors] == ["/spec/devices/0/count", "/spec/devices/1/driver"]


@pytest.mark.parametrize(("text", "says"), [("a: [", "line 1"), ("- a", "no mapping")])
def test_text_that_is_no_manifest(text: str, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        load_documents(text)


@pytest.mark.django_db
class TestApplying:
    def test_a_class_gives_a_type_and_the_same_again_changes_nothing(self) -> None:
        row = inference_class_apply(manifest=CLASS, actor=ADMIN)
        gpu_type = GPUType.objects.get()
        assert row.gpu_type == gpu_type
        assert (gpu_type.slug, gpu_type.memory_mib, gpu_type.compute_slices, gpu_type.source) == (
            "hopper-81559-mib", 81559, 7, "manifest",
        )  # fmt: skip
        assert [device["claim"] for device in row.devices] == ["DRA", "Synthetic"]
        assert inference_class_apply(manifest=CLASS, actor=ADMIN).generation == 1
        assert inference_class_apply(manifest=changed(CLASS, "spec.description", "x"), actor=ADMIN).generation == 2

    def test_a_class_of_a_known_card_takes_its_type(self) -> None:
        node = make_node(make_pool())
        assert node.pool is not None
        assert inference_class_apply(manifest=CLASS, actor=ADMIN).gpu_type == node.pool.gpu_type

    def test_a_cluster_gets_labels_taints_and_pools(self) -> None:
        cluster = make_cluster()
        inference_class_apply(manifest=CLASS, actor=ADMIN)
        applied = inference_cluster_apply(manifest=CLUSTER, actor=ADMIN)
        cluster.refresh_from_db()
        assert cluster.labels == {"modelplane.ai/region": "east"}
        assert cluster.taints == [{"key": "reserved", "value": "x", "effect": "NoSchedule"}]
        (pool,) = applied.pools
        assert (pool.declared_nodes, pool.node_selector) == (10, {"modelplane.ai/pool": "gpu-h100"})
        generation = cluster.generation
        inference_cluster_apply(manifest=CLUSTER, actor=ADMIN)
        cluster.refresh_from_db()
        assert cluster.generation == generation
        entries = fleet_snapshot().by_name["alpha"].pools[0].entries
        assert [(entry.name, entry.count) for entry in entries] == [("gpu", 8), ("nic", 8)]

    def test_nodes_that_carry_the_pools_label_move_to_it(self) -> None:
        cluster = make_cluster()
        inference_class_apply(manifest=CLASS, actor=ADMIN)
        automatic = make_pool(cluster=cluster, gpu_type=GPUType.objects.get())
        node = make_node(automatic, labels={"modelplane.ai/pool": "gpu-h100"}, digest="x")
        inference_cluster_apply(manifest=CLUSTER, actor=ADMIN)
        node.refresh_from_db()
        assert node.pool is not None
        assert node.pool.name == "gpu-h100"
        assert node.digest == "", "the watcher looks at it again"

    def test_a_cluster_that_is_not_connected_and_a_class_that_is_not_known(self) -> None:
        with pytest.raises(Invalid) as caught:
            inference_cluster_apply(manifest=CLUSTER, actor=ADMIN)
        assert caught.value.errors[0]["pointer"] == "/metadata/name"
        make_cluster()
        with pytest.raises(Invalid) as caught:
            inference_cluster_apply(manifest=CLUSTER, actor=ADMIN)
        assert caught.value.errors[0]["pointer"] == "/spec/nodePools/0/className"
        assert not NodePool.objects.exists()

    def test_a_pool_in_use_is_not_dropped(self) -> None:
        make_cluster()
        inference_class_apply(manifest=CLASS, actor=ADMIN)
        (pool,) = inference_cluster_apply(manifest=CLUSTER, actor=ADMIN).pools
        node = make_node(pool)
        assert pool.gpu_type is not None
        held = Reservation.objects.create(
            cluster=pool.cluster, pool=pool, node=node, gpu_type=pool.gpu_type, sharing="whole", tenant_id=node.pk,
            zone_id=node.pk, namespace="t", deployment_id=node.pk, replica_id=node.pk, member="m", cards=1, share=1,
        )  # fmt: skip
        other = changed(CLUSTER, "spec.nodePools.0.name", "other")
        with pytest.raises(Conflict, match="1 reservations hold devices"):
            inference_cluster_apply(manifest=other, actor=ADMIN)
        held.delete()
        inference_cluster_apply(manifest=other, actor=ADMIN)
        assert list(NodePool.objects.values_list("name", flat=True)) == ["other"]
        assert Node.objects.get().pool is None

    def test_only_a_platform_admin(self) -> None:
        with pytest.raises(Forbidden):
            inference_class_apply(manifest=CLASS, actor=VIEWER)
        with pytest.raises(Forbidden):
            inference_cluster_apply(manifest=CLUSTER, actor=VIEWER)
        assert not InferenceClass.objects.exists()
