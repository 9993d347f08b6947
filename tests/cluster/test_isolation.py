"""What keeps tenants apart, on each control plane: every rule with a pod that breaks it and one that does not."""

from __future__ import annotations

import contextlib
import copy
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from infra.adapters.admission import (
    API,
    MANAGED_LABEL,
    TENANT_LABEL,
    namespace_annotations,
    quota_annotation,
    refused_by,
    rules,
)
from infra.adapters.admission_rules import POLICIES
from infra.adapters.probing import NAMESPACE as PROBES
from infra.isolation import Piece
from infra.kube.client import KubeClient
from infra.kube.errors import KubeError, PolicyRefused
from infra.models import AppliedObject, Cluster
from infra.selectors.isolation import cluster_lacks, isolation_pieces
from infra.services.clusters import cluster_set_mode
from infra.services.isolation import isolation_say, isolation_set_wanted
from portal.kernel import workqueue
from portal.kernel.conditions import get_condition
from portal.kernel.models import WorkItem
from portal.kernel.problems import Conflict
from tenants.reconcilers.resync import resync_cluster
from tests.cluster.backends import SimulatorBackend
from tests.cluster.conftest import PATIENCE, Plane, until_pods_are_taken
from tests.support.estate import ADMIN, work
from tests.support.fleet import make_pool
from tests.support.simulator import SimulatorProcess

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]

Obj = dict[str, Any]
Change = Callable[[Obj], None]
SYNCED = "vcluster.loft.sh/managed-by"
DIGEST = "@sha256:" + "0" * 64


@dataclass(frozen=True)
class Case:
    """One object that a rule refuses and one, as near to it as can be, that passes.

    ``namespace``: what its tenant may run, where that is not the ordinary.
    """

    bad: Obj
    good: Obj
    namespace: Obj | None = None


def pod(*changes: Change, **container: Any) -> Obj:
    """A pod that breaks nothing, changed."""
    made: Obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "engine", "image": "ghcr.io/team/engine:v1", **container}],
        },
    }
    for change in changes:
        change(made)
    return made


def spec(**fields: Any) -> Change:
    return lambda obj: obj["spec"].update(copy.deepcopy(fields))


def meta(**fields: Any) -> Change:
    return lambda obj: obj["metadata"].update(copy.deepcopy(fields))


def env(name: str, value: str | None) -> list[Obj]:
    source = {"fieldRef": {"fieldPath": "metadata.name"}}
    return [{"name": name, "value": value} if value is not None else {"name": name, "valueFrom": source}]


def init(**container: Any) -> Change:
    return spec(initContainers=[{"name": "first", "image": "ghcr.io/team/first:v1", **container}])


def asks(**amounts: str) -> Obj:
    found = {f"nvidia.com/{name.replace('_', '-')}": amount for name, amount in amounts.items()}
    return {"limits": found, "requests": found}


def service(**fields: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}, **fields},
    }


def workload(kind: str, annotations: dict[str, str]) -> Obj:
    template = {"metadata": {"labels": {"app": "web"}, "annotations": annotations}, "spec": pod()["spec"]}
    made: Obj = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}}
    if kind == "CronJob":
        template["spec"]["restartPolicy"] = "Never"
        return made | {
            "apiVersion": "batch/v1",
            "spec": {"schedule": "@hourly", "jobTemplate": {"spec": {"template": template}}},
        }
    return made | {"spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}}


def volume(**labels: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "aifactory-test", "labels": labels},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/srv"},
        },
    }


def volume_claim(**fields: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **fields},
    }


ONLY_GHCR = namespace_annotations(registries=["ghcr.io/team/"], pin_digests=False, allow_remote_code=False)
ONLY_HUB = namespace_annotations(registries=["docker.io/vllm"], pin_digests=False, allow_remote_code=False)
NONE_AT_ALL = namespace_annotations(registries=[], pin_digests=False, allow_remote_code=False)
PINNED = namespace_annotations(
    registries=["ghcr.io/team"], pin_digests=True, allow_remote_code=False, platform_images=["ghcr.io/platform"]
)
TRUSTING = namespace_annotations(registries=None, pin_digests=False, allow_remote_code=True)
ORDINARY = namespace_annotations(registries=None, pin_digests=False, allow_remote_code=False)
CLOSED, OPEN = ORDINARY | quota_annotation(False), ORDINARY | quota_annotation(True)

CASES: dict[str, list[Case]] = {
    "host-path": [
        Case(
            pod(spec(volumes=[{"name": "node", "hostPath": {"path": "/"}}])),
            pod(spec(volumes=[{"name": "own", "emptyDir": {}}])),
        )
    ],
    "volume-types": [
        Case(
            pod(spec(volumes=[{"name": "theirs", **source}])),
            pod(spec(volumes=[{"name": "own", "persistentVolumeClaim": {"claimName": "own"}}])),
        )
        for source in (
            {"nfs": {"server": "10.0.0.5", "path": "/exports"}},
            {"csi": {"driver": "nfs.csi.k8s.io", "volumeAttributes": {"server": "10.0.0.5", "share": "/"}}},
            {"iscsi": {"targetPortal": "10.0.0.5:3260", "iqn": "iqn.2001-04.com.example:disk", "lun": 0}},
        )
    ],
    "privileged": [
        Case(pod(securityContext={"privileged": True}), pod(securityContext={"privileged": False})),
        Case(pod(init(securityContext={"privileged": True})), pod(init())),
    ],
    "host-namespaces": [
        Case(pod(spec(**{field: True})), pod(spec(**{field: False}))) for field in ("hostNetwork", "hostPID", "hostIPC")
    ],
    "host-ports": [
        Case(
            pod(ports=[{"containerPort": 80, "hostPort": 80}]),
            pod(ports=[{"containerPort": 80}]),
        )
    ],
    "probe-hosts": [
        Case(
            pod(livenessProbe={"httpGet": {"host": "169.254.169.254", "path": "/", "port": 80}}),
            pod(livenessProbe={"httpGet": {"path": "/", "port": 80}}),
        ),
        Case(
            pod(lifecycle={"postStart": {"tcpSocket": {"host": "10.0.0.5", "port": 22}}}),
            pod(lifecycle={"postStart": {"exec": {"command": ["true"]}}}),
        ),
    ],
    "capabilities": [
        Case(
            pod(securityContext={"capabilities": {"add": [name]}}),
            pod(securityContext={"capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}}),
        )
        for name in ("SYS_ADMIN", "MKNOD", "NET_RAW")
    ],
    "gpu-env": [
        Case(pod(env=env("NVIDIA_VISIBLE_DEVICES", "all")), pod(env=env("NVIDIA_VISIBLE_DEVICES", "none"))),
        Case(pod(env=env("NVIDIA_VISIBLE_DEVICES", None)), pod(env=env("CUDA_VISIBLE_DEVICES", "0"))),
        Case(pod(env=env("CUDA_DISABLE_CONTROL", "true")), pod(env=env("MODEL", "CUDA_DISABLE_CONTROL"))),
        Case(pod(init(env=env("LD_PRELOAD", "/tmp/own.so"))), pod(init(env=env("LD_LIBRARY_PATH", "/opt/lib")))),
        Case(pod(env=env("CUDA_DEVICE_MEMORY_LIMIT_0", "0")), pod(env=env("CUDA_DEVICE_ORDER", "PCI_BUS_ID"))),
        Case(
            pod(env=env("GPU_CORE_UTILIZATION_POLICY", "disable")), pod(env=env("GPU_CORE_UTILIZATION_POLICY", "force"))
        ),
        Case(
            pod(env=env("CUDA_TASK_PRIORITY", "0"), resources=asks(priority="1")),
            pod(env=env("CUDA_TASK_PRIORITY", "1"), resources=asks(priority="1")),
        ),
    ],
    "hami-webhook": [
        Case(pod(meta(labels={"hami.io/webhook": "ignore"})), pod(meta(labels={"hami.io/other": "ignore"})))
    ],
    "control-plane-label": [
        Case(pod(meta(labels={SYNCED: "team", **labels})), pod(meta(labels={SYNCED: "team", "app": "vcluster"})))
        for labels in ({"release": "team"}, {"release": "", "app": "vcluster"})
    ]
    + [
        Case(pod(meta(labels={SYNCED: "team", **labels})), pod(meta(labels=labels)))
        for labels in ({"release": "x"}, {"app": "vcluster-snapshot"})
    ],
    "uncounted-devices": [
        Case(pod(resources={"limits": {name: "1"}}), pod(resources={"limits": {"aifactory.dev/test": "1"}}))
        for name in ("deviceclass.resource.kubernetes.io/gpu.nvidia.com", "nvidia.com/GA102GL_A10", "rdma/hca")
    ],
    "quota-not-enforced": [
        Case(pod(resources=asks(gpu="1")), pod(resources={"limits": {"cpu": "1"}}), CLOSED),
        Case(pod(init(resources=asks(**{"mig_1g.10gb": "1"}))), pod(init()), CLOSED),
        Case(pod(resources=asks(gpumem="1000")), pod(), CLOSED),
    ],
    "scheduler": [
        Case(pod(spec(schedulerName="own-scheduler")), pod(spec(schedulerName="hami-scheduler"))),
    ],
    "hami-scheduler": [
        # The name keeps HAMi's webhook off the pod where it is not told to overwrite the default.
        Case(
            pod(resources=asks(gpu="1", gpumem="1000")),
            pod(spec(schedulerName="hami-scheduler"), resources=asks(gpu="1", gpumem="1000")),
        ),
        Case(
            pod(init(resources=asks(gpu="1", gpucores="10"))),
            pod(spec(schedulerName="hami-scheduler"), init(resources=asks(gpu="1", gpucores="10"))),
        ),
    ],
    "node-name": [Case(pod(spec(nodeName="node-1")), pod(spec(nodeSelector={"pool": "a"})))],
    "tolerations": [
        Case(
            pod(spec(tolerations=[row])),
            pod(spec(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "aifactory.dev/pool"}])),
        )
        for row in (
            {"operator": "Exists"},
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "dedicated", "value": "infra", "effect": "NoSchedule"},
        )
    ],
    "extra-networks": [
        Case(pod(meta(annotations={name: "other"})), pod(meta(annotations={"k8s.v1.cni.cncf.io/note": "other"})))
        for name in ("k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network")
    ],
    "image-registry": [
        Case(pod(image="quay.io/team/engine:v1"), pod(image="ghcr.io/team/engine:v1" + DIGEST), ONLY_GHCR),
        Case(pod(image="ghcr.io/teams/engine"), pod(image="ghcr.io/team/sub/engine"), ONLY_GHCR),
        Case(pod(image="engine"), pod(image="vllm/vllm-openai:v1"), ONLY_HUB),
        Case(pod(init(image="docker.io/other/x")), pod(image="docker.io/vllm/x:1"), ONLY_HUB),
        Case(pod(image="localhost:5000/vllm/x"), pod(image="vllm/x"), ONLY_HUB),
        Case(pod(image="ghcr.io/a/b"), pod(image="ghcr.io/platform/control-plane:v1"), PINNED),
    ],
    "image-digest": [
        Case(pod(image="ghcr.io/team/engine:v1"), pod(image="ghcr.io/team/engine:v1" + DIGEST), PINNED),
        Case(
            pod(init(image="ghcr.io/team/first:v1"), image="ghcr.io/team/engine" + DIGEST),
            pod(image="ghcr.io/platform/control-plane:v1"),
            PINNED,
        ),
    ],
    "remote-code": [
        Case(pod(args=["--model", "x", "--trust-remote-code"]), pod(args=["--model", "x", "--trace"])),
        Case(pod(command=["sh", "-c", "serve --Trust_remote=1"]), pod(command=["sh", "-c", "serve --no-tru"])),
        Case(pod(env=env("HF_TRUST_REMOTE_CODE", "1")), pod(env=env("HF_HOME", "/models"))),
        Case(pod(init(args=["--trust-remote-code"])), pod(init(args=["--help"]))),
    ],
    "service-type": [
        Case(service(type="LoadBalancer"), service(type="ClusterIP")),
        Case(service(type="NodePort"), service()),
    ],
    "external-ips": [Case(service(externalIPs=["192.0.2.1"]), service(externalIPs=[]))],
    "dns-names": [
        Case(
            service() | {"metadata": {"name": "web", "annotations": {name: "portal.example.com"}}},
            service() | {"metadata": {"name": "web", "annotations": {"note": name}}},
        )
        for name in ("external-dns.alpha.kubernetes.io/hostname", "external-dns.alpha.kubernetes.io/internal-hostname")
    ],
}
"""Rules that a plain creation shows. Those that need another user, an update or a class of the cluster: below."""

ELSEWHERE = {
    "gpu-pin", "workload-gpu-pin", "ephemeral-containers", "runtime-class", "priority-class", "volume-host-path",
    "claim-by-name", "tenant-share",
}  # fmt: skip


def test_every_rule_has_its_cases() -> None:
    ids = [rule.id for rule in rules()]
    assert len(ids) == len(set(ids))
    assert set(ids) == set(CASES) | ELSEWHERE
    assert set(CASES).isdisjoint(ELSEWHERE)


@dataclass
class Guarded:
    """A managed cluster with our policies in force, and a namespace labelled as a tenant's (and no more than that)."""

    plane: Plane
    cluster: Cluster
    namespace: str

    def allow(self, annotations: Obj) -> None:
        """What the namespace's tenant may run; in force when the server's own copy of the namespace has it."""
        self.plane.client.apply(_namespace(self.namespace, annotations))

    def refusal(self, obj: Obj, namespace: str = "") -> str:
        """The rule that refuses the object, "" where it may pass. Nothing is stored."""
        made = copy.deepcopy(obj)
        if made["kind"] != "PersistentVolume":
            made["metadata"]["namespace"] = namespace or self.namespace
        refused: PolicyRefused | None = None
        try:
            self.plane.client.create_dry_run(made)
        except PolicyRefused as error:
            refused = error
        if refused is None:
            return ""
        rule = refused_by(refused.policy, refused.message)
        assert rule, refused.sentence
        assert refused.message.endswith("."), refused.message
        return rule

    def becomes(self, obj: Obj, rule: str) -> bool:
        """Whether the object is soon refused by this rule ("": by none): policies take effect with a delay."""
        end = time.monotonic() + PATIENCE
        while (found := self.refusal(obj)) != rule and time.monotonic() < end:
            time.sleep(0.1)
        assert found == rule, (found, rule)
        return True


def _namespace(name: str, annotations: Obj) -> Obj:
    key, value = MANAGED_LABEL
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {key: value, TENANT_LABEL: "t"}, "annotations": dict(annotations)},
    }


@pytest.fixture
def guarded(plane: Plane) -> Iterator[Guarded]:
    cluster = plane.cluster
    name = f"{plane.namespace}-t"
    plane.client.apply(_namespace(name, ORDINARY))
    until_pods_are_taken(plane.client, name)
    _settle(cluster)
    yield Guarded(plane, cluster, name)
    with contextlib.suppress(KubeError):
        plane.client.delete("v1", "Namespace", name, uid=plane.client.get("v1", "Namespace", name)["metadata"]["uid"])


def _settle(cluster: Cluster) -> None:
    """Reconcile until the cluster has proven what it can (or has told that it can't)."""
    end = time.monotonic() + PATIENCE
    workqueue.mark("isolation", cluster.pk, cluster_id=cluster.pk)
    while True:
        work("isolation")
        cluster.refresh_from_db()
        states = {piece.piece: piece.state for piece in isolation_pieces(cluster)}
        if all(states[piece] == "yes" for piece in (Piece.ADMISSION, Piece.POD_SECURITY, Piece.QUOTA)):
            return
        told = [piece.sentence for piece in isolation_pieces(cluster)]
        assert time.monotonic() < end, (told, list(WorkItem.objects.values_list("kind", "last_error")))
        time.sleep(0.2)


def test_each_rule_refuses_the_bad_and_passes_the_good(guarded: Guarded) -> None:
    allowed = ORDINARY
    for rule, cases in CASES.items():
        for number, case in enumerate(cases):
            if (wanted := case.namespace or ORDINARY) != allowed:
                allowed = wanted
                guarded.allow(allowed)
                assert guarded.becomes(case.bad, rule)
            assert guarded.refusal(case.bad) == rule, (rule, number)
            assert guarded.refusal(case.good) == "", (rule, number)
    guarded.allow(NONE_AT_ALL)
    assert guarded.becomes(pod(), "image-registry")
    guarded.allow(TRUSTING)
    assert guarded.becomes(pod(args=["--trust-remote-code"]), "")
    assert guarded.refusal(pod(image="anything")) == "", "no list: any registry"
    guarded.allow(CLOSED)
    assert guarded.becomes(pod(resources=asks(gpu="1")), "quota-not-enforced")
    guarded.allow(OPEN)
    assert guarded.becomes(pod(resources=asks(gpu="1")), "")


def test_a_message_names_the_object_what_breaks_the_rule_and_what_to_do(guarded: Guarded) -> None:
    bad = pod(spec(volumes=[{"name": "node", "hostPath": {"path": "/"}}]))
    bad["metadata"]["namespace"] = guarded.namespace
    with pytest.raises(PolicyRefused) as refused:
        guarded.plane.client.create_dry_run(bad)
    assert refused.value.policy == "aifactory-pods"
    assert refused.value.message == (
        "[host-path] web: these volumes are files of the node (node). Use an emptyDir or a PersistentVolumeClaim "
        "instead of hostPath."
    )


def test_a_foreign_namespace_is_untouched(guarded: Guarded) -> None:
    key, _ = MANAGED_LABEL
    labelled = f"{guarded.namespace}-theirs"
    guarded.plane.client.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": labelled, "labels": {key: "their-tool", TENANT_LABEL: "their-own"}},
        }
    )
    for where in (guarded.plane.namespace, labelled):
        for cases in CASES.values():
            for case in cases:
                assert guarded.refusal(case.bad, where) == "", case.bad


def test_what_hami_makes_of_a_pod_passes(guarded: Guarded) -> None:
    """As its webhook leaves it, then as its scheduler and device plugin mark it."""
    made = pod(
        spec(schedulerName="hami-scheduler", runtimeClassName="nvidia"),
        init(env=env("NVIDIA_VISIBLE_DEVICES", "none")),
        env=[*env("CUDA_TASK_PRIORITY", "1"), *env("GPU_CORE_UTILIZATION_POLICY", "force")],
        resources=asks(gpu="1", gpumem="3000", gpucores="25", priority="1"),
    )
    if guarded.plane.backend.name == "real":
        made["spec"].pop("runtimeClassName")  # the class itself would have to be there
    assert guarded.refusal(made) == ""
    made["metadata"]["namespace"] = guarded.namespace
    guarded.plane.client.apply(made)
    live = guarded.plane.client.get("v1", "Pod", "web", guarded.namespace)
    marked = guarded.plane.client.patch_metadata(
        "v1", "Pod", "web", guarded.namespace, uid=live["metadata"]["uid"],
        annotations={"hami.io/vgpu-devices-to-allocate": "GPU-1,NVIDIA,3000,25:;", "hami.io/bind-phase": "allocating"},
        labels={"hami.io/vgpu-node": "node-1"}, field_manager="hami-scheduler",
    )  # fmt: skip
    assert marked["metadata"]["annotations"]["hami.io/bind-phase"] == "allocating"
    with pytest.raises(PolicyRefused):
        guarded.plane.client.patch_metadata(
            "v1", "Pod", "web", guarded.namespace, uid=live["metadata"]["uid"], labels={"hami.io/webhook": "ignore"}
        )


# ---- what takes another user, an update, or a class of the cluster ------------------------------------------------


@pytest.fixture
def strangers(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    """The same, with policies that take somebody else for the portal: what we send is a stranger's."""
    with monkeypatch.context() as patch:
        patch.setattr(KubeClient, "subject", lambda self: "system:serviceaccount:aifactory:portal")
        patch.setattr("infra.reconcilers.isolation._admission", lambda client: {"state": "no", "sentence": "a test"})
        _reconcile(guarded.cluster)
    pinned = pod(meta(annotations=PIN))
    assert guarded.becomes(pinned, "gpu-pin")
    yield guarded
    _reconcile(guarded.cluster)
    guarded.becomes(pinned, "")


PIN = {"nvidia.com/use-gpuuuid": "GPU-1"}


def _reconcile(cluster: Cluster) -> None:
    workqueue.mark("isolation", cluster.pk, cluster_id=cluster.pk)
    work("isolation")


def test_only_the_platform_says_on_which_card_a_pod_goes(strangers: Guarded) -> None:
    for notes in (
        PIN,
        {"nvidia.com/nouse-gpuuuid": "GPU-1"},
        {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,1,1"},
    ):
        assert strangers.refusal(pod(meta(annotations=notes))) == "gpu-pin"
        assert strangers.becomes(workload("Deployment", notes), "workload-gpu-pin")
    assert strangers.refusal(pod(meta(annotations={"nvidia.com/use-gputype": "H100"}))) == ""
    assert strangers.refusal(workload("Deployment", {"note": "GPU-1"})) == ""
    if strangers.plane.backend.name == "real":
        assert strangers.refusal(workload("CronJob", PIN)) == "workload-gpu-pin"


def test_the_portal_itself_pins_and_so_do_the_controllers_for_it(guarded: Guarded) -> None:
    made = workload("Deployment", PIN)
    assert guarded.becomes(made, "")
    made["metadata"]["namespace"] = guarded.namespace
    guarded.plane.client.apply(made)
    end = time.monotonic() + PATIENCE
    while not (pods := guarded.plane.client.list_all("v1", "Pod", namespace=guarded.namespace).items):
        assert time.monotonic() < end, "the Deployment's controllers may not make the pod"
        time.sleep(0.2)
    assert pods[0]["metadata"]["annotations"]["nvidia.com/use-gpuuuid"] == "GPU-1"


def test_classes_of_the_cluster(guarded: Guarded) -> None:
    real = guarded.plane.backend.name == "real"
    if real:
        for name in ("gvisor-test", "nvidia"):
            _global({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": name}, name, guarded)
        for name, value in (("high-test", 1000), ("low-test", -5)):
            made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
            _global(made, name, guarded)
    assert guarded.becomes(pod(spec(runtimeClassName="gvisor-test")), "runtime-class")
    assert guarded.refusal(pod(spec(runtimeClassName="nvidia"))) == ""
    high, low = {"priorityClassName": "high-test"}, {"priorityClassName": "low-test"}
    assert guarded.refusal(pod(spec(**high if real else high | {"priority": 1000}))) == "priority-class"
    assert guarded.refusal(pod(spec(**low if real else low | {"priority": -5}))) == ""


def _global(made: Obj, name: str, guarded: Guarded) -> None:
    guarded.plane.client.apply(made | {"metadata": {"name": name}})


@pytest.fixture
def real_only(guarded: Guarded) -> Guarded:
    if guarded.plane.backend.name != "real":
        pytest.skip("the simulator has no volumes and adds no containers to a running pod")
    return guarded


def test_volumes(real_only: Guarded) -> None:
    assert real_only.becomes(volume(**{"vcluster.loft.sh/managed-by": "vc-a-x-a"}), "volume-host-path")
    assert real_only.refusal(volume(**{TENANT_LABEL: "t"})) == "volume-host-path"
    assert real_only.refusal(volume()) == "", "what is nobody's of ours is not our business"
    assert real_only.refusal(volume_claim(volumeName="somebody-elses")) == "claim-by-name"
    assert real_only.refusal(volume_claim(selector={"matchLabels": {"team": "other"}})) == "claim-by-name"
    assert real_only.refusal(volume_claim()) == ""
    assert real_only.refusal(volume_claim(volumeName="theirs"), real_only.plane.namespace) == ""


def test_no_container_is_added_to_a_running_pod(real_only: Guarded) -> None:
    made = pod()
    made["metadata"]["namespace"] = real_only.namespace
    real_only.plane.client.apply(made)
    added = {"spec": {"ephemeralContainers": [{"name": "look", "image": "busybox"}]}}
    path = f"/api/v1/namespaces/{real_only.namespace}/pods/web"
    media = "application/strategic-merge-patch+json"
    call = real_only.plane.backend._real.call  # type: ignore[attr-defined]
    status, answer = call("PATCH", f"{path}/ephemeralcontainers", added, media=media)
    assert (status, "[ephemeral-containers] web" in str(answer)) == (403, True), answer
    status, answer = call("PATCH", path, {"metadata": {"labels": {"note": "x"}}}, media=media)
    assert status == 200, answer


def test_somebody_in_the_namespace_does_not_rewrite_hamis_record(real_only: Guarded) -> None:
    """As a tenant cluster's syncer might: it may change pods there, and yet not say which card they have."""
    client, where = real_only.plane.client, real_only.namespace
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
    syncer = {"kind": "ServiceAccount", "name": "syncer", "namespace": where}
    client.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "syncer", "namespace": where}})
    client.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "syncer", "namespace": where}, "roleRef": role, "subjects": [syncer],
        }
    )  # fmt: skip
    made = pod()
    made["metadata"]["namespace"] = where
    client.apply(made)
    token = client.request_token(where, "syncer", seconds=600, audiences=[])
    real = real_only.plane.backend._real  # type: ignore[attr-defined]

    def patch(annotations: dict[str, str]) -> tuple[int, str]:
        answer = real.pool.request(
            "PATCH", f"{real.server}/api/v1/namespaces/{where}/pods/web",
            body=json.dumps({"metadata": {"annotations": annotations}}),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"},
        )  # fmt: skip
        return answer.status, answer.data.decode()

    end = time.monotonic() + PATIENCE
    while (answer := patch({"note": "theirs"}))[0] == 403 and time.monotonic() < end:
        time.sleep(0.2)  # the authorizer takes up the binding
    assert answer[0] == 200, answer
    status, said = patch({"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,80000,100:;"})
    assert (status, "[gpu-pin] web" in said) == (403, True), said


# ---- proof, drift, withdrawal --------------------------------------------------------------------------------------


def test_a_cluster_is_isolated_when_all_is_proven_and_the_network_is_answered_for(guarded: Guarded) -> None:
    cluster = guarded.cluster
    assert cluster_lacks(cluster) == ("network policies",)
    condition = get_condition(cluster.conditions, "Isolated")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "Lacks")
    assert condition.message.startswith("It lacks: network policies.")
    cluster = isolation_say(
        cluster=cluster, piece="network-policies", how="declared", text="tried with two pods", actor=ADMIN
    )
    assert cluster_lacks(cluster) == ()
    condition = get_condition(cluster.conditions, "Isolated")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "Complete")
    assert "Declared, not proven: network policies" in condition.message


@pytest.mark.parametrize(
    ("key", "lacks"),
    [
        (
            ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "aifactory-pods", ""),
            "admission policies",
        ),
        (("v1", "ResourceQuota", "aifactory-quota", PROBES), "resource quota"),
    ],
)
def test_what_somebody_took_away_is_named_and_the_comparison_puts_it_back(
    guarded: Guarded, key: tuple[str, str, str, str], lacks: str
) -> None:
    api, kind, name, namespace = key
    client, cluster = guarded.plane.client, guarded.cluster
    live = client.get(api, kind, name, namespace)
    client.delete(api, kind, name, namespace, uid=live["metadata"]["uid"])
    end = time.monotonic() + PATIENCE
    while lacks not in cluster_lacks(cluster):
        assert time.monotonic() < end, cluster.isolation
        _reconcile(cluster)
        cluster.refresh_from_db()
    assert resync_cluster(cluster) >= 1
    _settle(cluster)
    assert client.get(api, kind, name, namespace)["metadata"]["uid"] != live["metadata"]["uid"]


def test_a_changed_policy_is_changed_back(guarded: Guarded) -> None:
    weaker = {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "aifactory-services"},
        "spec": {"matchConditions": [{"name": "never", "expression": "false"}]},
    }
    guarded.plane.client.apply(weaker, field_manager="kubectl-edit")
    assert guarded.becomes(service(type="NodePort"), "")
    assert resync_cluster(guarded.cluster) >= 1
    _settle(guarded.cluster)
    assert guarded.becomes(service(type="NodePort"), "service-type")


def test_a_cluster_without_hamis_webhook_lacks_it_where_a_pool_hands_out_shares(guarded: Guarded) -> None:
    cluster = guarded.cluster
    assert Piece.HAMI not in {piece.piece for piece in isolation_pieces(cluster)}
    make_pool("hami", cluster=cluster)
    assert "HAMi's webhook" in cluster_lacks(cluster)
    (hami,) = [piece for piece in isolation_pieces(cluster) if piece.piece is Piece.HAMI]
    assert hami.state == "no"
    assert "HAMi" in hami.remedy


def test_hamis_webhook_is_seen_where_it_is(simulated_fleet: SimulatorProcess, db: None) -> None:
    cluster = SimulatorBackend(simulated_fleet["gpu-fra-2"]).connect()
    make_pool("hami", cluster=cluster)
    _settle(cluster)
    assert "HAMi's webhook" not in cluster_lacks(cluster)


def test_policies_are_taken_down_before_a_cluster_is_only_observed(guarded: Guarded) -> None:
    cluster, client = guarded.cluster, guarded.plane.client
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")

    def there() -> set[tuple[str, str]]:
        return {(kind, each["metadata"]["name"]) for kind in kinds for each in client.list_all(API, kind).items}

    rows = AppliedObject.objects.filter(cluster=cluster, kind__in=kinds, deleted_at__isnull=True)
    ours = set(rows.values_list("kind", "name"))
    others = there() - ours
    assert len(ours) == 2 * len(POLICIES)
    assert ours <= there()
    with pytest.raises(Conflict, match="admission policies are still on cluster sut"):
        cluster_set_mode(cluster=cluster, mode="observe", actor=ADMIN)
    cluster = isolation_set_wanted(cluster=cluster, wanted=False, actor=ADMIN)
    assert set(cluster_lacks(cluster)) >= {"admission policies", "Pod Security admission", "resource quota"}
    end = time.monotonic() + PATIENCE
    while AppliedObject.objects.filter(cluster=cluster, deleted_at__isnull=True).exists():
        assert time.monotonic() < end
        work("isolation")
        time.sleep(0.1)
    assert there() == others, "ours are gone; what an administrator has put there beside them stays"
    assert cluster_set_mode(cluster=cluster, mode="observe", actor=ADMIN).mode == "observe"
    Cluster.objects.filter(pk=cluster.pk).update(mode="manage")


def test_a_cluster_that_cannot_be_asked_keeps_what_it_told(guarded: Guarded) -> None:
    before = guarded.cluster.isolation["pieces"]
    Cluster.objects.filter(pk=guarded.cluster.pk).update(paused=True)
    _reconcile(guarded.cluster)
    guarded.cluster.refresh_from_db()
    assert guarded.cluster.isolation["pieces"] == before


def test_an_observed_cluster_gets_no_policy_and_no_dry_run(plane: Plane) -> None:
    Cluster.objects.filter(pk=plane.cluster.pk).update(mode="observe")
    plane.backend.count_anew()
    _reconcile(plane.cluster)
    assert plane.backend.requests() == 0
    assert not AppliedObject.objects.filter(cluster=plane.cluster).exists()
    Cluster.objects.filter(pk=plane.cluster.pk).update(mode="manage")
