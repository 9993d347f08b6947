"""The cluster as it is now, followed by list and watch, and the cards that its pods hold.

Which card a pod gets is the kubelet's choice, and there is none: the lowest free ones of its node are given in the
order in which pods are seen bound, as a kubelet would. HAMi's choice is in the pod's annotation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import urllib3

from controlplane.api import Api, ApiError, Obj
from simulator.devices import NodeDevices, NoDevices
from simulator.fleet import ClusterSpec, Gpu, Mig, Pool
from simulator.meter import Meter
from simulator.nodes import cards, node_names
from simulator.objects import name_of, uid_of
from simulator.resources import holds

FOLLOWED = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "replicasets": "/apis/apps/v1/replicasets",
    "jobs": "/apis/batch/v1/jobs",
    "namespaces": "/api/v1/namespaces",
}
PAUSE_SECONDS = 1.0
_PRODUCT, _COUNT, _MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/gpu.memory"
_FAMILY, _STRATEGY = "nvidia.com/gpu.family", "nvidia.com/mig.strategy"
_REGISTER = "hami.io/node-nvidia-register"


class Pods:
    """The pods by uid and by node."""

    def __init__(self) -> None:
        self.all: dict[str, Obj] = {}
        self._by_node: dict[str, dict[str, Obj]] = {}

    def put(self, pod: Obj) -> None:
        """Take in a pod's present state."""
        self.drop(uid_of(pod))
        self.all[uid_of(pod)] = pod
        if node := pod["spec"].get("nodeName"):
            self._by_node.setdefault(node, {})[uid_of(pod)] = pod

    def drop(self, uid: str) -> None:
        """The pod is gone."""
        pod = self.all.pop(uid, None)
        if pod is not None and (node := pod["spec"].get("nodeName")):
            self._by_node.get(node, {}).pop(uid, None)

    def on_node(self, node: str) -> list[Obj]:
        """The pods bound to a node."""
        return list(self._by_node.get(node, {}).values())


@dataclass
class Mirror:
    """One cluster. Whoever reads it holds `lock`."""

    spec: ClusterSpec
    seed: str
    clock: Callable[[], float] = time.time
    pods: Pods = field(default_factory=Pods)
    devices: dict[str, NodeDevices] = field(default_factory=dict)
    objects: dict[str, dict[str, Obj]] = field(default_factory=lambda: {name: {} for name in FOLLOWED})
    """What is followed → uid → object (pods are in `pods`)."""
    broken: dict[str, str] = field(default_factory=dict)
    unmapped: set[str] = field(default_factory=set)
    xids: dict[str, int] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)
    lock: threading.RLock = field(default_factory=threading.RLock)
    listed: set[str] = field(default_factory=set)

    def replace(self, what: str, items: list[Obj]) -> None:
        """A whole list: what is not in it is gone."""
        with self.lock:
            known = self.pods.all if what == "pods" else self.objects[what]
            for uid in set(known) - {uid_of(item) for item in items}:
                self.drop(what, known[uid])
            for item in sorted(items, key=lambda item: item["metadata"]["creationTimestamp"]):
                self.put(what, item)
            self.listed.add(what)
            if what == "nodes":  # pods that were listed before their node
                for pod in list(self.pods.all.values()):
                    self._assign(pod)

    def put(self, what: str, item: Obj) -> None:
        """An object's present state."""
        with self.lock:
            if what == "pods":
                self.pods.put(item)
                self._assign(item)
                return
            self.objects[what][uid_of(item)] = item
            if what == "nodes" and name_of(item) not in self.devices:
                pool = self._pool(item)
                self.devices[name_of(item)] = NodeDevices(pool, cards(self.seed, self.spec, pool, name_of(item)))

    def drop(self, what: str, item: Obj) -> None:
        """An object is gone."""
        with self.lock:
            if what == "pods":
                self.pods.drop(uid_of(item))
                self._free(item)
                return
            self.objects[what].pop(uid_of(item), None)
            if what == "nodes":
                self.devices.pop(name_of(item), None)

    def _assign(self, pod: Obj) -> None:
        node = self.devices.get(pod["spec"].get("nodeName", ""))
        if node is None:
            return
        if not holds(pod):
            self._free(pod)
            return
        try:
            node.assign(pod)
        except NoDevices:  # it was bound by hand, beyond what the node has
            return

    def _free(self, pod: Obj) -> None:
        node = self.devices.get(pod["spec"].get("nodeName", ""))
        if node is not None:
            node.free(uid_of(pod))

    def _pool(self, node: Obj) -> Pool:
        """The fleet's pool of the node; for a node that somebody else made, one after its labels."""
        for pool in self.spec.pools:
            if name_of(node) in node_names(self.spec, pool):
                return pool
        labels, annotations = node["metadata"].get("labels") or {}, node["metadata"].get("annotations") or {}
        if not labels.get(_PRODUCT):
            return Pool(name_of(node), 1)
        product = labels[_PRODUCT]
        gpu = Gpu(
            product,
            product.replace("-", " "),
            int(labels.get(_COUNT, "0")),
            int(labels.get(_MEMORY, "0")),
            labels.get(_FAMILY, ""),
        )
        allocatable = node.get("status", {}).get("allocatable") or {}
        profile = next((n.removeprefix("nvidia.com/mig-") for n in allocatable if n.startswith("nvidia.com/mig-")), "")
        if profile:
            per_card = int(allocatable[f"nvidia.com/mig-{profile}"]) // max(gpu.count, 1)
            return Pool(name_of(node), 1, mode="mig", gpu=gpu, mig=Mig(profile, per_card, gpu.memory // 8))
        return Pool(name_of(node), 1, mode="hami" if _REGISTER in annotations else "whole", gpu=gpu)


class Following:
    """Threads that keep a mirror up to date, until the process ends."""

    def __init__(self, api: Api, mirror: Mirror) -> None:
        self._api, self._mirror = api, mirror

    def start(self) -> None:
        """Begin; `mirror.listed` tells what has been read once."""
        for what in FOLLOWED:
            threading.Thread(target=self._run, args=(what,), name=what, daemon=True).start()

    def _run(self, what: str) -> None:
        while True:
            try:
                self._follow(what)
            except (ApiError, urllib3.exceptions.HTTPError, OSError, ValueError):
                time.sleep(PAUSE_SECONDS)  # the server is away, or has forgotten our version: list again

    def _follow(self, what: str) -> None:
        answer = self._api.call("GET", FOLLOWED[what])
        self._mirror.replace(what, answer["items"])
        version = answer["metadata"]["resourceVersion"]
        while True:
            for event in self._api.watch(FOLLOWED[what], version):
                item = event["object"]
                if event["type"] == "ERROR":
                    return
                version = item["metadata"]["resourceVersion"]
                if event["type"] in ("ADDED", "MODIFIED"):
                    self._mirror.put(what, item)
                elif event["type"] == "DELETED":
                    self._mirror.drop(what, item)
