"""What is asked of a window of history: PromQL that answers with one sample a series wherever that is enough.

Aggregates over a window (``min_over_time(timestamp(x)[W:S])``) are worked out by the server from the same chunks that a
range query reads, and only their result travels: a month of a pod is two numbers. A subquery's points lie on multiples
of its step since the epoch, whatever the window, so windows that share an edge agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Protocol

from infra.retroactive.names import GPU_RESOURCES


class Selectors(Protocol):
    """Writes a selector with the endpoint's matchers (``PrometheusClient.selector``)."""

    def __call__(
        self,
        metric: str | Iterable[str],
        *,
        equal: Mapping[str, str] | None = None,
        regex: Mapping[str, str] | None = None,
    ) -> str:
        """``metric{…}``."""
        ...


REQUESTS = ("kube_pod_container_resource_requests", "kube_pod_container_resource_limits")
INIT_REQUESTS = ("kube_pod_init_container_resource_requests", "kube_pod_init_container_resource_limits")
NODE_SOURCE = "kube_node_info"
"""There is a series of it whenever kube-state-metrics is scraped: it says when there was somebody to ask."""

LEGACY = ("start_times", "start_values", "completed_values")
"""Asked only of an exporter that does not tell pods' uids."""


def at_the_end(select: Selectors, window: timedelta, step: timedelta) -> dict[str, str]:
    """Questions to be asked for the window's last instant, by name. Everything about pods that ask for cards.

    Pods are looked for twice a step: which scrape was the last to have one is the error of its end.
    """
    over = f"[{_seconds(window)}]"
    points = f"[{_seconds(window)}:{_seconds(step / 2)}]"
    gpu = {"resource": GPU_RESOURCES}
    asked = [f"max_over_time({select(name, regex=gpu)}{over})" for name in (*REQUESTS, *INIT_REQUESTS)]
    theirs = f" and on (namespace, pod) ({' or '.join(asked)})"
    bound = select("kube_pod_info", regex={"node": ".+"})
    over_phase = f"({select('kube_pod_status_phase', regex={'phase': 'Succeeded|Failed'})} == 1)"
    ran = " or ".join(
        f"(timestamp({state}) and ({state} == 1))"
        for state in (select(f"kube_pod_init_container_status_{name}") for name in ("running", "terminated"))
    )
    return {
        "first": f"min_over_time(timestamp({bound}){points}){theirs}",
        "last": f"max_over_time(timestamp({bound}){points}){theirs}",
        "terminal": f"min_over_time((timestamp({bound}) and on (namespace, pod) {over_phase}){points}){theirs}",
        "alive": f"max_over_time((timestamp({bound}) unless on (namespace, pod) {over_phase}){points}){theirs}",
        "created": f"min_over_time({select('kube_pod_created')}{over}){theirs}",
        "scheduled": f"min_over_time({select('kube_pod_status_scheduled_time')}{over}){theirs}",
        "start_time": f"min_over_time({select('kube_pod_start_time')}{over}){theirs}",
        "completed": f"max_over_time({select('kube_pod_completion_time')}{over}){theirs}",
        "started": f"min_over_time({select('kube_pod_container_state_started')}{over}){theirs}",
        "init_seen": f"min_over_time(({ran}){points}){theirs}",
        "requests": " or ".join(asked[:2]),
        "init_requests": " or ".join(asked[2:]),
        "host": _host(select, REQUESTS[0], over) + theirs,
        "init_host": _host(select, INIT_REQUESTS[0], over) + theirs,
        "sidecars": f"max_over_time({select('kube_pod_init_container_info', equal={'restart_policy': 'Always'})}{over})"
        f"{theirs}",
        "hami_memory": _either(select, ("hami_vgpu_memory_allocated_bytes", "vGPUPodsDeviceAllocated"), over),
        "hami_cores": _either(select, ("hami_vgpu_core_allocated_ratio", "vGPUCorePercentage"), over),
        "hami_cards": _either(select, ("hami_gpu_memory_limit_bytes", "GPUDeviceMemoryLimit"), over),
        "labels": f"max_over_time({select('kube_node_labels', regex={'label_nvidia_com_gpu_product': '.+'})}{over})",
        "cards": "max by (Hostname, hostname, UUID, modelName) "
        f"(max_over_time({select('DCGM_FI_DEV_GPU_TEMP')}{over}))",
    }


def over_the_window(select: Selectors) -> dict[str, str]:
    """Questions to be asked for each step of the window, both ends included, by name. Everything about nodes."""
    gpu = {"resource": GPU_RESOURCES}
    capacity = select("kube_node_status_capacity", regex=gpu)
    allocatable = select("kube_node_status_allocatable", regex=gpu)
    here = f" and on (node) {capacity}"

    def ready(status: str) -> str:
        which = select("kube_node_status_condition", equal={"condition": "Ready", "status": status})
        return f"max by (node) ({which} == 1){here}"

    return {
        "scraped": f"max(timestamp({select(NODE_SOURCE)}))",
        "capacity": f"max by (node, resource) ({capacity})",
        "allocatable": f"max by (node, resource) ({allocatable})",
        "cordoned": f"max by (node) ({select('kube_node_spec_unschedulable')} == 1){here}",
        "unknown": ready("unknown"),
        "not_ready": ready("false"),
    }


def without_uids(select: Selectors) -> dict[str, str]:
    """Questions for each step about pods of an exporter that does not tell uids: whose turn it was under a name is
    seen by its start time. By name, see :data:`LEGACY`."""
    gpu = {"resource": GPU_RESOURCES}
    theirs = " or ".join(select(name, regex=gpu) for name in (*REQUESTS, *INIT_REQUESTS))
    metrics = ("kube_pod_start_time", "kube_pod_container_state_started", "kube_pod_completion_time")
    return {
        name: f"{which} by (namespace, pod) ({select(metric)} and on (namespace, pod) ({theirs}))"
        for name, metric, which in zip(LEGACY, metrics, ("max", "min", "max"), strict=True)
    }


def reach(select: Selectors) -> str:
    """Whether anything was scraped, at a moment: asked at wide steps it tells how far the history goes back."""
    return f"count({select(NODE_SOURCE)})"


def _host(select: Selectors, metric: str, over: str) -> str:
    return f"max_over_time({select(metric, regex={'resource': 'cpu|memory'})}{over})"


def _either(select: Selectors, metrics: Iterable[str], over: str) -> str:
    return " or ".join(f"max_over_time({select(metric)}{over})" for metric in metrics)


def _seconds(length: timedelta) -> str:
    return f"{length // timedelta(seconds=1)}s"
