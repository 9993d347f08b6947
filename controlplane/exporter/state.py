"""The series of kube-state-metrics that metering and history need, under its names (kubernetes/kube-state-metrics,
docs/metrics). Values in base units: seconds since the epoch, cores, bytes, whole devices."""

from __future__ import annotations

import re
from collections.abc import Iterator

from controlplane.api import Obj
from controlplane.exporter.mirror import Mirror
from simulator import quantity
from simulator.objects import controller_of, labels_of, name_of, namespace_of, uid_of, unix

Sample = tuple[str, dict[str, str], float]
PHASES = ("Pending", "Succeeded", "Failed", "Unknown", "Running")
UNITS = {"cpu": "core", "memory": "byte", "ephemeral-storage": "byte", "pods": "integer"}
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_]")


def text(mirror: Mirror) -> str:
    """The exposition. Hold the mirror's lock."""
    samples: dict[str, list[str]] = {}
    for name, labels, value in _samples(mirror):
        pairs = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
        number = int(value) if value == int(value) else value
        samples.setdefault(name, []).append(f"{name}{{{pairs}}} {number}")
    lines = []
    for name, rows in samples.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE {name} {kind}", *rows]
    return "\n".join(lines) + "\n"


def _samples(mirror: Mirror) -> Iterator[Sample]:
    for node in mirror.objects["nodes"].values():
        yield from _node(node)
    for pod in mirror.pods.all.values():
        yield from _pod(pod)
    for owned, kind in (("replicasets", "replicaset"), ("jobs", "job_name")):
        for item in mirror.objects[owned].values():
            row = {"namespace": namespace_of(item), kind: name_of(item)}
            yield f"kube_{owned[:-1]}_owner", row | _owner(item), 1
    for namespace in mirror.objects["namespaces"].values():
        where = {"namespace": name_of(namespace)}
        yield "kube_namespace_created", where, unix(namespace["metadata"]["creationTimestamp"])
        yield "kube_namespace_labels", where | _labels(namespace), 1


def _node(node: Obj) -> Iterator[Sample]:
    row, status = {"node": name_of(node)}, node.get("status", {})
    info, spec = status.get("nodeInfo", {}), node.get("spec", {})
    address = next((a["address"] for a in status.get("addresses") or [] if a["type"] == "InternalIP"), "")
    yield (
        "kube_node_info",
        row
        | {
            "kernel_version": info.get("kernelVersion", ""),
            "os_image": info.get("osImage", ""),
            "container_runtime_version": info.get("containerRuntimeVersion", ""),
            "kubelet_version": info.get("kubeletVersion", ""),
            "provider_id": spec.get("providerID", ""),
            "pod_cidr": spec.get("podCIDR", ""),
            "system_uuid": info.get("systemUUID", ""),
            "internal_ip": address,
        },
        1,
    )
    yield "kube_node_created", row, unix(node["metadata"]["creationTimestamp"])
    yield "kube_node_labels", row | _labels(node), 1
    for which in ("capacity", "allocatable"):
        for resource, value in (status.get(which) or {}).items():
            yield f"kube_node_status_{which}", row | _resource(resource), float(quantity.parse(value))
    for condition in status.get("conditions") or []:
        for value in ("true", "false", "unknown"):
            held = condition["status"].lower() == value
            yield "kube_node_status_condition", row | {"condition": condition["type"], "status": value}, float(held)


def _pod(pod: Obj) -> Iterator[Sample]:
    row = {"namespace": namespace_of(pod), "pod": name_of(pod), "uid": uid_of(pod)}
    spec, status, owner = pod["spec"], pod.get("status", {}), _owner(pod)
    node = spec.get("nodeName", "")
    yield (
        "kube_pod_info",
        row
        | {
            "host_ip": status.get("hostIP", ""),
            "pod_ip": status.get("podIP", ""),
            "node": node,
            "created_by_kind": owner["owner_kind"],
            "created_by_name": owner["owner_name"],
            "priority_class": spec.get("priorityClassName", ""),
            "host_network": str(bool(spec.get("hostNetwork"))).lower(),
        },
        1,
    )
    yield "kube_pod_owner", row | owner, 1
    yield "kube_pod_labels", row | _labels(pod), 1
    yield "kube_pod_created", row, unix(pod["metadata"]["creationTimestamp"])
    if status.get("startTime"):
        yield "kube_pod_start_time", row, unix(status["startTime"])
    if pod["metadata"].get("deletionTimestamp"):
        yield "kube_pod_deletion_timestamp", row, unix(pod["metadata"]["deletionTimestamp"])
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "True":
            yield "kube_pod_status_scheduled_time", row, unix(condition["lastTransitionTime"])
    for phase in PHASES:
        yield "kube_pod_status_phase", row | {"phase": phase}, float(status.get("phase") == phase)
    ends = [
        unix(one["state"]["terminated"]["finishedAt"])
        for one in status.get("containerStatuses") or []
        if one.get("state", {}).get("terminated")
    ]
    if ends and status.get("phase") in ("Succeeded", "Failed"):
        yield "kube_pod_completion_time", row, max(ends)
    for which, prefix in (("containers", "kube_pod_container"), ("initContainers", "kube_pod_init_container")):
        for container in spec.get(which) or []:
            yield from _requests(row | {"container": container["name"], "node": node}, container, prefix)
    for which, prefix in (
        ("containerStatuses", "kube_pod_container"),
        ("initContainerStatuses", "kube_pod_init_container"),
    ):
        for container in status.get(which) or []:
            yield from _container(row | {"container": container["name"]}, container, prefix)


def _requests(row: dict[str, str], container: Obj, prefix: str) -> Iterator[Sample]:
    for which in ("requests", "limits"):
        for resource, value in ((container.get("resources") or {}).get(which) or {}).items():
            yield f"{prefix}_resource_{which}", row | _resource(resource), float(quantity.parse(value))


def _container(row: dict[str, str], container: Obj, prefix: str) -> Iterator[Sample]:
    state, last = container.get("state") or {}, container.get("lastState") or {}
    yield f"{prefix}_info", row | {"image": container.get("image", "")}, 1
    yield f"{prefix}_status_restarts_total", row, container.get("restartCount", 0)
    yield f"{prefix}_status_running", row, float("running" in state)
    yield f"{prefix}_status_ready", row, float(bool(container.get("ready")))
    if "running" in state:
        yield f"{prefix}_state_started", row, unix(state["running"]["startedAt"])
    if "terminated" in state:
        ended = state["terminated"]
        yield f"{prefix}_state_started", row, unix(ended["startedAt"])
        yield f"{prefix}_status_terminated_reason", row | {"reason": ended.get("reason", "")}, 1
    if "terminated" in last:
        yield f"{prefix}_status_last_terminated_timestamp", row, unix(last["terminated"]["finishedAt"])
    if "waiting" in state:
        yield f"{prefix}_status_waiting_reason", row | {"reason": state["waiting"].get("reason", "")}, 1


def _owner(item: Obj) -> dict[str, str]:
    owner = controller_of(item)
    if owner is None:
        return {"owner_kind": "", "owner_name": "", "owner_is_controller": ""}
    return {"owner_kind": owner["kind"], "owner_name": owner["name"], "owner_is_controller": "true"}


def _labels(item: Obj) -> dict[str, str]:
    return {f"label_{_NOT_ALLOWED.sub('_', key)}": value for key, value in labels_of(item).items()}


def _resource(name: str) -> dict[str, str]:
    return {"resource": _NOT_ALLOWED.sub("_", name), "unit": UNITS.get(name, "integer")}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
