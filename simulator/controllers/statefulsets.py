"""StatefulSets: numbered pods, one after the other; an update replaces them from the highest number down."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.controllers.base import Controller, Key
from simulator.controllers.deployments import template_hash
from simulator.controllers.workloads import create_pod, delete_pod, is_ready, pod_from, pods_of
from simulator.errors import ApiError
from simulator.kinds import CLAIM, POD, STATEFUL_SET, Obj
from simulator.objects import clone, controller_of, is_deleting, name_of, namespace_of
from simulator.options import Options
from simulator.resources import FINISHED
from simulator.store import Change

COMPONENT = "statefulset-controller"
HASH, NUMBER = "controller-revision-hash", "apps.kubernetes.io/pod-index"


class StatefulSets(Controller):
    """OrderedReady and Parallel; claims are made and named in the pods, whoever binds them."""

    name = "statefulsets"

    def interest(self, change: Change) -> Iterable[Key]:
        obj = change.new.obj
        if change.kind == STATEFUL_SET:
            yield namespace_of(obj), name_of(obj)
        elif change.kind == POD:
            owner = controller_of(obj)
            if owner and owner["kind"] == "StatefulSet":
                yield namespace_of(obj), owner["name"]

    def start(self) -> Iterable[Key]:
        return [(namespace_of(s), name_of(s)) for s in self.store.objects(STATEFUL_SET)]

    def reconcile(self, key: Key) -> float | None:
        found = self.registry.find(STATEFUL_SET, *key)
        if found is None:
            return None
        revision = f"{name_of(found)}-{template_hash(found['spec']['template'])}"
        refusal = None if is_deleting(found) else self._step(found, revision)
        self._report(found, revision)
        return 1.0 if refusal else None

    def _pods(self, of: Obj) -> dict[int, Obj]:
        out = {}
        for pod in pods_of(self.cluster, of):
            tail = name_of(pod).rsplit("-", 1)[-1]
            if tail.isdigit():
                out[int(tail)] = pod
        return out

    def _step(self, of: Obj, revision: str) -> ApiError | None:
        """The next thing to do, and nothing after it unless the pods are managed in parallel."""
        pods, wanted = self._pods(of), of["spec"]["replicas"]
        parallel = of["spec"]["podManagementPolicy"] == "Parallel"
        ended = [pod for pod in pods.values() if pod["status"].get("phase") in FINISHED and not is_deleting(pod)]
        if ended:
            delete_pod(self.cluster, of, ended[0], COMPONENT)
            return None
        for number in range(wanted):
            if number not in pods:
                refusal = self._create(of, number, revision)
                if refusal or not parallel:
                    return refusal
            elif not parallel and not _settled(pods[number]):
                return None
        for number in sorted((n for n in pods if n >= wanted), reverse=True):
            if not is_deleting(pods[number]):
                delete_pod(self.cluster, of, pods[number], COMPONENT)
            if not parallel:
                return None
        self._replace(of, revision, {number: pod for number, pod in pods.items() if number < wanted})
        return None

    def _replace(self, of: Obj, revision: str, pods: dict[int, Obj]) -> None:
        """Delete the highest pod of an older template, once all above it are ready."""
        strategy = of["spec"]["updateStrategy"]
        if strategy["type"] != "RollingUpdate":
            return
        partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
        for number in sorted((n for n in pods if n >= partition), reverse=True):
            pod = pods[number]
            if pod["metadata"]["labels"].get(HASH) != revision and not is_deleting(pod):
                delete_pod(self.cluster, of, pod, COMPONENT)
                return
            if not _settled(pod):
                return

    def _create(self, of: Obj, number: int, revision: str) -> ApiError | None:
        name = f"{name_of(of)}-{number}"
        labels = {HASH: revision, NUMBER: str(number), "statefulset.kubernetes.io/pod-name": name}
        pod = pod_from(of, of["spec"]["template"], labels)
        pod["metadata"]["name"] = name
        pod["spec"]["hostname"] = name
        if of["spec"].get("serviceName"):
            pod["spec"]["subdomain"] = of["spec"]["serviceName"]
        for template in of["spec"].get("volumeClaimTemplates") or []:
            claim = f"{template['metadata']['name']}-{name}"
            volume = {"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim}}
            pod["spec"]["volumes"] = [*(pod["spec"].get("volumes") or []), volume]
            if not self.store.get(CLAIM, namespace_of(of), claim):
                try:
                    self.registry.create(CLAIM, namespace_of(of), _claim(of, template, claim), self.options())
                except ApiError as error:
                    return error
        return create_pod(self.cluster, of, pod, COMPONENT)

    def _report(self, of: Obj, revision: str) -> None:
        pods = [pod for pod in self._pods(of).values() if not is_deleting(pod)]
        ready = sum(1 for pod in pods if is_ready(pod))
        updated = sum(1 for pod in pods if pod["metadata"]["labels"].get(HASH) == revision)
        done = updated == len(pods) == of["spec"]["replicas"] == ready

        def change(obj: Obj) -> None:
            status = obj["status"]
            status |= {
                "observedGeneration": obj["metadata"]["generation"],
                "replicas": len(pods),
                "readyReplicas": ready,
                "availableReplicas": ready,
                "currentReplicas": len(pods) - updated if not done else updated,
                "updatedReplicas": updated,
                "updateRevision": revision,
                "collisionCount": 0,
            }
            if done or "currentRevision" not in status:
                status["currentRevision"] = revision

        self.registry.modify(STATEFUL_SET, namespace_of(of), name_of(of), change, Options(subresource="status"))


def _claim(of: Obj, template: Obj, name: str) -> Obj:
    """A claim from its template. It goes with the set where the retention policy says so; else it stays."""
    metadata: Obj = {"name": name, "labels": dict((of["spec"].get("selector") or {}).get("matchLabels") or {})}
    if (of["spec"].get("persistentVolumeClaimRetentionPolicy") or {}).get("whenDeleted") == "Delete":
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name_of(of), "uid": of["metadata"]["uid"]}
        ]
    return {"metadata": metadata, "spec": clone(template["spec"])}


def _settled(pod: Obj) -> bool:
    return is_ready(pod) and not is_deleting(pod)
