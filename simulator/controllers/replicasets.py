"""ReplicaSets: as many pods as asked for."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.controllers.base import Controller, Key
from simulator.controllers.workloads import (
    active,
    create_pod,
    delete_pod,
    drop_condition,
    first_to_go,
    is_ready,
    pod_from,
    pods_of,
    set_condition,
)
from simulator.errors import ApiError
from simulator.kinds import POD, REPLICA_SET, Obj
from simulator.objects import controller_of, is_deleting, name_of, namespace_of
from simulator.store import Change

COMPONENT = "replicaset-controller"


class ReplicaSets(Controller):
    """One pod more or less at a time is enough: each change brings the next look."""

    name = "replicasets"

    def interest(self, change: Change) -> Iterable[Key]:
        obj = change.new.obj
        if change.kind == REPLICA_SET:
            yield namespace_of(obj), name_of(obj)
        elif change.kind == POD:
            owner = controller_of(obj)
            if owner and owner["kind"] == "ReplicaSet":
                yield namespace_of(obj), owner["name"]

    def start(self) -> Iterable[Key]:
        return [(namespace_of(rs), name_of(rs)) for rs in self.store.objects(REPLICA_SET)]

    def reconcile(self, key: Key) -> float | None:
        namespace, name = key
        rs = self.registry.find(REPLICA_SET, namespace, name)
        if rs is None:
            return None
        refusal: ApiError | None = None
        pods = pods_of(self.cluster, rs)
        if not is_deleting(rs):
            refusal = self._scale(rs, active(pods))
            pods = pods_of(self.cluster, rs)
        self._report(rs, pods, refusal)
        return 1.0 if refusal else None

    def _scale(self, rs: Obj, pods: list[Obj]) -> ApiError | None:
        missing = rs["spec"]["replicas"] - len(pods)
        for _ in range(missing):
            pod = pod_from(rs, rs["spec"]["template"])
            pod["metadata"]["generateName"] = f"{name_of(rs)}-"
            refusal = create_pod(self.cluster, rs, pod, COMPONENT)
            if refusal:
                return refusal
        for pod in first_to_go(pods)[: max(-missing, 0)]:
            delete_pod(self.cluster, rs, pod, COMPONENT)
        return None

    def _report(self, rs: Obj, pods: list[Obj], refusal: ApiError | None) -> None:
        counted = active(pods)
        ready = [pod for pod in counted if is_ready(pod)]
        gone = [pod for pod in pods if is_deleting(pod)]

        def change(obj: Obj) -> None:
            status = obj["status"]
            status["replicas"] = len(counted)
            status["fullyLabeledReplicas"] = len(counted)
            status["readyReplicas"] = status["availableReplicas"] = len(ready)
            status["terminatingReplicas"] = len(gone)
            status["observedGeneration"] = obj["metadata"]["generation"]
            for name in ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"):
                if not status[name]:
                    del status[name]
            if refusal:
                now = self.registry.now()
                set_condition(obj, "ReplicaFailure", "True", "FailedCreate", str(refusal), now)
                for row in status["conditions"]:
                    row.pop("lastUpdateTime", None)
            else:
                drop_condition(obj, "ReplicaFailure")

        self.registry.modify(REPLICA_SET, namespace_of(rs), name_of(rs), change, self.options("status"))
