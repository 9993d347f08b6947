"""What a pod asks of a node, and which cards HAMi says it was given. Pure: no Django, no cluster.

Sources of the formats: Kubernetes `Pod.spec` and its rule for init containers and sidecars (KEP-753), HAMi's
annotation `hami.io/vgpu-devices-allocated` (docs/develop/protocol.md of HAMi).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TypeVar

GPU = "nvidia.com/gpu"
GPU_SHARED = "nvidia.com/gpu.shared"
GPU_MEMORY = "nvidia.com/gpumem"
GPU_MEMORY_PERCENT = "nvidia.com/gpumem-percentage"
GPU_CORES = "nvidia.com/gpucores"
MIG_PREFIX = "nvidia.com/mig-"
HAMI_SCHEDULER = "hami-scheduler"
HAMI_ALLOCATED = "hami.io/vgpu-devices-allocated"
HAMI_PHASE = "hami.io/bind-phase"

_OTHER_VENDORS = re.compile(
    r"amd\.com/gpu|gpu\.intel\.com/.+|huawei\.com/Ascend[^-]+|cambricon\.com/.*mlu|hygon\.com/dcunum"
    r"|metax-tech\.com/s?gpu|mthreads\.com/vgpu|enflame\.com/(?:gcu|drs-gcu)|aws\.amazon\.com/neuron(?:core)?"
    r"|google\.com/tpu|habana\.ai/gaudi|birentech\.com/gpu"
)
_SLOT = re.compile(r"(.+)\[([^\]]*)\]")

K = TypeVar("K", bound=Hashable)


class ContainerKind(StrEnum):
    """How a container takes part: `init` runs before the others, `sidecar` is an init container that
    stays."""

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"


def is_gpu(resource: str) -> bool:
    """Whether a resource name stands for accelerators, of any vendor. NVIDIA's alone are metered into
    money."""
    return resource in (GPU, GPU_SHARED, GPU_MEMORY, GPU_MEMORY_PERCENT, GPU_CORES) or (
        resource.startswith(MIG_PREFIX) or _OTHER_VENDORS.fullmatch(resource) is not None
    )


def mig_profile(resource: str) -> str:
    """`1g.10gb` of `nvidia.com/mig-1g.10gb`; empty for any other resource."""
    return resource.removeprefix(MIG_PREFIX) if resource.startswith(MIG_PREFIX) else ""


def reserved(containers: Iterable[tuple[ContainerKind, Mapping[K, Fraction]]]) -> dict[K, Fraction]:
    """What Kubernetes keeps for a pod all its life, per resource.

    The larger of (Σ containers + Σ sidecars) and (each ordinary init container + the sidecars started before
    it). `containers` comes in the order of the spec, init containers first.
    """
    peak: dict[K, Fraction] = {}
    sidecars: dict[K, Fraction] = {}
    mains: dict[K, Fraction] = {}
    for kind, amounts in containers:
        if kind is ContainerKind.INIT:
            _raise_to(peak, _sum(sidecars, amounts))
        elif kind is ContainerKind.SIDECAR:
            sidecars = _sum(sidecars, amounts)
        else:
            mains = _sum(mains, amounts)
    _raise_to(peak, _sum(sidecars, mains))
    return peak


def _sum(left: Mapping[K, Fraction], right: Mapping[K, Fraction]) -> dict[K, Fraction]:
    return {**left, **{key: left.get(key, Fraction(0)) + amount for key, amount in right.items()}}


def _raise_to(peak: dict[K, Fraction], amounts: Mapping[K, Fraction]) -> None:
    for key, amount in amounts.items():
        peak[key] = max(peak.get(key, amount), amount)


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """A part of one card: memory in MiB, cores in percent of the card (0: HAMi set no cap).

    `slot` is HAMi's MIG slot (`1-0`) where the card is cut up, otherwise empty.
    """

    uuid: str
    vendor: str
    memory_mib: int
    cores: int
    slot: str = ""


def parse_hami_allocated(value: str) -> tuple[tuple[DeviceGrant, ...], ...]:
    """HAMi's record of the cards it gave, per container (init containers first).

    `UUID,TYPE,MiB,cores` ended by `:` for each device, `;` ends a container. An empty entry is a container
    without a card; old releases wrote `,,0,0:` for it. Raises ValueError naming the part that is malformed or
    out of range.
    """
    entries = value.split(";")
    if entries and not entries[-1].strip():
        entries.pop()
    return tuple(
        tuple(grant for part in entry.split(":") if part.strip() for grant in _grant(part)) for entry in entries
    )


def _grant(part: str) -> Sequence[DeviceGrant]:
    fields = [field.strip() for field in part.split(",")]
    if len(fields) < 4:
        raise ValueError(f"HAMi device {part!r} has {len(fields)} fields, expected UUID,TYPE,MiB,cores")
    uuid, vendor, memory, cores = fields[:4]
    if not uuid:
        return ()
    if not (memory + cores).isascii() or not memory.isdecimal() or not cores.isdecimal():
        raise ValueError(f"HAMi device {part!r}: memory and cores are whole numbers, not {memory!r} and {cores!r}")
    # HAMi#1181: an underflow once wrote 17592186044134 MiB.
    if int(memory) > 1 << 24 or int(cores) > 100:
        raise ValueError(f"HAMi device {part!r}: {memory} MiB and {cores} % are out of range for one card")
    slot = _SLOT.fullmatch(uuid)
    card, name = (slot.group(1), slot.group(2)) if slot else (uuid, "")
    return (DeviceGrant(card, vendor, int(memory), int(cores), name),)
