"""What a pod asks of a node. Pure: no Django, no cluster.

Sources: the device plugins' resource names, Kubernetes `Pod.spec` and its rule for init containers and sidecars
(KEP-753). Which cards a pod was given by HAMi: see `infra.hami_record`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
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

_OTHER_VENDORS = re.compile(
    r"amd\.com/gpu|gpu\.intel\.com/.+|huawei\.com/Ascend[^-]+|cambricon\.com/.*mlu|hygon\.com/dcunum"
    r"|metax-tech\.com/s?gpu|mthreads\.com/vgpu|enflame\.com/(?:gcu|drs-gcu)|aws\.amazon\.com/neuron(?:core)?"
    r"|google\.com/tpu|habana\.ai/gaudi|birentech\.com/gpu"
)

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


def mig_resource(profile: str) -> str:
    """`nvidia.com/mig-1g.10gb.me` of `1g.10gb+me`: the device plugin writes `+` as `.`."""
    return f"{MIG_PREFIX}{profile.replace('+', '.')}"


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
