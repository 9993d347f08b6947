"""Deployments: a ReplicaSet per template, rolled over within maxSurge and maxUnavailable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from simulator.controllers.base import Controller, Key
from simulator.controllers.workloads import drop_condition, set_condition
from simulator.kinds import DEPLOYMENT, REPLICA_SET, Obj
from simulator.objects import (
    clone,
    condition,
    controller_of,
    is_deleting,
    letters_from,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
    unix,
)
from simulator.options import Options
from simulator.store import Change

COMPONENT = "deployment-controller"
REVISION = "deployment.kubernetes.io/revision"
HASH = "pod-template-hash"


def template_hash(template: Obj) -> str:
    """Ten letters that follow from a pod template."""
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()
    return letters_from(int(digest[:16], 16))


def budget(value: int | str, replicas: int, *, up: bool) -> int:
    """maxSurge or maxUnavailable as a number: a percentage is rounded up or down."""
    if isinstance(value, int):
        return value
    if not str(value).endswith("%"):
        return int(value)
    share = replicas * int(str(value)[:-1])
    return -(-share // 100) if up else share // 100


def limits_of(deployment: Obj) -> tuple[int, int]:
    """(surge, unavailable) of the deployment; both 0 would stand still, so then one may be unavailable."""
    spec = deployment["spec"]
    if spec["strategy"]["type"] == "Recreate":
        return 0, spec["replicas"]
    rolling = spec["strategy"].get("rollingUpdate") or {}
    surge = budget(rolling.get("maxSurge", "25%"), spec["replicas"], up=True)
    unavailable = budget(rolling.get("maxUnavailable", "25%"), spec["replicas"], up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, spec["replicas"])


class Deployments(Controller):
    """Acts on ReplicaSets only; these make the pods."""

    name = "deployments"

    def interest(self, change: Change) -> Iterable[Key]:
        obj = change.new.obj
        if change.kind == DEPLOYMENT:
            yield namespace_of(obj), name_of(obj)
        elif change.kind == REPLICA_SET:
            owner = controller_of(obj)
            if owner and owner["kind"] == "Deployment":
                yield namespace_of(obj), owner["name"]

    def start(self) -> Iterable[Key]:
        return [(namespace_of(d), name_of(d)) for d in self.store.objects(DEPLOYMENT)]

    def reconcile(self, key: Key) -> float | None:
        deployment = self.registry.find(DEPLOYMENT, *key)
        if deployment is None:
            return None
        sets = self.cluster.sets.of_owner(uid_of(deployment))
        if is_deleting(deployment):
            return self._report(deployment, sets, None, "")
        wanted = template_hash(deployment["spec"]["template"])
        new = next((rs for rs in sets if rs["metadata"]["labels"].get(HASH) == wanted), None)
        done = ""
        if not deployment["spec"].get("paused"):
            if new is None:
                if deployment["spec"]["strategy"]["type"] == "Recreate" and self._old_running(sets):
                    self._scale_all(deployment, sets, 0)
                    return self._report(deployment, self.cluster.sets.of_owner(uid_of(deployment)), None, "")
                new = self._create(deployment, wanted, sets)
                done = f'Created new replica set "{name_of(new)}"'
                sets = self.cluster.sets.of_owner(uid_of(deployment))
            self._mark_revision(deployment, new, sets)
            self._roll(deployment, name_of(new))
            self._clean_up(deployment, wanted)
        sets = self.cluster.sets.of_owner(uid_of(deployment))
        current = next((rs for rs in sets if new is not None and name_of(rs) == name_of(new)), None)
        latest = self.registry.find(DEPLOYMENT, *key)
        return self._report(latest, sets, current, done) if latest else None

    def _old_running(self, sets: list[Obj]) -> bool:
        return any(rs["spec"]["replicas"] or rs["status"].get("replicas") for rs in sets) or any(
            rs["status"].get("terminatingReplicas") for rs in sets
        )

    def _create(self, deployment: Obj, wanted: str, sets: list[Obj]) -> Obj:
        template = clone(deployment["spec"]["template"])
        template["metadata"].setdefault("labels", {})[HASH] = wanted
        selector = clone(deployment["spec"]["selector"])
        selector.setdefault("matchLabels", {})[HASH] = wanted
        surge, _ = limits_of(deployment)
        running = sum(rs["spec"]["replicas"] for rs in sets)
        room = max(deployment["spec"]["replicas"] + surge - running, 0)
        body: Obj = {
            "metadata": {
                "name": f"{name_of(deployment)}-{wanted}",
                "labels": dict(template["metadata"]["labels"]),
                "annotations": {
                    REVISION: str(self._highest(sets) + 1),
                    "deployment.kubernetes.io/desired-replicas": str(deployment["spec"]["replicas"]),
                    "deployment.kubernetes.io/max-replicas": str(deployment["spec"]["replicas"] + surge),
                },
                "ownerReferences": [owner_reference(deployment)],
            },
            "spec": {
                "replicas": min(deployment["spec"]["replicas"], room),
                "selector": selector,
                "template": template,
            },
        }
        made = self.registry.create(REPLICA_SET, namespace_of(deployment), body, self.options())
        self._told(deployment, f"up replica set {name_of(made.obj)}", 0, made.obj["spec"]["replicas"])
        return made.obj

    def _told(self, deployment: Obj, what: str, before: int, after: int) -> None:
        if before != after:
            text = f"Scaled {what} from {before} to {after}"
            self.cluster.event(deployment, "ScalingReplicaSet", text, COMPONENT)

    def _highest(self, sets: list[Obj]) -> int:
        return max((int(rs["metadata"].get("annotations", {}).get(REVISION, 0)) for rs in sets), default=0)

    def _mark_revision(self, deployment: Obj, new: Obj, sets: list[Obj]) -> None:
        """An old template that comes back gets the highest revision; the deployment shows it."""
        others = self._highest([rs for rs in sets if name_of(rs) != name_of(new)])
        revision = int(new["metadata"].get("annotations", {}).get(REVISION, 0))
        if revision <= others:
            revision = others + 1

        def mark(obj: Obj) -> None:
            obj["metadata"].setdefault("annotations", {})[REVISION] = str(revision)

        self.registry.modify(REPLICA_SET, namespace_of(new), name_of(new), mark, self.options())
        self.registry.modify(DEPLOYMENT, namespace_of(deployment), name_of(deployment), mark, self.options())

    def _scale_all(self, deployment: Obj, sets: list[Obj], replicas: int) -> None:
        for rs in sets:
            self._scale(deployment, rs, replicas)

    def _scale(self, deployment: Obj, rs: Obj, replicas: int) -> None:
        before = rs["spec"]["replicas"]
        if before == replicas:
            return

        def change(obj: Obj) -> None:
            obj["spec"]["replicas"] = replicas

        self.registry.modify(REPLICA_SET, namespace_of(rs), name_of(rs), change, self.options())
        self._told(deployment, f"{'up' if replicas > before else 'down'} replica set {name_of(rs)}", before, replicas)

    def _roll(self, deployment: Obj, new_name: str) -> None:
        """One step of the rolling update (after k8s.io/kubernetes pkg/controller/deployment/rolling.go)."""
        sets = self.cluster.sets.of_owner(uid_of(deployment))
        new = next(rs for rs in sets if name_of(rs) == new_name)
        old = [rs for rs in sets if name_of(rs) != new_name]
        wanted = deployment["spec"]["replicas"]
        surge, unavailable = limits_of(deployment)
        if deployment["spec"]["strategy"]["type"] == "Recreate":
            if any(rs["spec"]["replicas"] for rs in old):
                self._scale_all(deployment, old, 0)
            elif not self._old_running(old):
                self._scale(deployment, new, wanted)
            return
        total = sum(rs["spec"]["replicas"] for rs in sets)
        if new["spec"]["replicas"] > wanted:
            self._scale(deployment, new, wanted)
        elif new["spec"]["replicas"] < wanted:
            room = max(wanted + surge - total, 0)
            self._scale(deployment, new, min(new["spec"]["replicas"] + room, wanted))
        if not any(rs["spec"]["replicas"] for rs in old):
            return
        sets = self.cluster.sets.of_owner(uid_of(deployment))
        new = next(rs for rs in sets if name_of(rs) == new_name)
        old = [rs for rs in sets if name_of(rs) != new_name]
        least = wanted - unavailable
        missing = new["spec"]["replicas"] - new["status"].get("availableReplicas", 0)
        spare = sum(rs["spec"]["replicas"] for rs in sets) - least - missing
        for rs in sorted(old, key=lambda rs: rs["metadata"]["creationTimestamp"]):
            sick = rs["spec"]["replicas"] - rs["status"].get("availableReplicas", 0)
            take = min(sick, max(spare, 0), rs["spec"]["replicas"])
            if take > 0:
                self._scale(deployment, rs, rs["spec"]["replicas"] - take)
                spare -= take
        sets = self.cluster.sets.of_owner(uid_of(deployment))
        old = [rs for rs in sets if name_of(rs) != new_name]
        spare = sum(min(rs["status"].get("availableReplicas", 0), rs["spec"]["replicas"]) for rs in sets) - least
        for rs in sorted(old, key=lambda rs: rs["metadata"]["creationTimestamp"]):
            take = min(rs["spec"]["replicas"], max(spare, 0))
            if take > 0:
                self._scale(deployment, rs, rs["spec"]["replicas"] - take)
                spare -= take

    def _clean_up(self, deployment: Obj, wanted: str) -> None:
        """Delete the oldest empty ReplicaSets beyond revisionHistoryLimit."""
        empty = [
            rs
            for rs in self.cluster.sets.of_owner(uid_of(deployment))
            if rs["metadata"]["labels"].get(HASH) != wanted
            and not rs["spec"]["replicas"]
            and not rs["status"].get("replicas")
        ]
        empty.sort(key=lambda rs: int(rs["metadata"].get("annotations", {}).get(REVISION, 0)))
        for rs in empty[: max(len(empty) - deployment["spec"]["revisionHistoryLimit"], 0)]:
            self.registry.delete(REPLICA_SET, namespace_of(rs), name_of(rs), Options())

    def _report(self, deployment: Obj, sets: list[Obj], new: Obj | None, done: str) -> float | None:
        wanted = deployment["spec"]["replicas"]
        counts = {
            "replicas": sum(rs["status"].get("replicas", 0) for rs in sets),
            "updatedReplicas": new["status"].get("replicas", 0) if new else 0,
            "readyReplicas": sum(rs["status"].get("readyReplicas", 0) for rs in sets),
            "availableReplicas": sum(rs["status"].get("availableReplicas", 0) for rs in sets),
        }
        counts["unavailableReplicas"] = max(sum(rs["spec"]["replicas"] for rs in sets) - counts["availableReplicas"], 0)
        _, unavailable = limits_of(deployment)
        failure = next((c for rs in sets if (c := condition(rs, "ReplicaFailure"))), None)
        complete = (
            new is not None and counts["updatedReplicas"] == counts["replicas"] == counts["availableReplicas"] == wanted
        )
        late: list[float] = []

        def change(obj: Obj) -> None:
            status, now = obj["status"], self.registry.now()
            moved = any(status.get(name, 0) != value for name, value in counts.items())
            for name, value in counts.items():
                status[name] = value
                if not value:
                    del status[name]
            status["terminatingReplicas"] = sum(rs["status"].get("terminatingReplicas", 0) for rs in sets)
            status["observedGeneration"] = obj["metadata"]["generation"]
            if counts["availableReplicas"] >= wanted - unavailable:
                text = "Deployment has minimum availability."
                set_condition(obj, "Available", "True", "MinimumReplicasAvailable", text, now)
            else:
                text = "Deployment does not have minimum availability."
                set_condition(obj, "Available", "False", "MinimumReplicasUnavailable", text, now)
            if failure:
                set_condition(obj, "ReplicaFailure", "True", failure["reason"], failure["message"], now)
            else:
                drop_condition(obj, "ReplicaFailure")
            late.append(self._progress(obj, new, done, complete, moved))

        name = name_of(deployment)
        self.registry.modify(DEPLOYMENT, namespace_of(deployment), name, change, self.options("status"))
        return late[0] if late and late[0] > 0 else None

    def _progress(self, obj: Obj, new: Obj | None, done: str, complete: bool, moved: bool) -> float:
        """The condition Progressing; returns the seconds until it has to be looked at again, or 0."""
        now, set_name = self.registry.now(), name_of(new) if new else ""
        if complete:
            text = f'ReplicaSet "{set_name}" has successfully progressed.'
            set_condition(obj, "Progressing", "True", "NewReplicaSetAvailable", text, now)
            return 0.0
        row = condition(obj, "Progressing")
        if done:
            set_condition(obj, "Progressing", "True", "NewReplicaSetCreated", done, now)
        elif new is not None and (moved or row is None or row["reason"] == "NewReplicaSetAvailable"):
            text = f'ReplicaSet "{set_name}" is progressing.'
            set_condition(obj, "Progressing", "True", "ReplicaSetUpdated", text, now)
            for item in obj["status"]["conditions"]:
                if item["type"] == "Progressing" and moved:
                    item["lastUpdateTime"] = now
        row = condition(obj, "Progressing")
        if row is None or row["reason"] == "ProgressDeadlineExceeded":
            return 0.0
        left = unix(row["lastUpdateTime"]) + float(obj["spec"]["progressDeadlineSeconds"]) - self.now
        if left > 0:
            return left + 0.5
        text = f'ReplicaSet "{set_name}" has timed out progressing.'
        set_condition(obj, "Progressing", "False", "ProgressDeadlineExceeded", text, now)
        return 0.0
