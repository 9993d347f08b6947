"""The objects that vCluster's chart yields for a release. Pure. Names and labels: its templates, version 0.36."""

from __future__ import annotations

import base64
from typing import Any

import yaml

from controlplane.api import Obj
from controlplane.standin.values import digest, switched

RBAC = "rbac.authorization.k8s.io"
SYNCED = ("configmaps", "secrets", "services", "pods", "pods/attach", "pods/portforward", "pods/exec", "endpoints",
          "persistentvolumeclaims")  # fmt: skip


def render(name: str, namespace: str, version: str, values: Obj) -> list[Obj]:
    """Everything but the claim, which the StatefulSet makes; `values` are merged with the defaults."""
    common = {"app": "vcluster", "chart": f"vcluster-{version}", "release": name, "heritage": "Helm"}

    def made(api_version: str, kind: str, title: str, **content: Any) -> Obj:
        metadata = {"name": title, "namespace": namespace, "labels": common}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}

    config = base64.b64encode(yaml.safe_dump(values).encode()).decode()
    selector = {"app": "vcluster", "release": name}
    account = {"kind": "ServiceAccount", "name": f"vc-{name}", "namespace": namespace}
    https = {"name": "https", "port": 443, "targetPort": 8443, "protocol": "TCP"}
    kubelet = {"name": "kubelet", "port": 10250, "targetPort": 8443, "protocol": "TCP"}
    objects = [
        made("v1", "Secret", f"vc-config-{name}", type="Opaque", data={"config.yaml": config}),
        made("v1", "ServiceAccount", f"vc-{name}"),
        made("v1", "ServiceAccount", f"vc-workload-{name}", automountServiceAccountToken=False),
        made(f"{RBAC}/v1", "Role", f"vc-{name}", rules=_rules()),
        made(
            f"{RBAC}/v1", "RoleBinding", f"vc-{name}", subjects=[account],
            roleRef={"apiGroup": RBAC, "kind": "Role", "name": f"vc-{name}"},
        ),
        made("v1", "Service", name, spec={"type": "ClusterIP", "ports": [https, kubelet], "selector": selector}),
        made(
            "v1", "Service", f"{name}-headless",
            spec={"clusterIP": "None", "publishNotReadyAddresses": True, "ports": [https], "selector": selector},
        ),
        made("apps/v1", "StatefulSet", name, spec=_stateful_set(name, version, values, selector)),
    ]  # fmt: skip
    if values["sync"]["fromHost"]["nodes"]["enabled"]:
        kubelets = any(values["networking"]["advanced"]["proxyKubelets"].values())
        objects += _cluster_rights(name, namespace, common, account, kubelets=kubelets)
    return objects + _policies(name, made, values["policies"])


def cluster_name(name: str, namespace: str) -> str:
    """The name of its cluster-wide objects."""
    return f"vc-{name}-v-{namespace}"[:63]


def _rules() -> list[Obj]:
    every = ["create", "delete", "patch", "update", "get", "list", "watch"]
    return [
        {"apiGroups": [""], "resources": list(SYNCED), "verbs": every},
        {"apiGroups": [""], "resources": ["events", "pods/log"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["apps"], "resources": ["statefulsets", "replicasets", "deployments"],
         "verbs": ["get", "list", "watch"]},
    ]  # fmt: skip


def _cluster_rights(name: str, namespace: str, labels: Obj, account: Obj, *, kubelets: bool) -> list[Obj]:
    metadata = {"name": cluster_name(name, namespace), "labels": labels}
    rules = [{"apiGroups": [""], "resources": ["pods", "nodes", "nodes/status"], "verbs": ["get", "watch", "list"]}]
    if kubelets:
        rules.append(
            {"apiGroups": [""], "resources": ["nodes/metrics", "nodes/stats", "nodes/proxy"], "verbs": ["get"]}
        )
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": metadata["name"]}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": metadata, "subjects": [account],
         "roleRef": reference},
    ]  # fmt: skip


def _policies(name: str, made: Any, policies: Obj) -> list[Obj]:
    quota, limits = policies["resourceQuota"], policies["limitRange"]
    objects = []
    if switched(quota["enabled"], limits["enabled"]):
        hard = {key: str(value) for key, value in (quota.get("quota") or {}).items()}
        objects.append(made("v1", "ResourceQuota", f"vc-{name}", spec={"hard": hard}))
    if switched(limits["enabled"], quota["enabled"]):
        row = {"type": "Container", "default": limits["default"], "defaultRequest": limits["defaultRequest"]}
        objects.append(made("v1", "LimitRange", f"vc-{name}", spec={"limits": [row]}))
    if policies["networkPolicy"]["enabled"]:
        pods = {"matchLabels": {"vcluster.loft.sh/managed-by": name}}
        control = {"matchLabels": {"app": "vcluster", "release": name}}
        inner = [{"from": [{"podSelector": pods}, {"podSelector": control}]}]
        outer = [{"to": [{"podSelector": pods}, {"podSelector": control}]}]
        for title, target in ((f"vc-work-{name}", pods), (f"vc-cp-{name}", control)):
            spec = {"podSelector": target, "policyTypes": ["Ingress", "Egress"], "ingress": inner, "egress": outer}
            objects.append(made("networking.k8s.io/v1", "NetworkPolicy", title, spec=spec))
    return objects


def _stateful_set(name: str, version: str, values: Obj, selector: Obj) -> Obj:
    given = values["controlPlane"]["statefulSet"]
    storage, image = given["persistence"], given["image"]
    claim = storage["volumeClaim"]
    kubernetes = f"ghcr.io/loft-sh/kubernetes:{values['controlPlane']['distro']['k8s']['image']['tag']}"
    policy = claim["retentionPolicy"]
    return {
        "replicas": given["highAvailability"]["replicas"],
        "serviceName": f"{name}-headless",
        "podManagementPolicy": "Parallel",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": policy, "whenScaled": "Retain"},
        "selector": {"matchLabels": selector},
        "volumeClaimTemplates": [
            {
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": claim["size"]}}},
            }
        ],
        "template": {
            "metadata": {"labels": selector, "annotations": {"vClusterConfigHash": digest(values)[7:]}},
            "spec": {
                "serviceAccountName": f"vc-{name}",
                "terminationGracePeriodSeconds": 10,
                "initContainers": [
                    {
                        "name": "kubernetes",
                        "image": kubernetes,
                        "command": ["cp"],
                        "args": ["-r", "/kubernetes/.", "/binaries/"],
                        "volumeMounts": [{"name": "binaries", "mountPath": "/binaries"}],
                        "resources": {
                            "limits": {"cpu": "100m", "memory": "256Mi"},
                            "requests": {"cpu": "40m", "memory": "64Mi"},
                        },
                    }
                ],
                "containers": [
                    {
                        "name": "syncer",
                        "image": f"{image['registry']}/{image['repository']}:{image.get('tag') or version}",
                        "env": [{"name": "VCLUSTER_NAME", "value": name}],
                        "resources": given["resources"],
                        "securityContext": {"allowPrivilegeEscalation": False, "runAsUser": 0, "runAsGroup": 0},
                        "volumeMounts": [
                            {"name": "data", "mountPath": "/data"},
                            {"name": "binaries", "mountPath": "/binaries"},
                            {"name": "vcluster-config", "mountPath": "/var/lib/vcluster"},
                            *storage["addVolumeMounts"],
                        ],
                    }
                ],
                "volumes": [
                    {"name": "binaries", "emptyDir": {}},
                    {"name": "vcluster-config", "secret": {"secretName": f"vc-config-{name}"}},
                    *storage["addVolumes"],
                ],
            },
        },
    }
