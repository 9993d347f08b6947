"""The policies as a tenant's own hand meets them, and as the platform's does: the expressions are run as they stand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infra.adapters.admission import (
    MANAGED_LABEL,
    TENANT_LABEL,
    AdmissionFacts,
    admission_objects,
    namespace_annotations,
    refused_by,
)
from simulator.errors import ApiError
from simulator.kinds import NAMESPACE, POD, POLICY, POLICY_BINDING
from simulator.options import Options
from simulator.policies import check_policies

Obj = dict[str, Any]
PORTAL = "system:serviceaccount:aifactory:portal"
SYNCER = "system:serviceaccount:vc-team:vc-team"
CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
ELSEWHERE = "system:serviceaccount:vc-other:vc-other"
SHARE = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}}


class Cluster:
    """A namespace of a tenant cluster under the policies. ``facts``: as the portal tells the cluster; ``allowed``:
    what its tenant may run."""

    def __init__(self, allowed: dict[str, str] | None = None, **facts: Any) -> None:
        self.allowed = allowed or {}
        made = admission_objects(AdmissionFacts(portal_user=PORTAL, **facts))
        self.policies = {one["metadata"]["name"]: one for one in made if one["kind"] == POLICY.kind}
        self.bindings = [one for one in made if one["kind"] == POLICY_BINDING.kind]

    def objects(self, kind: Any) -> list[Obj]:
        return self.bindings if kind == POLICY_BINDING else []

    def get(self, kind: Any, namespace: str, name: str) -> Any:
        if kind == POLICY:
            return SimpleNamespace(obj=self.policies[name])
        assert kind == NAMESPACE, kind
        key, value = MANAGED_LABEL
        metadata = {"name": name, "labels": {key: value, TENANT_LABEL: "t"}, "annotations": self.allowed}
        return SimpleNamespace(obj={"metadata": metadata})

    def rule(self, user: str, labels: dict[str, str] | None = None, resources: Obj | None = None, **spec: Any) -> str:
        """The rule that refuses the pod to this user, "" where it passes."""
        container = {"name": "engine", "image": "ghcr.io/team/engine:v1", "resources": resources or {}}
        obj: Obj = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "namespace": "vc-team", "labels": labels or {}},
            "spec": {"containers": [container], "schedulerName": "hami-scheduler", **spec},
        }  # fmt: skip
        try:
            check_policies(self, POD, obj, None, Options(user=user))  # type: ignore[arg-type]  # as a store it is enough
        except ApiError as error:
            said = error.body["message"].partition("denied request: ")[2]  # type: ignore[index]
            return refused_by("aifactory-pods", said) or f"none of ours: {said}"
        return ""


def test_a_tenant_takes_no_share_itself_as_only_the_portal_knows_whose_card_it_would_be():
    cluster = Cluster()
    assert cluster.rule(SYNCER, resources=SHARE) == "tenant-share"
    assert cluster.rule(SYNCER, resources={"limits": {"nvidia.com/gpu": "2"}}) == ""
    for user in (PORTAL, CONTROLLER):
        assert cluster.rule(user, resources=SHARE) == ""


def test_devices_that_are_claimed_are_counted_by_no_quota_so_only_the_platform_asks_for_them():
    cluster, claims = Cluster(), [{"name": "gpu", "resourceClaimTemplateName": "any"}]
    assert cluster.rule(SYNCER, resourceClaims=claims) == "uncounted-devices"
    assert cluster.rule(ELSEWHERE, resourceClaims=claims) == "uncounted-devices"
    for user in (PORTAL, CONTROLLER):
        assert cluster.rule(user, resourceClaims=claims) == ""


@pytest.mark.parametrize(
    "name", ["deviceclass.resource.kubernetes.io/gpu.nvidia.com", "nvidia.com/GA102GL_A10", "amd.com/gpu", "rdma/hca"]
)
def test_a_resource_that_no_quota_counts_is_opened_by_name(name: str):
    for resources in ({"limits": {name: "1"}}, {"requests": {name: "1"}}):
        assert Cluster().rule(PORTAL, resources=resources) == "uncounted-devices"
        assert Cluster(resources=("amd.com/gp", "rdm")).rule(PORTAL, resources=resources) == "uncounted-devices"
        assert Cluster(resources=(name,)).rule(PORTAL, resources=resources) == ""
        assert Cluster(resources=(f"{name.partition('/')[0]}/",)).rule(PORTAL, resources=resources) == ""


def test_plain_resources_and_those_that_quotas_count_pass():
    limits = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "hugepages-2Mi": "2Mi", "nvidia.com/gpu": "1"}
    assert Cluster().rule(SYNCER, resources={"limits": limits | {"nvidia.com/mig-1g.10gb": "1"}}) == ""


def test_labels_by_which_the_charts_network_policies_open_a_way_out_are_not_a_tenants_to_write():
    """vCluster's syncer renames ``release`` and leaves ``app`` as it is (pkg/util/translate/labels.go)."""
    synced = {"vcluster.loft.sh/managed-by": "team"}
    for labels in ({"app": "vcluster-snapshot"}, {"release": "team"}):
        assert Cluster().rule(SYNCER, synced | labels) == "control-plane-label"
        assert Cluster().rule(SYNCER, labels) == "control-plane-label", "also where its own label was left out"
        assert Cluster().rule(CONTROLLER, labels) == "", "the chart's own StatefulSet"
    assert Cluster().rule(SYNCER, synced | {"app": "snapshots"}) == ""


def test_an_image_that_is_mounted_as_a_volume_is_an_image():
    def volumes(reference: str) -> list[Obj]:
        return [{"name": "own", "emptyDir": {}}, {"name": "model", "image": {"reference": reference}}]

    ours = Cluster(namespace_annotations(registries=["ghcr.io/team"], pin_digests=False, allow_remote_code=False))
    assert ours.rule(SYNCER, volumes=volumes("quay.io/other/model:v1")) == "image-registry"
    assert ours.rule(SYNCER, volumes=volumes("ghcr.io/team/model:v1")) == ""
    pinned = Cluster(namespace_annotations(registries=None, pin_digests=True, allow_remote_code=False))
    digest = "@sha256:" + "0" * 64
    for reference, rule in (("quay.io/other/model:v1", "image-digest"), ("quay.io/other/model" + digest, "")):
        found = pinned.rule(SYNCER, volumes=volumes(reference), containers=[{"name": "e", "image": "e" + digest}])
        assert found == rule, reference


@pytest.mark.parametrize(
    "source", ["nfs", "csi", "iscsi", "cephfs", "rbd", "fc", "glusterfs", "azureFile", "flexVolume", "whatComesNext"]
)
def test_a_volume_by_which_the_node_reaches_what_the_pod_names_is_refused(source: str):
    assert Cluster().rule(SYNCER, volumes=[{"name": "theirs", source: {"server": "10.0.0.5"}}]) == "volume-types"
    assert Cluster().rule(PORTAL, volumes=[{"name": "theirs", source: {}}]) == "volume-types"


@pytest.mark.parametrize(
    "source", ["configMap", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"]
)
def test_volumes_of_the_clusters_own_pass(source: str):
    assert Cluster().rule(SYNCER, volumes=[{"name": "own", source: {}}]) == ""


@pytest.mark.parametrize("how", ["httpGet", "tcpSocket"])
@pytest.mark.parametrize("where", ["livenessProbe", "readinessProbe", "startupProbe", "postStart", "preStop"])
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_no_kubelet_is_sent_to_another_host(kind: str, where: str, how: str):
    def container(**more: str) -> Obj:
        asked: Obj = {where: {how: {"port": 80, **more}}}
        return {"name": "e", "image": "e"} | ({"lifecycle": asked} if where.startswith("p") else asked)

    assert Cluster().rule(SYNCER, **{kind: [container(host="10.0.0.5")]}) == "probe-hosts"
    assert Cluster().rule(SYNCER, **{kind: [container()]}) == ""
