"""Kueue's objects (``kueue.x-k8s.io``, v1beta1 and v1beta2): built, and read. Pure, no Django.

Shapes after Kueue v0.19's CRDs (``ResourceFlavor``, ``Cohort``, ``ClusterQueue``, ``LocalQueue``, ``Workload``); what
differs between the two versions of them that we write is the name of a ClusterQueue's cohort.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

GROUP = "kueue.x-k8s.io"
VERSIONS = (f"{GROUP}/v1beta2", f"{GROUP}/v1beta1")
"""Those that are spoken, the preferred first."""
LABEL_QUEUE = f"{GROUP}/queue-name"

Manifest = dict[str, Any]
Object = Mapping[str, Any]

NO_STOP, HOLD_AND_DRAIN = "None", "HoldAndDrain"

HINTS = {
    "Pending": "It waits in the queue for cards of the team's quota on this cluster, or for ones that others lend.",
    "WaitingForQuota": "Cards of the queue's quota are in use; it is admitted when some come free.",
    "ExceedsMaxQuota": "It asks for more than the queue may ever hold: ask for less, or for another quota.",
    "NoMatchingFlavor": "No kind of card of the queue fits the pod's node selector or tolerations.",
    "Inadmissible": "The queue can't take it: it may be stopped, or not exist.",
    "Misconfigured": "The queue's objects don't fit each other; the platform's page about Kueue says more.",
    "TopologyPlacementFailed": "There are enough cards, but not close enough to each other.",
    "ClusterQueueStopped": "The queue was stopped by a platform-admin.",
    "Preempted": "Kueue took it back for another workload.",
    "PodsReadyTimeout": "Its pods were not ready in the time that Kueue gives them.",
}
"""What a reason of a Workload's condition means here. Shown beside Kueue's own words, never in their place."""


@dataclass(frozen=True)
class Flavor:
    """A kind of card as Kueue sees it: the nodes that have it, and what their pods must tolerate."""

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """Of one resource of a flavor: ``nominal`` is the queue's own, ``borrowing`` what it may take of others' at most
    (None: not said). Whole numbers, or quantities as texts."""

    nominal: int | str
    borrowing: int | None = None


Groups = Sequence[tuple[Sequence[str], Mapping[str, Mapping[str, Figure]]]]
"""For each group the resources it covers, and flavor → resource → figure; every flavor covers all of them."""


def resource_flavor(api: str, flavor: Flavor) -> Manifest:
    """A ResourceFlavor. Pods with cards tolerate the device's taint by themselves."""
    spec: Manifest = {"nodeLabels": dict(flavor.node_labels)} if flavor.node_labels else {}
    return {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": flavor.name}, "spec": spec}


def cohort(api: str, name: str, *, parent: str = "", groups: Groups = ()) -> Manifest:
    """A Cohort: what its ClusterQueues lend each other, and cards of nobody that any of them may borrow."""
    spec: Manifest = {}
    if parent:
        spec["parentName"] = parent
    if groups:
        spec["resourceGroups"] = _groups(groups)
    return {"apiVersion": api, "kind": "Cohort", "metadata": {"name": name}, "spec": spec}


def cluster_queue(
    api: str, name: str, *, cohort: str, namespaces: Sequence[str], groups: Groups, stop: str = NO_STOP
) -> Manifest:
    """A ClusterQueue for these namespaces. Nothing that was admitted is taken back for another queue's sake."""
    return {
        "apiVersion": api,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            ("cohort" if api.endswith("/v1beta1") else "cohortName"): cohort,
            "queueingStrategy": "BestEffortFIFO",
            "namespaceSelector": {
                "matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "In", "values": sorted(namespaces)}
                ]
            },
            "preemption": {"reclaimWithinCohort": "Never", "withinClusterQueue": "Never"},
            "stopPolicy": stop,
            "resourceGroups": _groups(groups),
        },
    }


def local_queue(api: str, name: str, namespace: str, *, queue: str) -> Manifest:
    """A LocalQueue: the door of a namespace to its ClusterQueue."""
    return {
        "apiVersion": api,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": queue},
    }


def _groups(groups: Groups) -> list[Manifest]:
    return [
        {
            "coveredResources": list(covered),
            "flavors": [
                {"name": name, "resources": [_resource(each, figures[each]) for each in covered]}
                for name, figures in flavors.items()
            ],
        }
        for covered, flavors in groups
    ]


def _resource(name: str, figure: Figure) -> Manifest:
    out: Manifest = {"name": name, "nominalQuota": str(figure.nominal)}
    if figure.borrowing is not None:
        out["borrowingLimit"] = str(figure.borrowing)
    return out


@dataclass(frozen=True)
class QueueState:
    """What a ClusterQueue says of itself. ``active`` None: its controller has said nothing yet."""

    active: bool | None
    reason: str
    message: str
    pending: int
    admitted: int

    @property
    def empty(self) -> bool:
        """Nothing that was admitted runs any more."""
        return self.admitted == 0


def read_queue(live: Object) -> QueueState:
    """From a ClusterQueue as the API server answers it."""
    status = live.get("status") or {}
    active = next((one for one in status.get("conditions") or [] if one.get("type") == "Active"), None)
    held = max(int(status.get(name) or 0) for name in ("admittedWorkloads", "reservingWorkloads"))
    if active is None:
        return QueueState(None, "", "", int(status.get("pendingWorkloads") or 0), held)
    return QueueState(
        active.get("status") == "True",
        str(active.get("reason") or ""),
        str(active.get("message") or ""),
        int(status.get("pendingWorkloads") or 0),
        held,
    )


@dataclass(frozen=True)
class WorkloadState:
    """What Kueue says of one Workload. ``reason`` and ``message`` are its own words."""

    name: str
    pods: frozenset[str]
    admitted: bool
    condition: str = ""
    reason: str = ""
    message: str = ""

    @property
    def sentence(self) -> str:
        """Kueue's own words, and what they mean here."""
        said = f"Kueue has not admitted {self.name} yet"
        if self.reason:
            said += f" ({self.condition}: {self.reason})"
        said += f": {self.message}" if self.message else ""
        hint = HINTS.get(self.reason, "")
        return f"{said.rstrip('.')}. {hint}".strip()


def read_workload(live: Object) -> WorkloadState:
    """From a Workload as the API server answers it; ``pods`` are the UIDs of the pods that own it."""
    metadata = live.get("metadata") or {}
    owners = [one for one in metadata.get("ownerReferences") or [] if one.get("kind") == "Pod"]
    pods = frozenset(str(one.get("uid")) for one in owners)
    conditions = {one.get("type"): one for one in (live.get("status") or {}).get("conditions") or []}
    name = str(metadata.get("name") or "")

    def says(kind: str, status: str) -> bool:
        return kind in conditions and conditions[kind].get("status") == status

    if says("Admitted", "True") and not says("Evicted", "True"):
        return WorkloadState(name, pods, True)
    for kind, status in (("Evicted", "True"), ("QuotaReserved", "False"), ("Admitted", "False")):
        if says(kind, status):
            one = conditions[kind]
            return WorkloadState(name, pods, False, kind, str(one.get("reason") or ""), str(one.get("message") or ""))
    return WorkloadState(name, pods, False)
