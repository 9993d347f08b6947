"""One simulated cluster: its objects, its rules, its machinery."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from simulator.access import User
from simulator.accounting import Accounting
from simulator.clock import Timing
from simulator.devices import NodeDevices
from simulator.errors import conflict
from simulator.faults import Faults, Tally
from simulator.fleet import ClusterSpec
from simulator.index import PodIndex, SetIndex
from simulator.kinds import CRD, EVENT, NAMESPACE, NODE, POD, Obj
from simulator.meter import Meter
from simulator.objects import (
    Ids,
    clone,
    is_deleting,
    name_of,
    namespace_of,
    rfc3339,
    rfc3339_micro,
    uid_of,
    unix,
)
from simulator.options import Options
from simulator.registry import Registry
from simulator.schemas import kind_from_crd
from simulator.store import Change, Store
from simulator.tokens import Tokens
from simulator.watching import Hub

EVENT_SECONDS = 3600.0


class Cluster:
    """Everything that belongs to one API server."""

    def __init__(
        self,
        spec: ClusterSpec,
        timing: Timing,
        users: list[User],
        seed: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.spec = spec
        self.timing = timing
        self.users = {user.token: user for user in users}
        self.clock = clock
        self.store = Store(spec.history)
        self.registry = Registry(self.store, Ids(seed), spec.hami, clock)
        self.hub = Hub(self.store)
        self.pods = PodIndex(self.store, clock)
        self.sets = SetIndex(self.store)
        self.faults = Faults()
        self.tally = Tally()
        self.broken: dict[str, str] = {}
        """Node name → `lost` (the kubelet is silent) or `notready` (it says that it is not ready)."""
        self.unmapped: set[str] = set()
        """Nodes whose exporter tells of no pod."""
        self.xids: dict[str, int] = {}
        """Card → its last XID error."""
        self.devices: dict[str, NodeDevices] = {}
        """Node name → its cards and who holds them."""
        self.accounting = Accounting(self.store, clock)
        self.meter = Meter()
        self.look_at_node: Callable[[str], None] = lambda name: None
        """Has the machinery look at a node and its pods at once; set when that is there."""
        self._event_log: deque[tuple[float, str, str]] = deque()
        self._events: dict[tuple[str, str, str, str], tuple[str, float]] = {}
        self.tokens = Tokens(self.store, clock)
        """Of service accounts."""
        self.store.listen(self._crd_changed)

    def _crd_changed(self, change: Change) -> None:
        """A CustomResourceDefinition adds its kinds, or takes them away."""
        if change.kind != CRD:
            return
        for kind in kind_from_crd(change.new.obj):
            if change.type == "DELETED":
                self.registry.kinds.remove(kind)
            else:
                self.registry.kinds.add(kind)

    def restore_kinds(self) -> None:
        """Add the kinds of the definitions that were loaded from a saved state."""
        for crd in self.store.objects(CRD):
            for kind in kind_from_crd(crd):
                self.registry.kinds.add(kind)

    def node(self, name: str) -> Obj | None:
        """The node, or None."""
        return self.registry.find(NODE, "", name)

    def created(self, pod: Obj) -> float:
        """When the pod was first seen, in unix seconds (finer than its creationTimestamp)."""
        return self.pods.seen.get(uid_of(pod)) or unix(pod["metadata"]["creationTimestamp"])

    def bind(
        self, namespace: str, name: str, node: str, options: Options, annotations: dict[str, str] | None = None
    ) -> None:
        """Put a pod on a node. Raises ApiError 409 if it has one, 404 if it is gone."""
        pod = self.registry.entry(POD, namespace, name).obj
        if pod["spec"].get("nodeName") or is_deleting(pod):
            raise conflict(POD, name, f'pod {name} is already assigned to node "{pod["spec"].get("nodeName")}"')
        labels = (self.node(node) or {"metadata": {}})["metadata"].get("labels") or {}
        new = clone(pod)
        new["spec"]["nodeName"] = node
        for key in ("topology.kubernetes.io/region", "topology.kubernetes.io/zone"):
            if key in labels:
                new["metadata"].setdefault("labels", {})[key] = labels[key]
        if annotations:
            new["metadata"].setdefault("annotations", {}).update(annotations)
        rest = [row for row in new["status"].get("conditions") or [] if row["type"] != "PodScheduled"]
        new["status"]["conditions"] = [*rest, scheduled(self.clock())]
        self.store.put(POD, new)

    def event(
        self, about: Obj, reason: str, message: str, component: str, *, warning: bool = False, action: str = ""
    ) -> None:
        """Record an event about an object; the same again counts up. With `action` it has the newer form
        (eventTime, series) that schedulers write, without it the older one (count) of kubelet and controllers."""
        now = self.clock()
        key = (uid_of(about), reason, message, component)
        namespace = namespace_of(about) or "default"
        home = self.store.get(NAMESPACE, "", namespace)
        if home is None or is_deleting(home.obj):
            return
        self._forget_events(now)
        known = self._events.get(key)
        entry = self.store.get(EVENT, namespace, known[0]) if known else None
        if known and entry and now - known[1] < 600:
            again = clone(entry.obj)
            if action:
                series = again.setdefault("series", {"count": 1})
                series["count"] += 1
                series["lastObservedTime"] = rfc3339_micro(now)
            else:
                again["count"] = again.get("count", 1) + 1
                again["lastTimestamp"] = rfc3339(now)
            self.store.put(EVENT, again)
            return
        name = f"{name_of(about)}.{int(now * 1e9) + len(self._events):x}"
        self._events[key] = (name, now)
        if len(self._events) > 5000:
            self._events.pop(next(iter(self._events)))
        body: Obj = {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": self.registry.ids.uid(),
                "creationTimestamp": rfc3339(now),
            },
            "involvedObject": {
                "kind": about["kind"],
                "namespace": namespace_of(about),
                "name": name_of(about),
                "uid": uid_of(about),
                "apiVersion": about["apiVersion"],
                "resourceVersion": about["metadata"].get("resourceVersion", ""),
            },
            "reason": reason,
            "message": message,
            "source": {} if action else {"component": component},
            "firstTimestamp": None if action else rfc3339(now),
            "lastTimestamp": None if action else rfc3339(now),
            "type": "Warning" if warning else "Normal",
            "eventTime": rfc3339_micro(now) if action else None,
            "reportingComponent": component,
            "reportingInstance": f"{component}-{self.spec.name}" if action else "",
        }
        if action:
            body["action"] = action
        else:
            body["count"] = 1
        self.store.put(EVENT, body)
        self._event_log.append((now, namespace, name))

    def _forget_events(self, now: float) -> None:
        """Events live for an hour."""
        while self._event_log and now - self._event_log[0][0] > EVENT_SECONDS:
            _, namespace, name = self._event_log.popleft()
            self.store.remove(EVENT, namespace, name)

    def restore_events(self) -> None:
        """Let the events of a saved state end in time."""
        found = [
            (unix(e["metadata"]["creationTimestamp"]), namespace_of(e), name_of(e)) for e in self.store.objects(EVENT)
        ]
        self._event_log.extend(sorted(found))


def scheduled(now: float, message: str = "", generation: int = 0) -> Obj:
    """The condition PodScheduled: True, or False with the message why not."""
    row: Obj = {
        "type": "PodScheduled",
        "status": "False" if message else "True",
        "lastProbeTime": None,
        "lastTransitionTime": rfc3339(now),
    }
    if message:
        row |= {"reason": "Unschedulable", "message": message, "observedGeneration": generation}
    return row
