"""HAMi's metrics: what it gave to containers (scheduler) and what they use (monitor on each node). Pure.

Names: HAMi v2.10 (``cmd/scheduler/metrics.go``, ``cmd/vGPUmonitor/metrics.go``), and the legacy ones that are there
with ``--legacy-metrics``. ``ratio`` is percent in HAMi. Prometheus may move the labels to ``exported_…`` as it does
with dcgm-exporter's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Literal

from infra.dcgm.workload import Workload, scrape_targets, workload_of
from infra.prometheus.types import Sample, Series

_MIB = Decimal(1024 * 1024)
LARGEST_MIB = Decimal(4 * 1024 * 1024)
"""4 TiB: no card has as much. HAMi subtracts without looking and shows 17592186044134 MiB (HAMi#1181)."""

Figure = Literal["memory_used_mib", "memory_given_mib", "cores_given", "busy_percent"]

_CONTAINER: Mapping[str, tuple[Figure, bool]] = {
    "hami_vgpu_memory_used_bytes": ("memory_used_mib", True),
    "hami_container_device_memory_bytes": ("memory_used_mib", True),
    "hami_container_device_utilization_ratio": ("busy_percent", False),
    "hami_vgpu_memory_allocated_bytes": ("memory_given_mib", True),
    "hami_vgpu_core_allocated_ratio": ("cores_given", False),
    "vGPU_device_memory_usage_in_bytes": ("memory_used_mib", True),
    "Device_memory_desc_of_container": ("memory_used_mib", True),
    "Device_utilization_desc_of_container": ("busy_percent", False),
    "vGPUMemoryAllocated": ("memory_given_mib", True),
    "vGPUPodsDeviceAllocated": ("memory_given_mib", True),
    "vGPUCoreAllocated": ("cores_given", False),
}
"""Metric → what it is, and whether in bytes."""

_CARD: Mapping[str, tuple[Figure, bool]] = {
    "hami_host_gpu_utilization_ratio": ("busy_percent", False),
    "hami_host_gpu_memory_used_bytes": ("memory_used_mib", True),
    "HostCoreUtilization": ("busy_percent", False),
    "hami_gpu_memory_allocated_bytes": ("memory_given_mib", True),
    "hami_gpu_core_allocated_ratio": ("cores_given", False),
    "nodeGPUOverview": ("memory_given_mib", True),
    "GPUDeviceMemoryAllocated": ("memory_given_mib", True),
}

METRICS = tuple(sorted({*_CONTAINER, *_CARD}))
_GIVEN = ("memory_given_mib", "cores_given")
USE_METRICS = tuple(sorted(name for name, (figure, _) in {**_CONTAINER, **_CARD}.items() if figure not in _GIVEN))
"""What is used, not given: for telemetry."""

_OLD_LABELS = {
    "podnamespace": "namespace",
    "podname": "pod",
    "ctrname": "container",
    "deviceuuid": "device_uuid",
    "nodeid": "node",
    "nodename": "node",
}


@dataclass(frozen=True)
class HamiSeries:
    """One figure of a container on a card, or of the card itself (``workload`` ``None``), over time.

    ``memory_…_mib`` in MiB, ``busy_percent`` 0 to 100, ``cores_given`` in percent of the card. ``container_index`` is
    set where the row has a number and no name: HAMi counts init containers first (:func:`with_names`).
    """

    node: str
    uuid: str
    workload: Workload | None
    figure: Figure
    samples: tuple[Sample, ...]
    container_index: int | None = None


@dataclass
class HamiReading:
    """What :func:`read_hami` found. ``dropped``: values by metric that can't be true."""

    series: list[HamiSeries] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)


def read_hami(rows: Iterable[Series]) -> HamiReading:
    """Read series of HAMi's scheduler and monitors; rows without a card are left out, others' metrics too.

    Rows that say the same (the new name beside the legacy one, two replicas) become one, with the larger value.
    """
    rows = [row for row in rows if row.name in _CONTAINER or row.name in _CARD]
    targets = scrape_targets(row.labels for row in rows)
    reading = HamiReading()
    found: dict[tuple[str, Workload | None, int | None, Figure], tuple[str, dict[int, Decimal | None]]] = {}
    for row in rows:
        labels = {_OLD_LABELS.get(key, key): value for key, value in row.labels.items()}
        uuid = labels.get("device_uuid", "")
        figure, in_bytes = _CONTAINER.get(row.name) or _CARD[row.name]
        workload = workload_of(labels, targets) if row.name in _CONTAINER else None
        if not uuid or (row.name in _CONTAINER and workload is None):
            continue
        index = labels.get("container_index", "") if workload is not None else ""
        number = int(index) if index.isdecimal() and len(index) < 5 else None
        if workload is not None and index and number is None and not workload.container:
            workload = workload._replace(container=index)  # an older release wrote the name there
        key = (uuid, workload, number, figure)
        node, samples = found.setdefault(key, (labels.get("node", ""), {}))
        for moment, value in row.samples:
            good = _believed(figure, value, in_bytes)
            if good is None and value is not None:
                reading.dropped[row.name] += 1
            known = samples.get(moment)
            samples[moment] = good if known is None else known if good is None else max(known, good)
    for (uuid, workload, number, figure), (node, samples) in found.items():
        reading.series.append(HamiSeries(node, uuid, workload, figure, tuple(sorted(samples.items())), number))
    return reading


def with_names(
    series: Iterable[HamiSeries], containers: Callable[[str, str], tuple[str, ...] | None]
) -> list[HamiSeries]:
    """The series with the container's name in the place of its index, as far as the pod is known.

    Args:
        containers: (namespace, pod) → names of its containers, init containers first; ``None``: no such pod.
    """

    def named(one: HamiSeries) -> HamiSeries:
        if one.workload is None or one.container_index is None or one.workload.container:
            return one
        names = containers(one.workload.namespace, one.workload.pod) or ()
        if one.container_index >= len(names):
            return one
        return replace(one, workload=one.workload._replace(container=names[one.container_index]), container_index=None)

    return [named(one) for one in series]


def of_live_pods(series: Iterable[HamiSeries], alive: Callable[[str, str, int], bool]) -> list[HamiSeries]:
    """The series without what they say of pods that were gone: HAMi goes on listing deleted pods (HAMi#2923, #594).

    Args:
        alive: (namespace, pod, milliseconds since the epoch) → whether there was such a pod.
    """
    found = []
    for one in series:
        if one.workload is None:
            found.append(one)
            continue
        namespace, pod, _ = one.workload
        samples = tuple(sample for sample in one.samples if alive(namespace, pod, sample[0]))
        if samples:
            found.append(replace(one, samples=samples))
    return found


def _believed(figure: Figure, value: Decimal | None, in_bytes: bool) -> Decimal | None:
    if value is None or value < 0:
        return None
    if figure in ("busy_percent", "cores_given"):
        return value if value <= 100 else None
    mib = value / _MIB if in_bytes else value
    return mib if mib <= LARGEST_MIB else None
