"""What a Node object tells of its health: conditions of known tools with their polarity, HAMi's marks on cards,
devices that are no longer handed out, and a silent kubelet.

Sources of the names: node-problem-detector (config/*.json), AKS and EKS node agents, Nebius, NVSentinel
(health-monitors). A condition that is in no list is left alone: most say nothing of cards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from infra.health.classes import FaultClass
from portal.kernel.clock import parse_rfc3339


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that lasts, as a node tells it. ``device``: the card's UUID, empty where none is named.

    ``since``: when it began by the cluster's own word; None: it says nothing, so it is from when it was seen.
    """

    kind: str
    code: str
    fault_class: FaultClass
    device: str = ""
    since: datetime | None = None
    message: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it the same fault in the next sight."""
        return self.device, self.kind, self.code


_TRUE_IS_FAULT = {
    # NVSentinel
    "GpuMemWatch": FaultClass.MEMORY,
    "GpuThermalWatch": FaultClass.WATCH,
    "GpuPcieWatch": FaultClass.NODE,
    "GpuPowerWatch": FaultClass.WATCH,
    "GpuInforomWatch": FaultClass.WATCH,
    "GpuSmWatch": FaultClass.RESET,
    "GpuNvlinkWatch": FaultClass.LINK,
    "GpuMcuWatch": FaultClass.RESET,
    "GpuPmuWatch": FaultClass.RESET,
    "GpuDriverWatch": FaultClass.RESET,
    "SysLogsXIDError": FaultClass.UNKNOWN,  # which XID is in its text only
    "SysLogsSXIDError": FaultClass.LINK,
    "SysLogsGPUFallenOff": FaultClass.NODE,
    "NVSwitchFatalError": FaultClass.LINK,
    "GpuDcgmConnectivityFailure": FaultClass.WATCH,
    "CSPMaintenance": FaultClass.INFO,
    # AKS: how many cards are missing is told by what is allocatable
    "GPUMissing": FaultClass.WATCH,
    "GPUXIDErrors": FaultClass.UNKNOWN,
    "NVLinkStatusInactive": FaultClass.LINK,
    # Nebius
    "NebiusGPUError": FaultClass.NODE,
    # node-problem-detector
    "KernelDeadlock": FaultClass.NODE,
    "ReadonlyFilesystem": FaultClass.NODE,
    "XfsShutdown": FaultClass.NODE,
    "CperHardwareErrorFatal": FaultClass.NODE,
}
_FALSE_IS_FAULT = {"AcceleratedHardwareReady": FaultClass.NODE}  # EKS
CONDITIONS: Mapping[str, tuple[str, FaultClass]] = {
    **{name: ("True", fault_class) for name, fault_class in _TRUE_IS_FAULT.items()},
    **{name: ("False", fault_class) for name, fault_class in _FALSE_IS_FAULT.items()},
}
"""Type of a condition → the status that is a fault, and its class. ``Unknown`` is no fault: nothing is known then."""


def node_findings(
    conditions: Iterable[Mapping[str, Any]], *, unhealthy: Iterable[str] = (), held_back: Iterable[str] = (),
    missing: str = "", lost_since: datetime | None = None, lost: bool = False,
) -> tuple[Finding, ...]:  # fmt: skip
    """All faults that a node tells of now, sorted.

    Args:
        unhealthy, held_back: UUIDs that HAMi's register calls unhealthy, and that are cordoned in HAMi.
        missing: a sentence, where fewer cards are allocatable than there are; empty: none.
        lost: Ready is Unknown.
    """
    found = []
    for condition in conditions:
        kind = str(condition.get("type"))
        polarity = CONDITIONS.get(kind)
        if polarity is None or str(condition.get("status")) != polarity[0]:
            continue
        since = condition.get("lastTransitionTime")
        text = str(condition.get("message") or condition.get("reason") or "")
        found.append(
            Finding("condition", kind, polarity[1], since=parse_rfc3339(since) if since else None, message=text[:500])
        )
    found += [
        Finding("hami", "unhealthy", FaultClass.UNKNOWN, uuid, message="HAMi's register calls the card unhealthy.")
        for uuid in unhealthy
    ]
    found += [Finding("hami", "cordoned", FaultClass.INFO, uuid, message="Cordoned in HAMi.") for uuid in held_back]
    if missing:
        found.append(Finding("allocatable", "missing", FaultClass.UNKNOWN, message=missing))
    if lost:
        found.append(Finding("heartbeat", "NodeLost", FaultClass.NODE, since=lost_since, message="Ready is Unknown."))
    return tuple(sorted(found, key=lambda one: one.key))
