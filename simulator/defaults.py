"""What the API server fills in: defaults per kind, and the canonical text of quantities. Works in place."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

from simulator import quantity
from simulator.apply import fill_list_keys
from simulator.errors import bad_request
from simulator.kinds import Obj
from simulator.objects import meta, name_of
from simulator.schema import LIMIT_RANGE_MAPS, QUANTITY_MAPS


def fill(obj: Obj) -> None:
    """Fill the defaults of the object's kind and write its quantities canonically.

    Raises ApiError 400 for a quantity that is none."""
    if isinstance(obj.get("spec"), dict | type(None)) and obj["kind"] in _BY_KIND:
        _BY_KIND[obj["kind"]](obj)
    fill_list_keys(obj)
    _quantities(obj, obj["kind"] == "LimitRange")


def containers_of(spec: Obj) -> Iterator[Obj]:
    """The init and main containers of a pod spec."""
    yield from spec.get("initContainers") or []
    yield from spec.get("containers") or []


def _quantities(value: Any, limit_range: bool) -> None:
    if isinstance(value, list):
        for item in value:
            _quantities(item, limit_range)
        return
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        if isinstance(item, dict) and (key in QUANTITY_MAPS or (limit_range and key in LIMIT_RANGE_MAPS)):
            for name, text in item.items():
                if isinstance(text, str | int | float) and not isinstance(text, bool):
                    try:
                        item[name] = quantity.canonical(text)
                    except ValueError as error:
                        raise bad_request(f"unable to parse quantity's suffix: {key}.{name}: {error}") from error
        elif key not in ("managedFields", "labels", "annotations"):
            _quantities(item, limit_range)


def _pod_spec(spec: Obj) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if "serviceAccountName" in spec:
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    elif "serviceAccount" in spec:
        spec["serviceAccountName"] = spec["serviceAccount"]
    for volume in spec.get("volumes") or []:
        if set(volume) == {"name"}:
            volume["emptyDir"] = {}
        for source in ("secret", "configMap", "projected", "downwardAPI"):
            if isinstance(volume.get(source), dict):
                volume[source].setdefault("defaultMode", 420)
    for container in containers_of(spec):
        _container(container)


def _container(container: Obj) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = str(container.get("image", ""))
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    latest = "@" not in image and tag in ("", "latest")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    for variable in container.get("env") or []:
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if isinstance(reference, dict):
            reference.setdefault("apiVersion", "v1")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(container.get(probe), dict):
            for key, value in (
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ):
                container[probe].setdefault(key, value)
            if isinstance(container[probe].get("httpGet"), dict):
                container[probe]["httpGet"].setdefault("path", "/")
                container[probe]["httpGet"].setdefault("scheme", "HTTP")


def _pod(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    _pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for container in containers_of(spec):
        limits = container["resources"].get("limits") or {}
        if limits:
            requests = container["resources"].setdefault("requests", {})
            for name, value in limits.items():
                requests.setdefault(name, value)


def _template(obj: Obj) -> Obj:
    spec: Obj = obj.setdefault("spec", {})
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    _pod_spec(template.setdefault("spec", {}))
    return spec


def _deployment(obj: Obj) -> None:
    spec = _template(obj)
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _replica_set(obj: Obj) -> None:
    _template(obj).setdefault("replicas", 1)


def _stateful_set(obj: Obj) -> None:
    spec = _template(obj)
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"})


def _daemon_set(obj: Obj) -> None:
    spec = _template(obj)
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)


def _job(obj: Obj) -> None:
    spec = _template(obj)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")


def _service(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _network_policy(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    if "policyTypes" not in spec:
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in [*(spec.get("ingress") or []), *(spec.get("egress") or [])]:
        for port in rule.get("ports") or []:
            port.setdefault("protocol", "TCP")


def _secret(obj: Obj) -> None:
    obj.setdefault("type", "Opaque")
    clear = obj.pop("stringData", None) or {}
    if clear:
        data = obj.setdefault("data", {})
        for key, value in clear.items():
            data[key] = base64.b64encode(str(value).encode()).decode()


def _binding(obj: Obj) -> None:
    group = "rbac.authorization.k8s.io"
    if isinstance(obj.get("roleRef"), dict):
        obj["roleRef"].setdefault("apiGroup", group)
    for subject in obj.get("subjects") or []:
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", group)


def _limit_range(obj: Obj) -> None:
    for row in obj.setdefault("spec", {}).get("limits") or []:
        if row.get("type") != "Container":
            continue
        for name, value in (row.get("max") or {}).items():
            row.setdefault("default", {}).setdefault(name, value)
        for name, value in (row.get("default") or {}).items():
            row.setdefault("defaultRequest", {}).setdefault(name, value)
        for name, value in (row.get("min") or {}).items():
            row.setdefault("defaultRequest", {}).setdefault(name, value)


def _namespace(obj: Obj) -> None:
    labels = meta(obj).get("labels") or {}
    labels["kubernetes.io/metadata.name"] = name_of(obj)
    obj["metadata"]["labels"] = labels


def _policy(obj: Obj) -> None:
    obj.setdefault("spec", {}).setdefault("failurePolicy", "Fail")


def _crd(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})


_BY_KIND: dict[str, Callable[[Obj], None]] = {
    "Pod": _pod,
    "Deployment": _deployment,
    "ReplicaSet": _replica_set,
    "StatefulSet": _stateful_set,
    "DaemonSet": _daemon_set,
    "Job": _job,
    "Service": _service,
    "NetworkPolicy": _network_policy,
    "Secret": _secret,
    "RoleBinding": _binding,
    "ClusterRoleBinding": _binding,
    "LimitRange": _limit_range,
    "Namespace": _namespace,
    "ValidatingAdmissionPolicy": _policy,
    "CustomResourceDefinition": _crd,
}
