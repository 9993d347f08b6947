"""The reconciler of tenant clusters, step by step: the test itself plays Flux and vCluster, one object at a time.

The host is one simulated cluster, the tenant's API server another. (The whole flow with the stand-in, on real API
servers: test_tenant_clusters.py.)
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml
from django.utils import timezone

from infra.models import AppliedObject, NamespaceClaim
from portal.kernel.conditions import get_condition
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import run_item
from tenants.models import GPUQuota, QuotaAllotment, TenantCluster, TenantNamespace
from tenants.services.allotments import QuotaExceeded, allotment_require, quota_locked
from tenants.services.tenantcluster_access import robot_create, robot_delete
from tenants.services.tenantclusters import (
    tenant_cluster_delete,
    tenant_cluster_pause,
    tenant_cluster_request,
    tenant_cluster_resume,
    tenant_cluster_retry,
    tenant_cluster_upgrade,
)
from tests.support.estate import ADMIN, Estate, estate
from tests.support.served import ServedCluster
from tests.support.simulator import SimulatorProcess
from tests.support.tenants import CARD

pytestmark = pytest.mark.django_db(transaction=True)

HOST, INSIDE = "gpu-fra-1", "gpu-hel-1"
HOME, NS, NAME = "aifactory-tenants", "vc-ml-team", "ml-team"
RELEASE = f"/apis/helm.toolkit.fluxcd.io/v2/namespaces/{HOME}/helmreleases/{NAME}"
SOURCE = f"/apis/source.toolkit.fluxcd.io/v1/namespaces/{HOME}/helmrepositories/{NAME}"
PLANE = f"/apis/apps/v1/namespaces/{NS}/statefulsets/{NAME}"
MERGE = "application/merge-patch+json"


def crd(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    """A kind of Flux as far as it is needed: any spec, and a status of its own."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


@dataclass
class Stage:
    """A tenant cluster on its way, and the hands that play Flux and vCluster."""

    estate: Estate
    host: ServedCluster
    inner: ServedCluster
    pk: Any = field(default=None)

    def ask(self, cards: int = 4) -> TenantCluster:
        """Request it; the platform names the endpoint."""
        gpu_type = self.estate.quota("h100", 8)
        row = tenant_cluster_request(
            tenant=self.estate.tenant,
            cluster=self.estate.clusters[HOST],
            allotments={gpu_type.slug: cards * CARD},
            endpoint=self.inner.server,
            actor=ADMIN,
        )
        self.pk = row.pk
        return row

    @property
    def row(self) -> TenantCluster:
        """As it is now."""
        with system_scope("test"):
            return TenantCluster.objects.select_related("tenant", "cluster").get(pk=self.pk)

    def said(self, kind: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition."""
        found = get_condition(self.row.conditions, kind)
        return ("", "", "") if found is None else (found.status, found.reason, found.message)

    def run(self, kind: str = "tenantcluster") -> TenantCluster:
        """One run of the reconciler, whatever its back-off; the row after it."""
        object_id = self.pk
        if kind == "namespace":
            with system_scope("test"):
                object_id = TenantNamespace.objects.get(name=NS).pk
        item = WorkItem.objects.get(kind=kind, object_id=object_id)
        WorkItem.objects.filter(pk=item.pk).update(next_attempt_at=timezone.now(), not_before=None)
        run_item(item.pk)
        return self.row

    def prepared(self) -> TenantCluster:
        """Requested, and its namespace made."""
        row = self.ask()
        for _ in range(20):
            self.run("namespace")
            with system_scope("test"):
                if TenantNamespace.objects.get(name=NS).observed_generation:
                    return row
        raise AssertionError("the namespace is not prepared")

    def get(self, path: str) -> Any:
        """An object of the host."""
        code, body = self.host.call("GET", path)
        assert code == 200, (path, code, body)
        return body

    def flux(
        self, status: str = "True", reason: str = "InstallSucceeded", message: str = "", path: str = RELEASE
    ) -> None:
        """Let Flux say something of the newest generation."""
        live = self.get(path)
        version = live["spec"].get("chart", {}).get("spec", {}).get("version", "")
        said = {
            "observedGeneration": live["metadata"]["generation"],
            "conditions": [{"type": "Ready", "status": status, "reason": reason, "message": message}],
        }
        if status == "True":
            said["history"] = [{"chartVersion": version, "status": "deployed"}]
        code, body = self.host.call("PATCH", f"{path}/status", {"status": said}, media=MERGE)
        assert code == 200, body

    def install(self) -> None:
        """What the chart makes, as far as it is looked at."""
        labels = {"app": "vcluster", "release": NAME}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "syncer", "image": "i:1"}]},
        }
        self.host.call(
            "POST",
            f"/apis/apps/v1/namespaces/{NS}/statefulsets",
            {
                "metadata": {"name": NAME, "labels": labels},
                "spec": {
                    "replicas": 1,
                    "serviceName": NAME,
                    "selector": {"matchLabels": labels},
                    "template": template,
                },
            },
        )
        config = yaml.safe_load(self.inner.kubeconfig.read_text())
        text = base64.b64encode(yaml.safe_dump(config).encode()).decode()
        self.host.call(
            "POST", f"/api/v1/namespaces/{NS}/secrets", {"metadata": {"name": f"vc-{NAME}"}, "data": {"config": text}}
        )

    def until(self, phase: str) -> TenantCluster:
        """Run until that phase."""
        for _ in range(60):
            if (row := self.run()).phase == phase:
                return row
        raise AssertionError(f"{self.row.phase}, not {phase}: {self.row.conditions}")

    def ready(self) -> TenantCluster:
        """All the way to Ready."""
        self.prepared()
        self.run()
        self.install()
        self.flux()
        return self.until("Ready")


@pytest.fixture
def stage(simulated_fleet: SimulatorProcess, settings: Any) -> Iterator[Stage]:
    """A host with Flux's kinds and the platform's namespace, and an API server to stand inside."""
    settings.AIF_VCLUSTER_VERSIONS = ["1.34.0=0.34.7", "1.35.0=0.35.3"]
    settings.AIF_OIDC_ISSUER = "https://sso.example/realms/ai-factory"
    host, inner = simulated_fleet[HOST], simulated_fleet[INSIDE]
    for kind in (
        crd("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases"),
        crd("source.toolkit.fluxcd.io", "v1", "HelmRepository", "helmrepositories"),
    ):
        host.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kind)
    host.call("POST", "/api/v1/namespaces", {"metadata": {"name": HOME}})
    with estate(simulated_fleet, HOST, slug=NAME) as made:
        yield Stage(made, host, inner)
        for path in (RELEASE, SOURCE, f"/api/v1/namespaces/{NS}"):
            host.call("DELETE", path)
        for name in ("owner", "developer", "viewer", "robot-ci"):
            inner.call("DELETE", f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/aifactory-{name}")


def test_nothing_is_applied_before_the_namespace_holds_its_quota(stage: Stage):
    stage.ask()
    row = stage.run()
    assert (row.phase, stage.said("Ready")[1]) == ("Pending", "WaitingForNamespace")
    assert stage.host.call("GET", RELEASE)[0] == 404
    with system_scope("test"):
        namespace = TenantNamespace.objects.get(name=NS)
        assert namespace.purpose == "tenant-cluster"
        assert NamespaceClaim.objects.filter(namespace=NS, tenant_id=row.tenant_id, valid_to=None).exists()
        part = QuotaAllotment.objects.get(namespace=NS)
        assert (part.fixed, part.amount) == (True, 4 * CARD)
    stage.run("namespace")
    quota = stage.get(f"/api/v1/namespaces/{NS}/resourcequotas/aifactory-quota")
    assert quota["spec"]["hard"]["requests.nvidia.com/gpu"] == "4"
    assert stage.host.call("GET", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NS}/roles/aifactory-owner")[0] == 404


def test_from_flux_and_the_secret_to_ready_with_access_inside(stage: Stage):
    stage.prepared()
    assert stage.run().phase == "Provisioning"
    release, values = stage.get(RELEASE), stage.get(RELEASE)["spec"]["values"]
    assert release["spec"]["chart"]["spec"]["version"] == "0.35.3"
    assert values["policies"]["resourceQuota"]["quota"]["requests.nvidia.com/gpu"] == "4"
    assert values["controlPlane"]["statefulSet"]["image"]["repository"] == "loft-sh/vcluster-oss"
    told = stage.get(f"/api/v1/namespaces/{NS}/configmaps/aifactory-authentication")["data"]["authentication.yaml"]
    assert yaml.safe_load(told)["jwt"][0]["issuer"]["audiences"] == ["vc-ml-team"]
    binding = stage.get(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NS}/rolebindings/aifactory-portal")
    assert binding["roleRef"]["name"] == "aifactory-tenant-cluster"
    stage.flux("Unknown", "Progressing", "Running 'install' action")
    assert (stage.run().phase, stage.said("ReleaseReady")) == (
        "Provisioning", ("Unknown", "Progressing", "Running 'install' action"),
    )  # fmt: skip
    stage.install()
    stage.flux()
    row = stage.until("Ready")
    assert row.running_chart == "0.35.3"
    assert row.running_kubernetes.startswith("v1.")
    assert row.ca_pem.startswith("-----BEGIN CERTIFICATE-----")
    assert row.inside["nodes"] > 0
    owners = stage.inner.call("GET", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/aifactory-owner")[1]
    assert owners["roleRef"]["name"] == "cluster-admin"
    # No way in is kept anywhere in the row.
    token = yaml.safe_load(stage.inner.kubeconfig.read_text())["users"][0]["user"]["token"]
    with system_scope("test"):
        stored = TenantCluster.objects.filter(pk=row.pk).values()[0]
    assert token not in repr(stored)


def test_a_second_look_writes_nothing(stage: Stage):
    stage.ready()
    uids = {path: stage.get(path)["metadata"]["resourceVersion"] for path in (RELEASE, SOURCE, PLANE)}
    before = stage.row
    inner = stage.inner.call("GET", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/aifactory-owner")[1]
    stage.run()
    stage.run()
    assert {path: stage.get(path)["metadata"]["resourceVersion"] for path in uids} == uids
    again = stage.inner.call("GET", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/aifactory-owner")[1]
    assert again["metadata"]["resourceVersion"] == inner["metadata"]["resourceVersion"]
    assert stage.row.updated_at == before.updated_at


def test_a_chart_that_can_not_be_fetched_is_told_as_such_and_tried_again_when_asked(stage: Stage):
    stage.prepared()
    stage.run()
    stage.flux("False", "ArtifactFailed", "dial tcp 203.0.113.1:443: i/o timeout")
    row = stage.run()
    status, reason, message = stage.said("Ready")
    assert (row.phase, status, reason) == ("Degraded", "False", "ArtifactFailed")
    assert message.startswith("The host cluster can't reach the chart registry")
    tenant_cluster_retry(row=row, actor=ADMIN)
    stage.run()
    assert "reconcile.fluxcd.io/resetAt" in stage.get(RELEASE)["metadata"]["annotations"]


def test_another_server_in_the_secret_is_never_spoken_to(stage: Stage):
    stage.prepared()
    stage.run()
    stage.install()
    secret = f"/api/v1/namespaces/{NS}/secrets/vc-{NAME}"
    config = yaml.safe_load(base64.b64decode(stage.get(secret)["data"]["config"]))
    config["clusters"][0]["cluster"]["server"] = "https://localhost:8443"
    text = base64.b64encode(yaml.safe_dump(config).encode()).decode()
    stage.host.call("PATCH", secret, {"data": {"config": text}}, media=MERGE)
    stage.flux()
    stage.until("Degraded")
    assert stage.said("Reachable")[:2] == ("False", "EndpointDiffers")
    assert stage.inner.call("GET", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/aifactory-owner")[0] == 404


def test_what_the_host_refuses_is_said_with_the_numbers(stage: Stage):
    stage.ready()
    pods = "/api/v1/namespaces/default/pods"
    pod = {
        "metadata": {"name": "over"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"none": "such"}},
    }
    assert stage.inner.call("POST", pods, pod)[0] == 201
    try:
        refusal = (
            'Error syncing to host cluster: create object: pods "over" is forbidden: exceeded quota: aifactory-quota, '
            "requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=4, limited: requests.nvidia.com/gpu=4"
        )
        event = {
            "metadata": {"name": "over.1", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "over"},
            "reason": "SyncError",
            "type": "Warning",
            "message": refusal,
        }
        assert stage.inner.call("POST", "/api/v1/namespaces/default/events", event)[0] == 201
        row = stage.run()
        status, reason, message = stage.said("PodsTaken")
        assert (row.phase, status, reason) == ("Ready", "False", "OverQuota")
        assert "Over your quota on this cluster: 4 of 4 nvidia.com/gpu" in message
        assert row.inside["refused"][0]["name"] == "over"
    finally:
        stage.inner.call("DELETE", f"{pods}/over")


def test_drift_is_taken_back_and_a_lost_release_is_made_again(stage: Stage):
    stage.ready()
    stage.host.call("PATCH", RELEASE, {"spec": {"chart": {"spec": {"version": "0.1.0"}}}}, media=MERGE)
    stage.run()
    assert stage.get(RELEASE)["spec"]["chart"]["spec"]["version"] == "0.35.3"


def test_pause_and_resume(stage: Stage):
    row = stage.ready()
    tenant_cluster_pause(row=row, actor=ADMIN)
    pod = {
        "metadata": {"name": "p-x-a-x-ml-team", "labels": {"vcluster.loft.sh/managed-by": NAME}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
    }
    assert stage.host.call("POST", f"/api/v1/namespaces/{NS}/pods", pod)[0] == 201
    stage.run()
    plane = stage.get(PLANE)
    assert plane["spec"]["replicas"] == 0
    assert plane["metadata"]["annotations"]["loft.sh/paused"] == "true"
    assert plane["metadata"]["annotations"]["loft.sh/paused-replicas"] == "1"
    for _ in range(200):
        stage.run()
        if stage.said("Ready")[1] == "Paused":
            break
    assert stage.row.phase == "Paused"
    assert stage.host.call("GET", f"/api/v1/namespaces/{NS}/pods?labelSelector=release%3Dml-team")[1]["items"] == []
    with system_scope("test"):
        assert QuotaAllotment.objects.get(namespace=NS).amount == 4 * CARD
    tenant_cluster_resume(row=row, actor=ADMIN)
    stage.run()
    plane = stage.get(PLANE)
    assert plane["spec"]["replicas"] == 1
    assert "loft.sh/paused" not in (plane["metadata"].get("annotations") or {})
    stage.until("Ready")


def test_an_upgrade_is_done_when_the_new_chart_runs(stage: Stage, settings: Any):
    row = stage.ready()
    settings.AIF_VCLUSTER_VERSIONS = ["1.35.0=0.35.3", "1.36.0=0.36.1"]
    tenant_cluster_upgrade(row=row, version="1.36.0", actor=ADMIN)
    assert stage.run().phase == "Upgrading"
    spec = stage.get(RELEASE)["spec"]
    assert spec["chart"]["spec"]["version"] == "0.36.1"
    assert spec["values"]["controlPlane"]["distro"]["k8s"]["image"]["tag"] == "v1.36.0"
    stage.flux(reason="UpgradeSucceeded")
    assert stage.until("Ready").running_chart == "0.36.1"


def test_robots_come_and_go_inside(stage: Stage):
    row = stage.ready()
    robot = robot_create(row=row, name="ci", role="edit", actor=ADMIN)
    account = "/api/v1/namespaces/aifactory-robots/serviceaccounts/ci"
    stage.run()
    assert stage.inner.call("GET", account)[0] == 200
    with system_scope("test"):
        robot.refresh_from_db()
        assert robot.ready_at is not None
    robot_delete(robot=robot, actor=ADMIN)
    stage.run()
    assert stage.inner.call("GET", account)[0] == 404
    binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/aifactory-robot-ci"
    assert stage.inner.call("GET", binding)[0] == 404
    with system_scope("test"):
        robot.refresh_from_db()
        assert robot.deleted_at is not None


def test_deleting_ends_when_the_host_has_nothing_of_it_any_more(stage: Stage):
    row = stage.ready()
    claim = f"/api/v1/namespaces/{NS}/persistentvolumeclaims"
    stage.host.call(
        "POST",
        claim,
        {
            "metadata": {"name": f"data-{NAME}-0"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        },
    )
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    stage.host.call("POST", role, {"metadata": {"name": f"vc-{NAME}-v-{NS}"}, "rules": []})
    tenant_cluster_delete(row=row, actor=ADMIN)
    row = stage.run()
    assert row.phase == "Deleting"
    assert stage.host.call("GET", RELEASE)[0] == 404
    assert any("StatefulSet ml-team" in left for left in row.leftovers), row.leftovers
    stage.host.call("DELETE", PLANE)
    for _ in range(200):
        row = stage.run()
        if row.leftovers and all("ClusterRole" in left for left in row.leftovers):
            break
    assert [left.split(":")[0] for left in row.leftovers] == [f"ClusterRole vc-{NAME}-v-{NS}"], (
        row.leftovers,
        row.conditions,
    )
    assert row.deleted_at is None
    assert stage.host.call("GET", f"/api/v1/namespaces/{NS}")[0] == 404
    stage.host.call("DELETE", f"{role}/vc-{NAME}-v-{NS}")
    row = stage.until("Deleted")
    with system_scope("test"):
        assert row.deleted_at is not None
        assert not TenantNamespace.objects.filter(name=NS).exists()
        assert not NamespaceClaim.objects.filter(namespace=NS, valid_to=None).exists()
        assert not AppliedObject.objects.filter(namespace=NS, deleted_at=None).exists()
        assert sum(QuotaAllotment.objects.filter(namespace=NS).values_list("amount", flat=True)) == 0


def test_a_silent_host_leaves_the_last_state_standing(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    stage.ready()
    cluster = stage.row.cluster
    cluster.paused = True
    cluster.save(update_fields=["paused"])
    stage.host.call("PATCH", RELEASE, {"spec": {"chart": {"spec": {"version": "0.1.0"}}}}, media=MERGE)
    row = stage.run()
    assert (row.phase, stage.said("HostAnswers")[:2]) == ("Ready", ("False", "ClusterPaused"))
    cluster.paused = False
    cluster.save(update_fields=["paused"])
    stage.run()
    stage.flux()
    stage.until("Ready")
    assert stage.said("HostAnswers") == ("", "", "")


def test_what_it_was_given_can_not_be_used_twice(stage: Stage):
    stage.prepared()
    with system_scope("test"):
        quota = GPUQuota.objects.get(tenant=stage.estate.tenant)
        locked = quota_locked(quota.tenant_id, [quota.gpu_type_id])[quota.gpu_type_id]
        with pytest.raises(QuotaExceeded):
            allotment_require(quota=locked, cluster=stage.estate.clusters[HOST], namespace="t-ml-team", needed=5 * CARD)
