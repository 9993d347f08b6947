"""OpenCost's `/allocation/compute` and `/assets`, with the shapes and the known distortions of a real one.

The rules are read off recorded answers of a real OpenCost (source of 2025-02) that stood beside the truth:
- A pod exists at the points of a grid (5 minutes; the parameter `resolution` changes it). Its time is from the first to
  the last point that saw it, or half a step to either side of a single one, cut to the window.
- Pods of the same name are one row. A pod that no point saw has no row. One that no whole minute saw has no GPU.
- `nvidia.com/gpu: 1` is a whole card, also where HAMi shares it; MIG instances are nothing.
- A node counts its `nvidia.com/gpu` (80 for eight shared cards), a MIG node one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from simulator import quantity
from simulator.accounting import Run
from simulator.kinds import Obj
from simulator.objects import labels_of, name_of, rfc3339, unix

GIB = 1024.0**3
PRICES = {"cpu": 0.02, "ram": 0.003, "gpu": 2.5}
"""Per core-hour, GiB-hour, GPU-hour, where the fleet file says nothing."""

_DURATION = re.compile(r"^(\d+)(s|m|h|d)$")
_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class BadWindow(Exception):
    """The window can't be read."""


def seconds(text: str) -> float:
    """'5m' → 300; raises BadWindow."""
    found = _DURATION.match(text)
    if not found or int(found.group(1)) == 0:
        raise BadWindow(text)
    return float(int(found.group(1)) * _UNIT[found.group(2)])


def window_of(text: str, now: float) -> tuple[float, float]:
    """(start, end) of a window: a pair of RFC 3339 or unix times, a duration back from now, today, yesterday."""
    day = math.floor(now / 86400) * 86400.0
    if text in ("today", "yesterday"):
        return (day, day + 86400) if text == "today" else (day - 86400, day)
    if "," in text:
        first, _, second = text.partition(",")
        try:
            start, end = (float(part) if part.isdigit() else unix(part) for part in (first, second))
        except ValueError as error:
            raise BadWindow(text) from error
        if end <= start:
            raise BadWindow(text)
        return start, end
    length = seconds(text)
    end = math.ceil(now / 300) * 300.0
    return end - length, end


@dataclass
class Row:
    """One line of an allocation: hours of cores, bytes and cards, and from when to when."""

    start: float
    end: float
    cpu_hours: float = 0.0
    ram_hours: float = 0.0
    gpu_hours: float = 0.0
    runs: list[Run] = field(default_factory=list)

    def add(self, other: Row) -> None:
        """Take in another line."""
        self.start, self.end = min(self.start, other.start), max(self.end, other.end)
        self.cpu_hours += other.cpu_hours
        self.ram_hours += other.ram_hours
        self.gpu_hours += other.gpu_hours
        self.runs += other.runs


def rows(runs: Iterable[Run], start: float, end: float, step: float) -> list[Row]:
    """One row per pod name that the grid saw in the window."""
    named: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.start < end and (run.end is None or run.end > start):
            named.setdefault((run.namespace, run.pod), []).append(run)
    first = math.ceil(start / step) * step
    points = [first + step * n for n in range(math.floor((end - first) / step) + 1)] if end >= first else []
    out = []
    for same in named.values():
        seen = [p for p in points if any(r.start < p and (r.end is None or p <= r.end) for r in same)]
        if not seen:
            continue
        begin, finish = seen[0], seen[-1]
        if begin == finish:
            begin, finish = begin - step / 2, finish + step / 2
        begin, finish = max(begin, start), min(finish, end)
        hours = (finish - begin) / 3600
        shown = [run for run in same if any(run.start < p and (run.end is None or p <= run.end) for p in seen)]
        last = shown[-1]
        counted = any(_crosses_minute(run, end) for run in shown)
        out.append(
            Row(
                begin,
                finish,
                last.cpu * hours,
                last.ram * hours,
                last.gpu * hours if counted else 0.0,
                list(shown),
            )
        )
    return out


def _crosses_minute(run: Run, now: float) -> bool:
    """True if the run lasted over a whole minute's mark, when OpenCost renews its GPU metric."""
    until = run.end if run.end is not None else now
    return math.floor(until / 60) > math.floor(run.start / 60)


def _prometheus(key: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", key)


def key_of(run: Run, aggregate: list[str], cluster: str) -> str:
    """The name of the row that a run goes into."""
    parts = []
    for what in aggregate:
        if what.startswith("label:"):
            labels = {_prometheus(key): value for key, value in run.labels.items()}
            parts.append(labels.get(_prometheus(what.removeprefix("label:")), "__unallocated__"))
        else:
            fields = {
                "cluster": cluster,
                "node": run.node,
                "namespace": run.namespace,
                "pod": run.pod,
                "container": run.container,
                "controller": run.controller or "__unallocated__",
                "controllerKind": run.controller_kind or "__unallocated__",
            }
            if what not in fields:
                return ""
            parts.append(fields[what])
    return "/".join(parts)


@dataclass(frozen=True)
class Question:
    """What was asked. Times in unix seconds, step and resolution in seconds."""

    start: float
    end: float
    step: float
    resolution: float
    aggregate: tuple[str, ...]
    idle: bool

    @classmethod
    def read(cls, query: dict[str, str], now: float) -> Question:
        """From a query; raises BadWindow."""
        start, end = window_of(query.get("window", ""), now)
        step = seconds(query["step"]) if query.get("step") else end - start
        resolution = seconds(query.get("resolution") or "5m")
        names = tuple(part for part in query.get("aggregate", "").split(",") if part)
        default = ("cluster", "node", "namespace", "pod", "container")
        return cls(start, end, step, resolution, names or default, query.get("includeIdle", "") == "true")


def allocation(
    runs: list[Run],
    question: Question,
    cluster: str,
    prices: dict[str, float],
    nodes: list[Obj],
    namespaces: dict[str, Obj],
) -> list[Obj]:
    """The sets of `/allocation/compute`, one for each step."""
    price = {**PRICES, **prices}
    sets: list[Obj] = []
    at = question.start
    while at < question.end:
        until = at + question.step
        merged: dict[str, Row] = {}
        for row in rows(runs, at, until, question.resolution):
            key = key_of(row.runs[-1], list(question.aggregate), cluster)
            if key in merged:
                merged[key].add(row)
            else:
                merged[key] = row
        found = {
            key: _line(key, row, (at, until), cluster, price, namespaces, question.aggregate)
            for key, row in sorted(merged.items())
        }
        if question.idle and nodes:
            found["__idle__"] = _idle(list(merged.values()), nodes, at, until, cluster, price)
        sets.append(found)
        at = until
    return sets


def _line(
    key: str, row: Row, window: tuple[float, float], cluster: str, price: dict[str, float],
    namespaces: dict[str, Obj], aggregate: tuple[str, ...],
) -> Obj:  # fmt: skip
    properties: Obj = {"cluster": cluster}
    for name, values in (
        ("node", {run.node for run in row.runs}),
        ("container", {run.container for run in row.runs}),
        ("controller", {run.controller for run in row.runs}),
        ("controllerKind", {run.controller_kind for run in row.runs}),
        ("namespace", {run.namespace for run in row.runs}),
        ("pod", {run.pod for run in row.runs}),
    ):
        if len(values) == 1 and any(values):
            properties[name] = next(iter(values))
    if "pod" in properties and "pod" in aggregate:
        properties["labels"] = {_prometheus(k): v for k, v in row.runs[-1].labels.items()}
    if properties.get("namespace") in namespaces:
        labels = labels_of(namespaces[properties["namespace"]])
        properties["namespaceLabels"] = {_prometheus(k): v for k, v in labels.items()}
    line = _costs(row, window, price)
    return {"name": key, "properties": properties, **line}


def _costs(row: Row, window: tuple[float, float], price: dict[str, float]) -> Obj:
    hours = (row.end - row.start) / 3600
    cpu, ram, gpu = row.cpu_hours, row.ram_hours, row.gpu_hours
    cpu_cost, ram_cost, gpu_cost = cpu * price["cpu"], ram / GIB * price["ram"], gpu * price["gpu"]

    def rate(value: float) -> float | None:
        return _round(value / hours) if hours else None

    zeros = dict.fromkeys(
        ("networkTransferBytes", "networkReceiveBytes", "networkCost", "networkCrossZoneCost",
         "networkCrossRegionCost", "networkInternetCost", "networkCostAdjustment", "loadBalancerCost",
         "loadBalancerCostAdjustment", "pvBytes", "pvByteHours", "pvCost"), 0,
    )  # fmt: skip
    return {
        "window": {"start": rfc3339(window[0]), "end": rfc3339(window[1])},
        "start": rfc3339(row.start),
        "end": rfc3339(row.end),
        "minutes": _round(hours * 60),
        "cpuCores": rate(cpu),
        "cpuCoreRequestAverage": rate(cpu),
        "cpuCoreUsageAverage": 0,
        "cpuCoreHours": _round(cpu),
        "cpuCost": _round(cpu_cost),
        "cpuCostAdjustment": 0,
        "cpuCostIdle": 0,
        "cpuEfficiency": 0,
        "gpuCount": rate(gpu),
        "gpuHours": _round(gpu),
        "gpuCost": _round(gpu_cost),
        "gpuCostAdjustment": 0,
        "gpuCostIdle": 0,
        "gpuEfficiency": 0,
        **zeros,
        "pvs": None,
        "pvCostAdjustment": 0,
        "ramBytes": rate(ram),
        "ramByteRequestAverage": rate(ram),
        "ramByteUsageAverage": 0,
        "ramByteHours": _round(ram),
        "ramCost": _round(ram_cost),
        "ramCostAdjustment": 0,
        "ramCostIdle": 0,
        "ramEfficiency": 0,
        "externalCost": 0,
        "sharedCost": 0,
        "totalCost": _round(cpu_cost + ram_cost + gpu_cost),
        "totalEfficiency": 0,
        "lbAllocations": None,
        "gpuAllocation": {"isGPUShared": False, "gpuUsageAverage": None, "gpuRequestAverage": rate(gpu)}
        if gpu
        else None,
    }


def _idle(used: list[Row], nodes: list[Obj], start: float, end: float, cluster: str, price: dict[str, float]) -> Obj:
    """What the nodes cost beyond what was allocated, with OpenCost's own count of cards."""
    hours = (end - start) / 3600
    row = Row(start, end)
    for node in nodes:
        cpu, ram, gpu = _capacity(node)
        row.cpu_hours += cpu * hours
        row.ram_hours += ram * hours
        row.gpu_hours += gpu * hours
    for other in used:
        row.cpu_hours -= other.cpu_hours
        row.ram_hours -= other.ram_hours
        row.gpu_hours -= other.gpu_hours
    line = _costs(row, (start, end), price)
    line |= {"gpuHours": 0, "gpuCount": 0, "gpuAllocation": None}
    return {"name": "__idle__", "properties": {"cluster": cluster}, **line}


def _capacity(node: Obj) -> tuple[float, float, float]:
    """Cores, bytes and cards of a node as OpenCost counts them: a node with cards but none to give whole counts 1."""
    capacity = node["status"].get("capacity") or {}
    gpu = float(quantity.parse(capacity.get("nvidia.com/gpu", "0")))
    if not gpu and "nvidia.com/gpu.count" in labels_of(node):
        gpu = 1.0
    return float(quantity.parse(capacity.get("cpu", "0"))), float(quantity.parse(capacity.get("memory", "0"))), gpu


def assets(nodes: list[Obj], start: float, end: float, cluster: str, prices: dict[str, float]) -> Obj:
    """The map of `/assets`."""
    price = {**PRICES, **prices}
    hours = (end - start) / 3600
    out: Obj = {}
    for node in sorted(nodes, key=name_of):
        cpu, ram, gpu = _capacity(node)
        costs = (cpu * hours * price["cpu"], ram / GIB * hours * price["ram"], gpu * hours * price["gpu"])
        window = {"start": rfc3339(start), "end": rfc3339(end)}
        out[f"custom/__undefined__/__undefined__/Compute/{cluster}/Node/Kubernetes/__undefined__/{name_of(node)}"] = {
            "type": "Node",
            "properties": {
                "category": "Compute",
                "provider": "custom",
                "service": "Kubernetes",
                "cluster": cluster,
                "name": name_of(node),
            },
            "labels": {_prometheus(key): value for key, value in sorted(labels_of(node).items())},
            "window": window,
            "start": window["start"],
            "end": window["end"],
            "minutes": (end - start) / 60,
            "nodeType": labels_of(node).get("node.kubernetes.io/instance-type", ""),
            "cpuCores": cpu,
            "ramBytes": ram,
            "cpuCoreHours": cpu * hours,
            "ramByteHours": ram * hours,
            "GPUHours": round(gpu * hours, 6),
            "cpuBreakdown": {"idle": 1, "other": 0, "system": 0, "user": 0},
            "ramBreakdown": {"idle": 1, "other": 0, "system": 0, "user": 0},
            "preemptible": 0.0,
            "discount": 0.0,
            "cpuCost": round(costs[0], 6),
            "gpuCost": round(costs[2], 6),
            "gpuCount": gpu,
            "ramCost": round(costs[1], 6),
            "adjustment": 0.0,
            "overhead": {"CpuOverheadFraction": 0, "RamOverheadFraction": 0, "OverheadCostFraction": 0},
            "totalCost": round(sum(costs), 6),
        }
    return out


def _round(value: float) -> float | int:
    """Five decimals, whole numbers without a point, as OpenCost writes them."""
    rounded = round(value, 5)
    return int(rounded) if rounded == int(rounded) else rounded
