"""A made history of a cluster: pods and nodes with known times, as kube-state-metrics would have told them, scrape by
scrape; and the same counted by hand, the slow way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.support.promql import Store

SECOND = 1000


@dataclass(frozen=True)
class MadeNode:
    """A node with cards from ``since`` to ``until`` (seconds since the epoch; None: for ever)."""

    name: str
    gpus: int = 8
    product: str = "NVIDIA-H100-80GB-HBM3"
    since: int = 0
    until: int | None = None
    resources: Mapping[str, int] = field(default_factory=dict)
    labelled: bool = True
    cordoned: tuple[int, int] = (0, 0)
    unknown: tuple[int, int] = (0, 0)
    hami: tuple[str, ...] = ()

    def capacity(self) -> dict[str, int]:
        """By kube-state-metrics' names."""
        return dict(self.resources) or {"nvidia_com_gpu": self.gpus}


@dataclass(frozen=True)
class MadePod:
    """A pod; times are whole seconds since the epoch. ``finished``: its containers ended at ``end`` by themselves, and
    the object stayed for ``lingers`` seconds; else it was deleted at ``end``."""

    uid: str
    namespace: str
    name: str
    node: str
    scheduled: int
    started: int
    end: int | None = None
    finished: bool = False
    lingers: int = 600
    requests: Mapping[str, int] = field(default_factory=lambda: {"nvidia_com_gpu": 1})
    owner: tuple[str, str] = ("ReplicaSet", "some")
    init: Mapping[str, int] = field(default_factory=dict)
    init_ran: int | None = None
    restarts: tuple[int, ...] = ()
    """When its container was started again."""
    grants: tuple[tuple[str, int, int], ...] = ()
    """HAMi: card, MiB, cores."""

    @property
    def gone(self) -> int | None:
        """When the object went."""
        return None if self.end is None else self.end + (self.lingers if self.finished else 0)


@dataclass
class MadeHistory:
    """What there was, and how it was scraped."""

    nodes: list[MadeNode]
    pods: list[MadePod]
    start: int
    end: int
    interval: int = 30
    gaps: tuple[tuple[int, int], ...] = ()
    uids: bool = True
    times: bool = True
    """Whether the exporter tells scheduled, start and container times."""
    replicas: int = 1
    """Prometheus servers in one store, each with a label of its own and scrapes at its own moments."""

    def scrapes(self, replica: int = 0) -> Iterable[int]:
        """The moments of one server's scrapes, ms."""
        for at in range(self.start + 7 * replica, self.end, self.interval):
            if not any(first <= at < last for first, last in self.gaps):
                yield at * SECOND + 137

    def store(self) -> Store:
        """All samples."""
        store = Store()
        for replica in range(self.replicas):
            label = {"prometheus_replica": f"r{replica}"} if self.replicas > 1 else {}
            before: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
            for at in self.scrapes(replica):
                now = {
                    (name, tuple(sorted({**labels, **label}.items()))): value
                    for name, labels, value in self.told(at // SECOND)
                }
                for (name, labels), value in now.items():
                    store.add(name, dict(labels), at, value)
                for name, labels in before - now.keys():
                    store.add(name, dict(labels), at, None)
                before = set(now)
        return store

    def told(self, now: int) -> Iterable[tuple[str, dict[str, str], float]]:
        """What the exporters say at a second."""
        for node in self.nodes:
            if node.since <= now and (node.until is None or now < node.until):
                yield from self._node(node, now)
        for pod in self.pods:
            if pod.scheduled - 5 <= now and (pod.gone is None or now < pod.gone):
                yield from self._pod(pod, now)

    def _node(self, node: MadeNode, now: int) -> Iterable[tuple[str, dict[str, str], float]]:
        base = {"node": node.name}
        yield "kube_node_info", {**base, "system_uuid": f"S-{node.name}"}, 1
        for resource, amount in node.capacity().items():
            yield "kube_node_status_capacity", {**base, "resource": resource, "unit": "integer"}, amount
            yield "kube_node_status_allocatable", {**base, "resource": resource, "unit": "integer"}, amount
        yield "kube_node_spec_unschedulable", base, int(node.cordoned[0] <= now < node.cordoned[1])
        lost = node.unknown[0] <= now < node.unknown[1]
        for status, value in (("true", not lost), ("false", False), ("unknown", lost)):
            yield "kube_node_status_condition", {**base, "condition": "Ready", "status": status}, int(value)
        if node.labelled:
            labels = {"label_nvidia_com_gpu_product": node.product, "label_nvidia_com_gpu_count": str(node.gpus)}
            yield "kube_node_labels", {**base, **labels}, 1
        for uuid in node.hami:
            yield "hami_gpu_memory_limit_bytes", {**base, "device_uuid": uuid}, 81_559 * 1024 * 1024

    def _pod(self, pod: MadePod, now: int) -> Iterable[tuple[str, dict[str, str], float]]:
        base = {"namespace": pod.namespace, "pod": pod.name} | ({"uid": pod.uid} if self.uids else {})
        node = pod.node if now >= pod.scheduled else ""
        kind, name = pod.owner
        info = {"created_by_kind": kind, "created_by_name": name, "host_ip": "10.0.0.1" if node else "", "node": node}
        yield "kube_pod_info", {**base, **info}, 1
        yield "kube_pod_created", base, pod.scheduled - 5
        for resource, amount in pod.requests.items():
            labels = {**base, "container": "main", "node": node, "resource": resource, "unit": "integer"}
            yield "kube_pod_container_resource_requests", labels, amount
        for resource, amount in pod.init.items():
            labels = {**base, "container": "prepare", "node": node, "resource": resource}
            yield "kube_pod_init_container_resource_requests", labels, amount
        over = pod.end is not None and now >= pod.end and pod.finished
        running = now >= pod.started and not over
        for phase, value in (("Pending", now < pod.started), ("Running", running), ("Succeeded", over)):
            yield "kube_pod_status_phase", {**base, "phase": phase}, int(value)
        if pod.init_ran is not None:
            labels = {**base, "container": "prepare"}
            yield "kube_pod_init_container_status_running", labels, int(pod.init_ran <= now < pod.started)
            yield "kube_pod_init_container_status_terminated", labels, int(now >= pod.started)
        if self.times or not self.uids:
            if now >= pod.scheduled:
                yield "kube_pod_start_time", base, pod.scheduled
            if now >= pod.started:
                last = max([pod.started, *(at for at in pod.restarts if at <= now)])
                yield "kube_pod_container_state_started", {**base, "container": "main"}, last
        if self.times and now >= pod.scheduled:
            yield "kube_pod_status_scheduled_time", base, pod.scheduled
        if over and pod.end is not None:
            yield "kube_pod_completion_time", base, pod.end
        if now >= pod.scheduled and not over:
            for uuid, memory, cores in pod.grants:
                labels = {"namespace": pod.namespace, "pod": pod.name, "node": pod.node, "container_index": "0"}
                labels["device_uuid"] = uuid
                yield "hami_vgpu_memory_allocated_bytes", labels, memory * 1024 * 1024
                yield "hami_vgpu_core_allocated_ratio", labels, cores

    def open_metrics(self) -> Iterable[str]:
        """The samples as OpenMetrics, for ``promtool tsdb create-blocks-from openmetrics``: in time's order, one metric
        after the other."""
        families: dict[str, list[str]] = {}
        for replica in range(self.replicas):
            for at in self.scrapes(replica):
                for name, labels, value in self.told(at // SECOND):
                    inside = ",".join(f'{key}="{text}"' for key, text in labels.items() if text)
                    families.setdefault(name, []).append(f"{name}{{{inside}}} {value} {at / 1000:.3f}")
        for name in sorted(families):
            yield f"# TYPE {name} gauge"
            yield from families[name]
        yield "# EOF"


def counted(pods: Iterable[MadePod], start: int, end: int, *, starting: int = 600) -> dict[str, int]:
    """Namespace → card-seconds on its account within ``[start, end)``, second by second: from the first start of a
    container (at the latest ten minutes after being bound) to the end."""
    found: dict[str, int] = {}
    for pod in pods:
        charged_from = min(pod.started, pod.scheduled + starting)
        if pod.init_ran is not None:
            charged_from = min(charged_from, pod.init_ran)
        cards = pod.requests.get("nvidia_com_gpu", 0)
        for second in range(max(start, charged_from), min(end, pod.end or end)):
            found[pod.namespace] = found.get(pod.namespace, 0) + cards * (second >= charged_from)
    return found
