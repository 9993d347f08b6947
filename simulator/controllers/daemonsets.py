"""DaemonSets: one pod on each node that fits, replaced when the template changes."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.controllers import fit
from simulator.controllers.base import Controller, Key
from simulator.controllers.deployments import template_hash
from simulator.controllers.workloads import create_pod, delete_pod, is_ready, pod_from, pods_of
from simulator.errors import ApiError
from simulator.kinds import DAEMON_SET, NODE, POD, Obj
from simulator.objects import controller_of, is_deleting, name_of, namespace_of
from simulator.options import Options
from simulator.resources import FINISHED
from simulator.store import Change

COMPONENT = "daemonset-controller"
HASH = "controller-revision-hash"


class DaemonSets(Controller):
    """The pod of a node carries a required affinity to it, as the real controller does."""

    name = "daemonsets"

    def interest(self, change: Change) -> Iterable[Key]:
        obj = change.new.obj
        if change.kind == DAEMON_SET:
            yield namespace_of(obj), name_of(obj)
        elif change.kind == NODE and change.type != "MODIFIED":
            yield from self.start()
        elif change.kind == POD:
            owner = controller_of(obj)
            if owner and owner["kind"] == "DaemonSet":
                yield namespace_of(obj), owner["name"]

    def start(self) -> Iterable[Key]:
        return [(namespace_of(d), name_of(d)) for d in self.store.objects(DAEMON_SET)]

    def reconcile(self, key: Key) -> float | None:
        found = self.registry.find(DAEMON_SET, *key)
        if found is None:
            return None
        revision = template_hash(found["spec"]["template"])
        wanted = self._nodes(found)
        refusal = None if is_deleting(found) else self._step(found, wanted, revision)
        self._report(found, wanted, revision)
        return 1.0 if refusal else None

    def _nodes(self, of: Obj) -> list[str]:
        pod = pod_from(of, of["spec"]["template"])
        return sorted(name_of(node) for node in self.store.objects(NODE) if fit.matches_node(pod, node))

    def _step(self, of: Obj, wanted: list[str], revision: str) -> ApiError | None:
        there: dict[str, Obj] = {}
        for pod in pods_of(self.cluster, of):
            node = pod["spec"].get("nodeName") or _pinned(pod)
            if is_deleting(pod):
                there.setdefault(node, pod)
            elif pod["status"].get("phase") in FINISHED or node not in wanted:
                delete_pod(self.cluster, of, pod, COMPONENT)
            else:
                there[node] = pod
        for node in wanted:
            if node not in there:
                refusal = self._create(of, node, revision)
                if refusal:
                    return refusal
        old = [p for p in there.values() if p["metadata"]["labels"].get(HASH) != revision and not is_deleting(p)]
        settled = all(is_ready(pod) and not is_deleting(pod) for pod in there.values()) and len(there) == len(wanted)
        if old and settled and of["spec"]["updateStrategy"]["type"] == "RollingUpdate":
            delete_pod(self.cluster, of, old[0], COMPONENT)
        return None

    def _create(self, of: Obj, node: str, revision: str) -> ApiError | None:
        pod = pod_from(of, of["spec"]["template"], {HASH: revision, "pod-template-generation": "1"})
        pod["metadata"]["generateName"] = f"{name_of(of)}-"
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})[
            "requiredDuringSchedulingIgnoredDuringExecution"
        ] = {"nodeSelectorTerms": [term]}
        tolerations = pod["spec"].setdefault("tolerations", [])
        for key in ("not-ready", "unreachable", "unschedulable"):
            effect = "NoSchedule" if key == "unschedulable" else "NoExecute"
            tolerations.append({"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect})
        return create_pod(self.cluster, of, pod, COMPONENT)

    def _report(self, of: Obj, wanted: list[str], revision: str) -> None:
        pods = [pod for pod in pods_of(self.cluster, of) if not is_deleting(pod)]
        ready = sum(1 for pod in pods if is_ready(pod))
        updated = sum(1 for pod in pods if pod["metadata"]["labels"].get(HASH) == revision)

        def change(obj: Obj) -> None:
            obj["status"] |= {
                "currentNumberScheduled": len(pods),
                "desiredNumberScheduled": len(wanted),
                "numberAvailable": ready,
                "numberMisscheduled": 0,
                "numberReady": ready,
                "observedGeneration": obj["metadata"]["generation"],
                "updatedNumberScheduled": updated,
            }

        self.registry.modify(DAEMON_SET, namespace_of(of), name_of(of), change, Options(subresource="status"))


def _pinned(pod: Obj) -> str:
    """The node that an unbound pod is meant for."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or []
    for term in terms:
        for row in term.get("matchFields") or []:
            return str(row["values"][0])
    return ""
