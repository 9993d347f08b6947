"""Does a pod fit on a node: the scheduler's filters and their reasons, and a score. No state."""

from __future__ import annotations

from fractions import Fraction

from simulator import quantity
from simulator.kinds import Obj
from simulator.objects import labels_of, name_of
from simulator.resources import Vector
from simulator.selectors import matches_expression

NOT_MATCHED = "node(s) didn't match Pod's node affinity/selector"
UNSCHEDULABLE = "node(s) were unschedulable"
TOO_MANY_PODS = "Too many pods"


def refusals(pod: Obj, node: Obj, asked: Vector, used: Vector, pods: int, ignore: frozenset[str]) -> list[str]:
    """Why the pod can't go on the node; empty if it can. Resources in `ignore` are not looked at."""
    if node["spec"].get("unschedulable") and not _tolerates(pod, _CORDON):
        return [UNSCHEDULABLE]
    for taint in node["spec"].get("taints") or []:
        if taint["effect"] in ("NoSchedule", "NoExecute") and not _tolerates(pod, taint):
            return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
    if not matches_node(pod, node):
        return [NOT_MATCHED]
    allocatable = node["status"].get("allocatable") or {}
    out = []
    if pods + 1 > quantity.parse(allocatable.get("pods", "0")):
        out.append(TOO_MANY_PODS)
    for name, value in sorted(asked.items()):
        if value and name not in ignore:
            free = quantity.parse(allocatable.get(name, "0")) - used.get(name, Fraction(0))
            if value > free:
                out.append(f"Insufficient {name}")
    return out


def beyond(node: Obj, asked: Vector, ignore: frozenset[str]) -> bool:
    """True if the node could not hold the pod even when empty, so that no preemption helps."""
    allocatable = node["status"].get("allocatable") or {}
    return any(
        value > quantity.parse(allocatable.get(name, "0")) for name, value in asked.items() if name not in ignore
    )


_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def _tolerates(pod: Obj, taint: Obj) -> bool:
    for row in pod["spec"].get("tolerations") or []:
        if row.get("effect") not in (None, "", taint["effect"]):
            continue
        if row.get("operator", "Equal") == "Exists":
            if row.get("key") in (None, "", taint["key"]):
                return True
        elif row.get("key") == taint["key"] and row.get("value", "") == taint.get("value", ""):
            return True
    return False


def matches_node(pod: Obj, node: Obj) -> bool:
    """nodeSelector and required node affinity."""
    labels = labels_of(node)
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_term(term, node) for term in required.get("nodeSelectorTerms") or [])


def _term(term: Obj, node: Obj) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    labels, names = labels_of(node), {"metadata.name": name_of(node)}
    return all(matches_expression(row, labels) for row in expressions) and all(
        matches_expression(row, names) for row in fields
    )


def score(pod: Obj, node: Obj, asked: Vector, used: Vector) -> tuple[int, Fraction]:
    """Higher is better: the weights of preferred terms, then the emptiest node in what the pod asks for."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    weight = sum(
        row.get("weight", 1)
        for row in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []
        if _term(row.get("preference") or {}, node)
    )
    if "hami.io/node-nvidia-register" in (node["metadata"].get("annotations") or {}):
        weight -= 1  # a pod without a share goes to a node that is not shared, if it has the choice
    allocatable = node["status"].get("allocatable") or {}
    free = Fraction(0)
    for name in asked:
        whole = quantity.parse(allocatable.get(name, "0"))
        if whole:
            free += (whole - used.get(name, Fraction(0))) / whole
    return weight, free


def message(nodes: int, reasons: dict[str, int], helpless: int) -> str:
    """The sentence of FailedScheduling, worded as kube-scheduler 1.35 does."""
    if not nodes:
        return "no nodes available to schedule pods"
    listed = ", ".join(sorted(f"{number} {reason}" for reason, number in reasons.items()))
    parts = []
    if helpless:
        parts.append(f"{helpless} Preemption is not helpful for scheduling")
    if nodes - helpless:
        parts.append(f"{nodes - helpless} No preemption victims found for incoming pod")
    head = f"0/{nodes} nodes are available: {listed}. no new claims to deallocate"
    return f"{head}, preemption: 0/{nodes} nodes are available: {', '.join(sorted(parts))}."
