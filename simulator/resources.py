"""What a pod asks for: the vector of requests and limits that scheduler, quota and kubelet count with."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from simulator import quantity
from simulator.kinds import Obj

Vector = dict[str, Fraction]

FINISHED = ("Succeeded", "Failed")


def of_container(container: Obj, which: str) -> Vector:
    """The `requests` or `limits` of a container."""
    given = (container.get("resources") or {}).get(which) or {}
    return {name: quantity.parse(text) for name, text in given.items()}


def of_pod(spec: Obj, which: str = "requests") -> Vector:
    """What Kubernetes reserves for the pod: the larger of (containers + sidecars) and (each ordinary init container
    + the sidecars started before it), per resource."""
    sidecars: Vector = {}
    peak: Vector = {}
    for container in spec.get("initContainers") or []:
        asked = of_container(container, which)
        if container.get("restartPolicy") == "Always":
            add(sidecars, asked)
        else:
            step = dict(sidecars)
            add(step, asked)
            peak = largest(peak, step)
    total = dict(sidecars)
    for container in spec.get("containers") or []:
        add(total, of_container(container, which))
    return largest(total, peak)


def add(total: Vector, more: Vector, sign: int = 1) -> None:
    """Add (or with sign -1 take away) in place."""
    for name, value in more.items():
        total[name] = total.get(name, Fraction(0)) + sign * value


def largest(left: Vector, right: Vector) -> Vector:
    """The larger value for each resource."""
    return {name: max(left.get(name, Fraction(0)), right.get(name, Fraction(0))) for name in {**left, **right}}


def holds(pod: Obj) -> bool:
    """True while the pod holds what it asked for on its node."""
    return bool(pod["spec"].get("nodeName")) and pod.get("status", {}).get("phase") not in FINISHED


def whole(vector: Vector, name: str) -> int:
    """A resource as an integer (0 if it is not asked for)."""
    return int(vector.get(name, Fraction(0)))


def qos_class(spec: Obj) -> str:
    """Guaranteed, Burstable or BestEffort, from cpu and memory."""
    any_set, all_equal = False, True
    containers: Iterable[Obj] = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    for container in containers:
        limits, requests = of_container(container, "limits"), of_container(container, "requests")
        for name in ("cpu", "memory"):
            if requests.get(name) or limits.get(name):
                any_set = True
            if not limits.get(name) or requests.get(name, limits[name]) != limits[name]:
                all_equal = False
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if all_equal else "Burstable"
