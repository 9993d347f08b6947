"""What the machinery looks up all the time: pods by node and by owner, and what is asked for on each node."""

from __future__ import annotations

from collections.abc import Callable

from simulator.kinds import POD, REPLICA_SET, Obj
from simulator.objects import controller_of, namespace_of, uid_of
from simulator.resources import Vector, add, holds, of_pod
from simulator.store import Change, Store


class PodIndex:
    """Kept up to date with every change of a pod."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.seen: dict[str, float] = {}
        self._by_node: dict[str, dict[str, Obj]] = {}
        self._by_owner: dict[str, dict[str, Obj]] = {}
        self._by_namespace: dict[str, dict[str, Obj]] = {}
        self._unbound: dict[str, Obj] = {}
        self._orphans: dict[str, dict[str, Obj]] = {}
        self._asked: dict[str, Vector] = {}
        store.listen(self._changed)

    def load(self, pods: list[Obj]) -> None:
        """Take in pods of a saved state."""
        for pod in pods:
            self._put(pod)

    def _changed(self, change: Change) -> None:
        if change.kind != POD:
            return
        if change.old is not None:
            self._drop(change.old.obj)
        else:
            self.seen[uid_of(change.new.obj)] = self._clock()
        if change.type == "DELETED":
            self.seen.pop(uid_of(change.new.obj), None)
        else:
            self._put(change.new.obj)

    def _put(self, pod: Obj) -> None:
        uid = uid_of(pod)
        self._by_namespace.setdefault(namespace_of(pod), {})[uid] = pod
        if controller_of(pod) is None:
            self._orphans.setdefault(namespace_of(pod), {})[uid] = pod
        for ref in pod["metadata"].get("ownerReferences") or []:
            self._by_owner.setdefault(ref["uid"], {})[uid] = pod
        node = pod["spec"].get("nodeName")
        if node:
            self._by_node.setdefault(node, {})[uid] = pod
            if holds(pod):
                add(self._asked.setdefault(node, {}), of_pod(pod["spec"]))
        else:
            self._unbound[uid] = pod

    def _drop(self, pod: Obj) -> None:
        uid = uid_of(pod)
        self._by_namespace.get(namespace_of(pod), {}).pop(uid, None)
        self._orphans.get(namespace_of(pod), {}).pop(uid, None)
        for ref in pod["metadata"].get("ownerReferences") or []:
            self._by_owner.get(ref["uid"], {}).pop(uid, None)
        self._unbound.pop(uid, None)
        node = pod["spec"].get("nodeName")
        if node:
            self._by_node.get(node, {}).pop(uid, None)
            if holds(pod):
                add(self._asked.setdefault(node, {}), of_pod(pod["spec"]), -1)

    def on_node(self, node: str) -> list[Obj]:
        """The pods bound to a node, finished ones too."""
        return list(self._by_node.get(node, {}).values())

    def of_owner(self, uid: str) -> list[Obj]:
        """The pods with an owner reference to the uid."""
        return list(self._by_owner.get(uid, {}).values())

    def in_namespace(self, namespace: str) -> list[Obj]:
        """The pods of a namespace."""
        return list(self._by_namespace.get(namespace, {}).values())

    def orphans(self, namespace: str) -> list[Obj]:
        """The pods of a namespace that no controller owns."""
        return list(self._orphans.get(namespace, {}).values())

    def unbound(self) -> list[Obj]:
        """The pods without a node, oldest first."""
        return sorted(self._unbound.values(), key=lambda pod: pod["metadata"]["creationTimestamp"])

    def holding(self, node: str) -> int:
        """How many pods hold something on the node."""
        return sum(1 for pod in self._by_node.get(node, {}).values() if holds(pod))

    def asked(self, node: str) -> Vector:
        """The sum of what the pods on the node asked for and still hold; not to be changed."""
        return self._asked.get(node, {})


class SetIndex:
    """ReplicaSets by the uid of the Deployment that controls them."""

    def __init__(self, store: Store) -> None:
        self._by_owner: dict[str, dict[str, Obj]] = {}
        store.listen(self._changed)

    def load(self, sets: list[Obj]) -> None:
        """Take in ReplicaSets of a saved state."""
        for rs in sets:
            self._put(rs)

    def _changed(self, change: Change) -> None:
        if change.kind != REPLICA_SET:
            return
        if change.old is not None:
            owner = controller_of(change.old.obj)
            if owner:
                self._by_owner.get(owner["uid"], {}).pop(uid_of(change.old.obj), None)
        if change.type != "DELETED":
            self._put(change.new.obj)

    def _put(self, rs: Obj) -> None:
        owner = controller_of(rs)
        if owner:
            self._by_owner.setdefault(owner["uid"], {})[uid_of(rs)] = rs

    def of_owner(self, uid: str) -> list[Obj]:
        """The ReplicaSets of a Deployment."""
        return list(self._by_owner.get(uid, {}).values())
