"""What the workload controllers share: pods from a template, which pods count, which is to go first."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.cluster import Cluster
from simulator.errors import ApiError
from simulator.kinds import POD, Kind, Obj
from simulator.objects import (
    clone,
    condition,
    controller_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from simulator.options import Options
from simulator.resources import FINISHED
from simulator.selectors import matches


def pod_from(owner: Obj, template: Obj, labels: dict[str, str] | None = None) -> Obj:
    """A pod (without a name) from the owner's template."""
    meta = clone(template.get("metadata") or {})
    meta.pop("creationTimestamp", None)
    if labels:
        meta.setdefault("labels", {}).update(labels)
    meta["ownerReferences"] = [owner_reference(owner)]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": clone(template.get("spec") or {})}


def create_pod(cluster: Cluster, owner: Obj, pod: Obj, component: str) -> ApiError | None:
    """Create the pod with an event on its owner; a refusal is returned, not raised."""
    options = Options(manager="kube-controller-manager")
    try:
        made = cluster.registry.create(POD, namespace_of(owner), pod, options)
    except ApiError as error:
        cluster.event(owner, "FailedCreate", f"Error creating: {error}", component, warning=True)
        return error
    cluster.event(owner, "SuccessfulCreate", f"Created pod: {name_of(made.obj)}", component)
    return None


def delete_pod(cluster: Cluster, owner: Obj, pod: Obj, component: str) -> None:
    """Ask for the pod's deletion, with an event on its owner."""
    cluster.registry.delete(POD, namespace_of(pod), name_of(pod), Options(uid=uid_of(pod)))
    cluster.event(owner, "SuccessfulDelete", f"Deleted pod: {name_of(pod)}", component)


def pods_of(cluster: Cluster, owner: Obj) -> list[Obj]:
    """The pods that the owner controls; orphans that its selector fits are adopted first."""
    uid = uid_of(owner)
    mine = [pod for pod in cluster.pods.of_owner(uid) if (controller_of(pod) or {}).get("uid") == uid]
    selector = owner["spec"].get("selector")
    if not is_deleting(owner):
        mine += [
            _adopt(cluster, POD, pod, owner)
            for pod in cluster.pods.orphans(namespace_of(owner))
            if not is_deleting(pod) and matches(selector, labels_of(pod))
        ]
    return mine


def _adopt(cluster: Cluster, kind: Kind, obj: Obj, owner: Obj) -> Obj:
    def change(new: Obj) -> None:
        new["metadata"].setdefault("ownerReferences", []).append(owner_reference(owner))

    entry = cluster.registry.modify(kind, namespace_of(obj), name_of(obj), change, Options())
    return entry.obj if entry else obj


def active(pods: Iterable[Obj]) -> list[Obj]:
    """Pods that count: neither finished nor going."""
    return [pod for pod in pods if not is_deleting(pod) and pod["status"].get("phase") not in FINISHED]


def is_ready(pod: Obj) -> bool:
    """True if the pod's Ready condition is True."""
    return (condition(pod, "Ready") or {}).get("status") == "True"


def first_to_go(pods: list[Obj]) -> list[Obj]:
    """Pods in the order in which they are deleted when there are too many: those not yet placed, not running, not
    ready, and the youngest first."""

    def rank(pod: Obj) -> tuple[bool, bool, bool, int]:
        return (
            bool(pod["spec"].get("nodeName")),
            pod["status"].get("phase") == "Running",
            is_ready(pod),
            -int(pod["metadata"]["resourceVersion"]),
        )

    return sorted(pods, key=rank)


def set_condition(obj: Obj, kind: str, value: str, reason: str, message: str, now: str) -> None:
    """Write a condition into status.conditions; the transition time changes only with the value."""
    rows = obj.setdefault("status", {}).setdefault("conditions", [])
    for row in rows:
        if row["type"] != kind:
            continue
        if (row["status"], row.get("reason"), row.get("message")) == (value, reason, message):
            return
        if row["status"] != value:
            row["lastTransitionTime"] = now
        row["lastUpdateTime"] = now
        row.update(status=value, reason=reason, message=message)
        return
    rows.append(
        {
            "type": kind,
            "status": value,
            "lastUpdateTime": now,
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }
    )


def drop_condition(obj: Obj, kind: str) -> None:
    """Take a condition away."""
    status = obj.get("status", {})
    rows = [row for row in status.get("conditions") or [] if row["type"] != kind]
    if rows:
        status["conditions"] = rows
    else:
        status.pop("conditions", None)
