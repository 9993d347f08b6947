"""OpenCost's ``/allocation/compute`` (also ``/allocation``) and ``/assets``, read into plain rows. Pure: no Django.

Every answer is for exactly the one window that was asked for, and is taken whole or refused whole: half of an hour's
cost would look like a cheap hour. ``{}``, ``null`` and a missing ``data`` mean that OpenCost has no data.
Fields: OpenCost core/pkg/opencost/allocation_json.go and asset_json.go; each figure is rounded to five decimals
(assets: six), times are cut to the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from billing.opencost.bodies import Obj, Refused, amount, data_of, figure, interval
from portal.kernel.clock import Interval

IDLE, UNALLOCATED, UNMOUNTED, SHARED, EXTERNAL = SPECIAL = (
    "__idle__", "__unallocated__", "__unmounted__", "__shared__", "__external__",
)  # fmt: skip
"""Rows that are no namespace: what nobody used, what has no value of the aggregate, volumes without a pod."""
MOST_ROWS = 200_000
LONGEST_NAMESPACE, LONGEST_POD = 63, 253
ROUNDING = Decimal("0.00001")
"""Figures of allocations are whole multiples of this."""


@dataclass(frozen=True, slots=True)
class Row:
    """A namespace (``pod`` empty) or a pod in the window. Hours of cards and cores, byte-hours, and costs.

    ``special``: the name of a row that is no namespace, else empty. ``gpu_hours`` counts what OpenCost takes for cards.
    ``clamped``: it claimed time outside the window. ``minutes`` is 0 where only one sample saw it.
    """

    namespace: str
    pod: str
    special: str
    lasted: Interval
    minutes: Decimal
    clamped: bool
    gpu_hours: Decimal
    gpu_cost: Decimal
    cpu_core_hours: Decimal
    cpu_cost: Decimal
    ram_byte_hours: Decimal
    ram_cost: Decimal
    pv_byte_hours: Decimal
    pv_cost: Decimal
    network_cost: Decimal
    lb_cost: Decimal

    @property
    def total_cost(self) -> Decimal:
        """All of its costs."""
        return self.gpu_cost + self.cpu_cost + self.ram_cost + self.pv_cost + self.network_cost + self.lb_cost


@dataclass(frozen=True, slots=True)
class Allocation:
    """An answer of ``/allocation/compute``, sorted by namespace and pod. ``empty``: OpenCost has no data."""

    window: Interval
    rows: tuple[Row, ...]

    @property
    def empty(self) -> bool:
        """No row at all: nothing ran, or nothing was recorded."""
        return not self.rows


def read_allocation(
    status: int, body: bytes, window: Interval, aggregate: Sequence[str] = ("namespace", "pod")
) -> Allocation:
    """The rows of an answer.

    Args:
        status: of HTTP.
        window: what was asked for.
        aggregate: what was asked for: ``("namespace",)`` or ``("namespace", "pod")``.

    Raises:
        Refused: with the reason as a sentence.
    """
    data = data_of(status, body)
    sets = [] if data is None else data if isinstance(data, list) else [data]
    filled = [one for one in sets if one]
    if not all(isinstance(one, dict) for one in filled):
        raise Refused("data of OpenCost's answer is no list of maps.")
    if len(filled) > 1:
        raise Refused(f"One window was asked for, and OpenCost answered with {len(filled)} sets.")
    found: dict[str, Any] = filled[0] if filled else {}
    if len(found) > MOST_ROWS:
        raise Refused(f"OpenCost answered with {len(found)} rows; more than {MOST_ROWS} are not read.", retry=False)
    rows = [_row(name, value, window, aggregate) for name, value in found.items()]
    return Allocation(window, tuple(sorted(rows, key=lambda row: (row.special, row.namespace, row.pod))))


def _row(name: str, row: Any, window: Interval, aggregate: Sequence[str]) -> Row:
    if not name:
        raise Refused(
            f"The answer has a row without a name: OpenCost does not know the aggregate {','.join(aggregate)}, and "
            f"put everything into one row.",
            retry=False,
        )
    if not isinstance(row, dict):
        raise Refused(f"{name} is no map.")
    special = next((part for part in name.split("/") if part in SPECIAL), "")
    namespace, pod = ("", "") if special else _names(name, row, aggregate)
    minutes = row.get("minutes")
    if isinstance(minutes, Decimal) and minutes < 0:
        raise Refused(f"{name} lasted {minutes:f} minutes: less than none.")
    lasted, clamped = interval(row, name, window)
    minutes = figure(row, "minutes", name)
    none = minutes == 0
    return Row(
        namespace=namespace,
        pod=pod,
        special=special,
        lasted=lasted,
        minutes=minutes,
        clamped=clamped,
        gpu_hours=figure(row, "gpuHours", name, empty=none),
        gpu_cost=amount(row, "gpuCost", name, empty=none),
        cpu_core_hours=figure(row, "cpuCoreHours", name, empty=none),
        cpu_cost=amount(row, "cpuCost", name, empty=none),
        ram_byte_hours=figure(row, "ramByteHours", name, empty=none),
        ram_cost=amount(row, "ramCost", name, empty=none),
        pv_byte_hours=figure(row, "pvByteHours", name, empty=none),
        pv_cost=amount(row, "pvCost", name, empty=none),
        network_cost=amount(row, "networkCost", name, empty=none),
        lb_cost=amount(row, "loadBalancerCost", name, empty=none),
    )


def _names(name: str, row: Obj, aggregate: Sequence[str]) -> tuple[str, str]:
    """Namespace and pod of a row; its key must be made of them, or something else was aggregated."""
    properties = row.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    parts = name.split("/")
    found = dict(zip(aggregate, parts, strict=False))
    own = all(":" not in what and properties.get(what, part) == part for what, part in found.items())
    if len(parts) != len(aggregate) or not own or not properties.get("namespace"):
        raise Refused(f"{name} is no {' and '.join(aggregate)}: OpenCost aggregated by something else.", retry=False)
    namespace, pod = str(properties["namespace"]), found.get("pod", "")
    if len(namespace) > LONGEST_NAMESPACE or len(pod) > LONGEST_POD:
        raise Refused(f"{name[:LONGEST_POD]} is a longer name than Kubernetes has.", retry=False)
    return namespace, pod


def by_namespace(rows: Iterable[Row]) -> list[Row]:
    """Rows of pods added up to one a namespace (and one a special name); it lasted from the first to the last."""
    together: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        together.setdefault((row.special, row.namespace), []).append(row)
    found = []
    for (special, namespace), parts in sorted(together.items()):
        sums = {name: sum((getattr(part, name) for part in parts), Decimal(0)) for name in FIGURES}
        lasted = Interval(min(part.lasted.start for part in parts), max(part.lasted.end for part in parts))
        minutes = Decimal(lasted.ms) / 60_000
        found.append(
            Row(namespace, "", special, lasted, minutes, any(part.clamped for part in parts), **sums)
        )  # fmt: skip
    return found


FIGURES = (
    "gpu_hours", "gpu_cost", "cpu_core_hours", "cpu_cost", "ram_byte_hours", "ram_cost", "pv_byte_hours", "pv_cost",
    "network_cost", "lb_cost",
)  # fmt: skip


# --- assets ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeAsset:
    """A node in the window: what it had (core-hours, byte-hours, hours of cards) and what that costs."""

    name: str
    gpu_hours: Decimal
    gpu_cost: Decimal
    cpu_core_hours: Decimal
    cpu_cost: Decimal
    ram_byte_hours: Decimal
    ram_cost: Decimal


@dataclass(frozen=True, slots=True)
class Assets:
    """An answer of ``/assets``: its nodes by name, and how many assets of other kinds (disks …) there were."""

    window: Interval
    nodes: tuple[NodeAsset, ...]
    others: int = 0


def read_assets(status: int, body: bytes, window: Interval) -> Assets:
    """The nodes of an answer. Older builds answer with a list of maps, newer ones with one map.

    Raises:
        Refused: with the reason as a sentence.
    """
    data = data_of(status, body)
    sets = [] if data is None else data if isinstance(data, list) else [data]
    filled = [one for one in sets if one]
    if not all(isinstance(one, dict) for one in filled) or len(filled) > 1:
        raise Refused("data of OpenCost's assets is not one map.")
    found: dict[str, Any] = filled[0] if filled else {}
    if len(found) > MOST_ROWS:
        raise Refused(f"OpenCost answered with {len(found)} assets; more than {MOST_ROWS} are not read.", retry=False)
    nodes, others = [], 0
    for key, asset in found.items():
        if not isinstance(asset, dict) or not asset.get("type"):
            raise Refused(f"Asset {key} has no type.")
        interval(asset, f"asset {key}", window)
        if asset["type"] == "Node":
            nodes.append(_node(key, asset))
        else:
            others += 1
    return Assets(window, tuple(sorted(nodes, key=lambda node: node.name)), others)


def _node(key: str, asset: Obj) -> NodeAsset:
    properties = asset.get("properties")
    name = properties.get("name") if isinstance(properties, dict) else None
    if not isinstance(name, str) or not name:
        raise Refused(f"Asset {key} is a node without a name.")
    return NodeAsset(
        name=name,
        gpu_hours=figure(asset, "GPUHours", name),
        gpu_cost=figure(asset, "gpuCost", name),
        cpu_core_hours=figure(asset, "cpuCoreHours", name),
        cpu_cost=figure(asset, "cpuCost", name),
        ram_byte_hours=figure(asset, "ramByteHours", name),
        ram_cost=figure(asset, "ramCost", name),
    )


def read_version(status: int, body: bytes) -> str:
    """The version in an answer of ``/installInfo``; empty where this build does not tell. Never raises."""
    try:
        data = data_of(status, body)
    except Refused:
        return ""
    version = data.get("version") if isinstance(data, dict) else None
    return version[:60] if isinstance(version, str) else ""
