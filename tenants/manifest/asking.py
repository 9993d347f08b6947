"""A manifest's engines as the scheduler's request: devices, shares, CPU and memory of each pod."""

from __future__ import annotations

from infra.placement.model import DeviceRequest, EngineSpec, HamiShare, MemberSpec, MigShare
from infra.placement.model import Role as PlacementRole
from infra.placement.model import Toleration as PlacementToleration
from infra.quantity import MIB, parse_quantity, whole
from infra.shares import PARTS
from tenants.manifest.tree import Container, DeviceAsk, Manifest, Member, Role, Share

# Requested of the node for each whole card, and in proportion for a part: without requests a pod would be
# BestEffort, the first to be killed; larger ones would strand cards on ordinary machines (12 CPUs, 64 GiB a card).
CPU_MILLIS_PER_CARD = 4_000
MEMORY_BYTES_PER_CARD = 16 * 1024**3
LEAST_CPU_MILLIS = 500
LEAST_MEMORY_BYTES = 2 * 1024**3
SIDECAR_CPU_MILLIS = 100
SIDECAR_MEMORY_BYTES = 128 * 1024**2
UNKNOWN_PART_PERCENT = 25


def engine_specs(manifest: Manifest) -> tuple[EngineSpec, ...]:
    """What the scheduler has to find a place for, per replica."""
    return tuple(
        EngineSpec(engine.name, tuple(_member(member) for member in engine.members), engine.copies)
        for engine in manifest.engines
    )


def tolerations(manifest: Manifest) -> tuple[PlacementToleration, ...]:
    """The manifest's tolerations of clusters' taints."""
    return tuple(PlacementToleration(t.key, t.operator, t.value, t.effect) for t in manifest.tolerations)


def container_requests(container: Container, devices: tuple[DeviceAsk, ...]) -> tuple[int, int]:
    """(CPU in millicores, memory in bytes) that a container requests: stated, else by its limit, else a default.

    ``devices`` are the asks of its member; only the engine's container holds devices.
    """
    engine = container.name == "engine"
    percent = sum(ask.count * share_percent(ask.share) for ask in devices) if engine else 0
    cpu = max(LEAST_CPU_MILLIS, CPU_MILLIS_PER_CARD * percent // 100) if engine else SIDECAR_CPU_MILLIS
    memory = max(LEAST_MEMORY_BYTES, MEMORY_BYTES_PER_CARD * percent // 100) if engine else SIDECAR_MEMORY_BYTES
    stated = dict(container.limits) | dict(container.requests)
    if "cpu" in stated:
        cpu = whole(parse_quantity(stated["cpu"]) * 1000)
    if "memory" in stated:
        memory = whole(parse_quantity(stated["memory"]))
    return cpu, memory


def share_percent(share: Share | None) -> int:
    """Roughly how much of a card, for defaults of CPU and memory only."""
    if share is None:
        return 100
    if share.profile in PARTS:
        return PARTS[share.profile].cores
    if share.profile:
        return -(-int(share.profile.partition("g")[0]) * 100 // 7)
    if share.memory.endswith("%"):
        return int(share.memory[:-1])
    return share.cores or UNKNOWN_PART_PERCENT


def _member(member: Member) -> MemberSpec:
    requests = [container_requests(container, member.devices) for container in member.template.containers]
    return MemberSpec(
        role=PlacementRole(member.role.value),
        devices=tuple(_device(ask) for ask in member.devices),
        pods=member.nodes if member.role is Role.WORKER else 1,
        cpu_millis=sum(cpu for cpu, _ in requests),
        memory_bytes=sum(memory for _, memory in requests),
        distinct_nodes=member.role is not Role.STANDALONE,
    )


def _device(ask: DeviceAsk) -> DeviceRequest:
    return DeviceRequest(ask.name, ask.count, ask.selectors, _share(ask.share))


def _share(share: Share | None) -> HamiShare | MigShare | None:
    if share is None:
        return None
    if share.profile in PARTS:
        part = PARTS[share.profile]
        return HamiShare(memory_percent=part.percent, cores=part.cores)
    if share.profile:
        return MigShare(share.profile)
    if share.memory.endswith("%"):
        percent = int(share.memory[:-1])
        # Cores that are not set may be uncapped by HAMi; our own manifests never leave them so.
        return HamiShare(memory_percent=percent, cores=share.cores or percent)
    return HamiShare(memory_mib=whole(parse_quantity(share.memory) / MIB), cores=share.cores or 0)
