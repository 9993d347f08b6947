"""dcgm-exporter's text for the cards of a cluster.

Format and label order: NVIDIA/dcgm-exporter, etc/default-counters.csv and internal/pkg/rendermetrics. Whole cards and
MIG instances carry the pod that holds them; cards shared by HAMi never do, for HAMi's device ids are not the card's;
the rows of MIG instances repeat power and energy of their card, and have no GPU_UTIL."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from simulator.controllers.hami import ALLOCATED, parse_allocated
from simulator.controllers.life import PREFIX
from simulator.devices import NodeDevices
from simulator.kinds import Obj
from simulator.meter import Meter
from simulator.nodes import Card
from simulator.objects import annotations_of, name_of, namespace_of, uid_of
from simulator.resources import holds

DRIVER = "570.148.08"

_HELP = {
    "DCGM_FI_DEV_SM_CLOCK": ("SM clock frequency (in MHz).", "gauge"),
    "DCGM_FI_DEV_GPU_TEMP": ("GPU temperature (in C).", "gauge"),
    "DCGM_FI_DEV_POWER_USAGE": ("Power draw (in W).", "gauge"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("Total energy consumption since boot (in mJ).", "counter"),
    "DCGM_FI_DEV_GPU_UTIL": ("GPU utilization (in %).", "gauge"),
    "DCGM_FI_DEV_XID_ERRORS": ("Value of the last XID error encountered.", "gauge"),
    "DCGM_FI_DEV_FB_FREE": ("Framebuffer memory free (in MiB).", "gauge"),
    "DCGM_FI_DEV_FB_USED": ("Framebuffer memory used (in MiB).", "gauge"),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("Ratio of time the graphics engine is active.", "gauge"),
}


class Pods(Protocol):
    """Pods by the node that they are bound to."""

    def on_node(self, node: str) -> list[Obj]:
        """The pods bound to a node."""


class Exported(Protocol):
    """What is told of a cluster: a simulated one, or one whose pods are followed (`controlplane.exporter`)."""

    @property
    def devices(self) -> Mapping[str, NodeDevices]:
        """Node name → its cards and who holds them."""

    @property
    def broken(self) -> Mapping[str, str]:
        """Node name → `lost`: its exporter is silent."""

    @property
    def unmapped(self) -> AbstractSet[str]:
        """Nodes whose exporter does not reach the kubelet: it tells of no pod, as if all cards were free."""

    @property
    def xids(self) -> Mapping[str, int]:
        """Card → its last XID error."""

    @property
    def clock(self) -> Callable[[], float]:
        """Unix seconds."""

    @property
    def pods(self) -> Pods:
        """Its pods."""


@dataclass(frozen=True)
class Row:
    """One card or MIG instance as it is now. Utilisation in percent, memory in MiB."""

    card: Card
    instance: int | None
    holder: tuple[str, str, str] | None
    """(container, namespace, pod), where the exporter can tell."""
    util: float
    used: int
    total: int


def _share(text: str) -> float:
    """A number in [0, 1) that follows from the text."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32


def busy(pod: Obj, now: float) -> float:
    """How busy a running pod keeps what it holds, in percent: as annotated, or made up from its uid and the time."""
    if pod["status"].get("phase") != "Running":
        return 0.0
    given = annotations_of(pod).get(PREFIX + "gpu-util", "")
    try:
        return min(max(float(given), 0.0), 100.0)
    except ValueError:
        pass
    share = _share(uid_of(pod))
    wave = math.sin(now / 300.0 + share * 6.28) * 12.0 + math.sin(now / 47.0 + share * 40.0) * 4.0
    return min(max(45.0 + 40.0 * share + wave, 1.0), 99.0)


def rows_of(cluster: Exported, devices: NodeDevices, now: float) -> list[Row]:
    """The cards of a node."""
    pods = {uid_of(pod): pod for pod in cluster.pods.on_node(devices.cards[0].node)} if devices.cards else {}
    holders = {
        (held.uuid, held.instance): (held.container, pods[uid])
        for uid, rows in devices.held.items()
        if uid in pods
        for held in rows
    }
    shared: dict[str, list[tuple[Obj, int, int]]] = {}
    if devices.pool.mode == "hami":
        for pod in pods.values():
            if holds(pod):
                for uuid, memory, cores in parse_allocated(annotations_of(pod).get(ALLOCATED, "")):
                    shared.setdefault(uuid, []).append((pod, memory, cores))
    out = []
    for card in devices.cards:
        if card.uuid in devices.lost:
            continue
        gpu = card.pool.gpu
        assert gpu
        if card.instances:
            total = card.pool.mig.memory
            out += [_row(card, i, holders.get((card.uuid, i)), total, now) for i in card.instances]
        elif devices.pool.mode == "hami":
            parts = shared.get(card.uuid, [])
            util = sum(busy(pod, now) * (cores or 100) / 100 for pod, _, cores in parts)
            running = [(pod, memory) for pod, memory, _ in parts if pod["status"].get("phase") == "Running"]
            used = sum(int(memory * (0.6 + 0.35 * _share(uid_of(pod)))) for pod, memory in running)
            out.append(Row(card, None, None, min(util, 100.0), used + 4, gpu.memory))
        else:
            out.append(_row(card, None, holders.get((card.uuid, None)), gpu.memory, now))
    return out


def _row(card: Card, instance: int | None, holder: tuple[str, Obj] | None, total: int, now: float) -> Row:
    if holder is None:
        return Row(card, instance, None, 0.0, 4, total)
    container, pod = holder
    util = busy(pod, now)
    running = pod["status"].get("phase") == "Running"
    used = int(total * (0.55 + 0.38 * _share(uid_of(pod)))) if running else 4
    return Row(card, instance, (container, namespace_of(pod), name_of(pod)), util, used, total)


def exporting(cluster: Exported) -> list[str]:
    """The nodes whose exporter answers: they have cards and are not lost."""
    return [name for name, devices in cluster.devices.items() if devices.cards and cluster.broken.get(name) != "lost"]


def sample(cluster: Exported, meter: Meter, nodes: Iterable[str], now: float) -> list[tuple[Row, float, int]]:
    """(row, watts, energy in mJ) of each card and instance on the nodes; the energy counters go on."""
    out = []
    for node in nodes:
        rows = rows_of(cluster, cluster.devices[node], now)
        cards: dict[str, list[Row]] = {}
        for row in rows:
            cards.setdefault(row.card.uuid, []).append(row)
        for uuid, parts in cards.items():
            gpu = parts[0].card.pool.gpu
            assert gpu
            util = sum(part.util for part in parts) / len(parts)
            watts = gpu.idle_watts + (gpu.max_watts - gpu.idle_watts) * util / 100 * 0.85
            energy = meter.add(uuid, watts, now)
            out += [(part, watts, energy) for part in parts]
    return out


def text(cluster: Exported, meter: Meter, nodes: list[str]) -> str:
    """The exposition of those nodes' exporters."""
    values: dict[str, list[str]] = {name: [] for name in _HELP}
    for row, watts, energy in sample(cluster, meter, nodes, cluster.clock()):
        labels = _labels(row, mapped=row.card.node not in cluster.unmapped)

        def put(name: str, value: str, labels: str = labels) -> None:
            values[name].append(f"{name}{{{labels}}} {value}")

        put("DCGM_FI_DEV_SM_CLOCK", "1980" if row.util else "345")
        put("DCGM_FI_DEV_GPU_TEMP", str(int(32 + row.util * 0.4)))
        put("DCGM_FI_DEV_POWER_USAGE", f"{watts:.6f}")
        put("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", str(energy))
        if row.instance is None:
            put("DCGM_FI_DEV_GPU_UTIL", str(int(row.util)))
        put("DCGM_FI_DEV_XID_ERRORS", str(cluster.xids.get(row.card.uuid, 0)))
        put("DCGM_FI_DEV_FB_FREE", str(row.total - row.used))
        put("DCGM_FI_DEV_FB_USED", str(row.used))
        put("DCGM_FI_PROF_GR_ENGINE_ACTIVE", f"{row.util / 100:.6f}")
    lines = []
    for name, (help_text, kind) in _HELP.items():
        if values[name]:
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", *values[name]]
    return "\n".join(lines) + "\n"


def _labels(row: Row, *, mapped: bool) -> str:
    card = row.card
    gpu = card.pool.gpu
    assert gpu
    pairs = [
        ("gpu", str(card.index)),
        ("UUID", card.uuid),
        ("pci_bus_id", card.bus),
        ("device", f"nvidia{card.index}"),
        ("modelName", gpu.model),
    ]
    if row.instance is not None:
        pairs += [("GPU_I_PROFILE", card.pool.mig.profile), ("GPU_I_ID", str(row.instance))]
    pairs += [("Hostname", card.node), ("DCGM_FI_DRIVER_VERSION", DRIVER)]
    if row.holder and mapped:
        container, namespace, pod = row.holder
        pairs += [("container", container), ("namespace", namespace), ("pod", pod)]
    return ",".join(f'{key}="{value}"' for key, value in pairs)
