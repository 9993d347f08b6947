"""Node heartbeats, what happens when they stop, and eviction from nodes that are lost."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.controllers.base import Controller, Key
from simulator.controllers.hami import REGISTER
from simulator.errors import ApiError
from simulator.kinds import LEASE, NAMESPACE, NODE, POD, Obj
from simulator.nodes import conditions, hami_register, handshake, resources
from simulator.objects import (
    annotations_of,
    condition,
    is_deleting,
    name_of,
    namespace_of,
    rfc3339_micro,
    unix,
)
from simulator.options import Options
from simulator.store import Change

LEASES = "kube-node-lease"
_TAINTS = {"False": "node.kubernetes.io/not-ready", "Unknown": "node.kubernetes.io/unreachable"}


class Nodes(Controller):
    """The kubelets' side (lease, handshake, allocatable) and the node lifecycle controller's."""

    name = "nodes"

    def interest(self, change: Change) -> Iterable[Key]:
        if change.kind == NODE and change.type == "ADDED":
            yield (name_of(change.new.obj),)

    def start(self) -> Iterable[Key]:
        return [(name_of(node),) for node in self.store.objects(NODE)]

    def reconcile(self, key: Key) -> float | None:
        (name,) = key
        node = self.cluster.node(name)
        if node is None:
            return None
        if self.cluster.broken.get(name) != "lost":
            self._beat(node)
        self._judge(node)
        self._evict(name)
        return self.cluster.timing.node_tick

    def _beat(self, node: Obj) -> None:
        """What the kubelet and HAMi's plugin do as long as they live."""
        name, now, timing = name_of(node), self.now, self.cluster.timing
        lease = self.registry.find(LEASE, LEASES, name)
        if lease is None:
            if self.store.get(NAMESPACE, "", LEASES):
                body = {"metadata": {"name": name}, "spec": self._lease(name, now)}
                self.registry.create(LEASE, LEASES, body, Options(manager="kubelet"))
        elif now - unix(lease["spec"]["renewTime"]) >= timing.lease_every:

            def renew(obj: Obj) -> None:
                obj["spec"] = self._lease(name, now)

            self.registry.modify(LEASE, LEASES, name, renew, Options(manager="kubelet"))
        devices = self.cluster.devices.get(name)
        if devices is None:
            return
        healthy = {card.uuid for card in devices.cards} - devices.lost
        allocatable = resources(devices.pool, len(devices.lost))

        def status(obj: Obj) -> None:
            obj["status"]["allocatable"] = allocatable

        self.registry.modify(NODE, "", name, status, Options(manager="kubelet", subresource="status"))
        if devices.pool.mode == "hami":
            said = annotations_of(node).get("hami.io/node-handshake", "")
            stale = not said.startswith("Reported_") or now - _spoken(said) >= max(timing.lease_every * 3, 1)
            register = hami_register(devices.cards, healthy)

            def report(obj: Obj) -> None:
                notes = obj["metadata"].setdefault("annotations", {})
                notes[REGISTER] = register
                if stale:
                    notes["hami.io/node-handshake"] = handshake(now)

            self.registry.modify(NODE, "", name, report, Options(manager="hami-device-plugin"))

    def _lease(self, name: str, now: float) -> Obj:
        return {
            "holderIdentity": name,
            "leaseDurationSeconds": self.cluster.timing.lease_lasts,
            "renewTime": rfc3339_micro(now),
        }

    def _verdict(self, name: str) -> tuple[str, str, str] | None:
        """Ready as it must be now: (status, reason, message); None while a silent node is still given time."""
        how = self.cluster.broken.get(name)
        if how == "notready":
            text = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"
            return "False", "KubeletNotReady", text
        if how != "lost":
            return "True", "KubeletReady", "kubelet is posting ready status"
        lease = self.registry.find(LEASE, LEASES, name)
        renewed = unix(lease["spec"]["renewTime"]) if lease else 0.0
        if self.now - renewed < self.cluster.timing.node_grace:
            return None
        return "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."

    def _judge(self, node: Obj) -> None:
        """Write Ready, the taints that follow from it, and the pods' Ready."""
        name, want = name_of(node), self._verdict(name_of(node))
        if want is None or (condition(node, "Ready") or {}).get("status") == want[0]:
            return

        def status(obj: Obj) -> None:
            known = {row["type"]: row for row in obj["status"].get("conditions") or []}
            rows = conditions(self.now, *want)
            for row in rows:
                before = known.get(row["type"], {})
                if want[0] == "Unknown" and before:
                    row["lastHeartbeatTime"] = before["lastHeartbeatTime"]
            obj["status"]["conditions"] = [
                row if known.get(row["type"], {}).get("status") != row["status"] else known[row["type"]] for row in rows
            ]

        def taint(obj: Obj) -> None:
            rest = [t for t in obj["spec"].get("taints") or [] if t["key"] not in _TAINTS.values()]
            key = _TAINTS.get(want[0])
            if key:
                rest += [
                    {"key": key, "effect": "NoSchedule"},
                    {"key": key, "effect": "NoExecute", "timeAdded": self.registry.now()},
                ]
            obj["spec"].pop("taints", None)
            if rest:
                obj["spec"]["taints"] = rest

        manager = "kube-controller-manager" if want[0] == "Unknown" else "kubelet"
        self.registry.modify(NODE, "", name, status, Options(manager=manager, subresource="status"))
        self.registry.modify(NODE, "", name, taint, self.options())
        reason = "NodeReady" if want[0] == "True" else "NodeNotReady"
        self.cluster.event(node, reason, f"Node {name} status is now: {reason}", "node-controller")
        if want[0] != "True":
            for pod in self.cluster.pods.on_node(name):
                self._unready(pod)

    def _unready(self, pod: Obj) -> None:
        def change(obj: Obj) -> None:
            for row in obj["status"].get("conditions") or []:
                if row["type"] == "Ready" and row["status"] == "True":
                    row.update(status="False", lastTransitionTime=self.registry.now())

        options = Options(manager="kube-controller-manager", subresource="status")
        self.registry.modify(POD, namespace_of(pod), name_of(pod), change, options)

    def _evict(self, name: str) -> None:
        """Delete the pods whose toleration of a NoExecute taint has run out."""
        node = self.cluster.node(name)
        taints = [t for t in (node or {"spec": {}})["spec"].get("taints") or [] if t["effect"] == "NoExecute"]
        for taint in taints:
            for pod in self.cluster.pods.on_node(name):
                if is_deleting(pod):
                    continue
                limit = _tolerated_for(pod, taint)
                added = taint.get("timeAdded")
                since = self.now - unix(added) if added else 0.0
                if limit is None or since < limit * self.cluster.timing.eviction_scale:
                    continue
                text = f"Marking for deletion Pod {namespace_of(pod)}/{name_of(pod)}"
                self.cluster.event(pod, "TaintManagerEviction", text, "taint-eviction-controller")
                try:
                    self.registry.delete(POD, namespace_of(pod), name_of(pod), Options())
                except ApiError:
                    continue


def _spoken(said: str) -> float:
    return unix(said.removeprefix("Reported_").replace(" ", "T") + "Z")


def _tolerated_for(pod: Obj, taint: Obj) -> float | None:
    """Seconds for which the pod tolerates the taint: None for ever, 0 not at all."""
    longest: float = 0.0
    for row in pod["spec"].get("tolerations") or []:
        if row.get("effect") not in (None, "", taint["effect"]):
            continue
        fits = (
            row.get("key") in (None, "", taint["key"])
            if row.get("operator") == "Exists"
            else (row.get("key") == taint["key"] and row.get("value", "") == taint.get("value", ""))
        )
        if fits:
            if row.get("tolerationSeconds") is None:
                return None
            longest = max(longest, float(row["tolerationSeconds"]))
    return longest
