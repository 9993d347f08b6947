"""What a pod holds of the cards of its node: whole cards, HAMi shares, MIG slices, with the share of a card
of each.

Pure. Rules: a share is max(memory ÷ physical memory of the card, cores ÷ 100), between a millionth and a
whole card; a MIG slice is its compute slices ÷ those of the card. Shares are exact fractions;
`share_millionths` is floored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from infra.evidence import ContainerEvidence, PodEvidence
from infra.hami_record import HamiGrant, HamiRecord, believed_record
from infra.pod_devices import (
    GPU,
    GPU_CORES,
    GPU_MEMORY,
    GPU_MEMORY_PERCENT,
    GPU_SHARED,
    MIG_PREFIX,
    ContainerKind,
    mig_profile,
    reserved,
)
from infra.quantity import MIB, whole
from infra.shares import floor_millionths, hami_share, mig_share, parse_mig
from portal.kernel.money import split_units

MOST_DEVICES = 4_096
MOST_AMOUNT = 10**12
MOST_CORES = 1_000_000
"""Whoever may make pods may ask for any number, and name the node: the kubelet refuses what the node has not, and the
pod is here all the same. Beyond these (devices of one resource; millicores or MiB; percent of cores) a figure is
counted as these, because one that the database does not hold would stop the metering of the whole cluster."""


class Mode(StrEnum):
    """How a card is handed out; the values of `infra.models.SharingMode`."""

    WHOLE = "whole"
    HAMI = "hami"
    MIG = "mig"
    TIMESLICE = "timeslice"


class UnknownHardwareError(Exception):
    """The share can't be computed: what is needed of the node's cards is not known. Unknown is not zero."""


@dataclass(frozen=True, slots=True)
class CardFacts:
    """A card whose identity is known. `memory_mib` is its physical memory, not what HAMi's register says it
    hands out."""

    uuid: str
    memory_mib: int


@dataclass(frozen=True, slots=True)
class NodeCards:
    """The cards of one node. `memory_mib`: physical memory of a card, None = unknown.

    `compute_slices`: MIG compute slices of a whole card (7; A30: 4). `single_profile`: set where the node
    follows MIG strategy `single`, that is where `nvidia.com/gpu` stands for a slice of this profile.
    `replicas`: pods that share a time-sliced card.
    """

    node: str
    gpu_type: str
    mode: Mode = Mode.WHOLE
    memory_mib: int | None = None
    cards: tuple[CardFacts, ...] = ()
    compute_slices: int = 7
    single_profile: str = ""
    replicas: int = 1

    def card_memory_mib(self, uuid: str = "") -> int:
        """Physical MiB of that card, or of a card of this node. Raises UnknownHardwareError where nobody
        knows."""
        known = {card.uuid: card.memory_mib for card in self.cards}
        memory = known.get(uuid) or self.memory_mib or max(known.values(), default=0)
        if not memory:
            raise UnknownHardwareError(
                f"node {self.node}: the physical memory of its cards is not known, so no HAMi share can be computed; "
                f"give the GPU type {self.gpu_type or '(none)'} its memory"
            )
        return memory


@dataclass(frozen=True, slots=True)
class Holding:
    """One device of one pod, or a part of one. Key: (pod uid, resource, ordinal); the card is bound when it
    is known.

    Requested figures: `memory_mib` and `cores` (percent) for HAMi, `slices` (compute slices) for MIG; None =
    not asked for in these terms. `share` of a card is what is charged, exact; `device_uuid` is "" while
    unknown. `doubt`: why HAMi's record of the pod's cards is not believed; the share is then what was asked for.
    `cpu_millicores` and `host_memory_mib` are its part of the pod's CPU and memory, split by share; the parts of
    a pod's devices add up to what the pod reserves.
    """

    resource: str
    ordinal: int
    mode: Mode
    gpu_type: str
    share: Fraction
    profile: str = ""
    device_uuid: str = ""
    memory_mib: int | None = None
    cores: int | None = None
    slices: int | None = None
    compute_uncapped: bool = False
    doubt: str = ""
    cpu_millicores: int = 0
    host_memory_mib: int = 0

    @property
    def share_millionths(self) -> int:
        """The share in millionths of a card, floored, at least one."""
        return floor_millionths(self.share)


def holdings(pod: PodEvidence, node: NodeCards | None) -> tuple[Holding, ...]:
    """What the pod holds of NVIDIA cards for all its life, one entry per device; other vendors' are not
    metered.

    Raises UnknownHardwareError where the cards of its node are needed for that and not known.
    """
    found = _devices(pod, node)
    weights = [holding.share for holding in found]
    if not found:
        return ()
    cpu = split_units(_amount(pod.request("cpu") * 1000), weights)
    memory = split_units(_amount(pod.request("memory") / MIB), weights)
    return tuple(
        replace(holding, cpu_millicores=millicores, host_memory_mib=mib)
        for holding, millicores, mib in zip(found, cpu, memory, strict=True)
    )


def _devices(pod: PodEvidence, node: NodeCards | None) -> list[Holding]:
    asked = [(resource, amount) for resource, amount in pod.requests if amount > 0]
    found: list[Holding] = []
    for resource, amount in asked:
        if resource.startswith(MIG_PREFIX):
            found += _slices(resource, mig_profile(resource), _number(amount), _known(pod, node))
    if node is not None and node.mode is Mode.HAMI and any(_is_hami(resource) for resource, _ in asked):
        return found + _hami(pod, node)
    for resource, amount in asked:
        if resource in (GPU, GPU_SHARED):
            found += _cards(resource, _number(amount), _known(pod, node))
    return found


def _number(amount: Fraction) -> int:
    return min(whole(amount), MOST_DEVICES)


def _amount(amount: Fraction) -> int:
    return min(whole(amount), MOST_AMOUNT)


def _known(pod: PodEvidence, node: NodeCards | None) -> NodeCards:
    if node is None:
        raise UnknownHardwareError(
            f"pod {pod.namespace}/{pod.name} holds cards of node {pod.node or '(none)'}, of which no card is known"
        )
    return node


def _is_hami(resource: str) -> bool:
    return resource in (GPU, GPU_MEMORY, GPU_MEMORY_PERCENT, GPU_CORES)


def _cards(resource: str, count: int, node: NodeCards) -> list[Holding]:
    if resource == GPU and node.single_profile:
        return _slices(resource, node.single_profile, count, node)
    if resource == GPU_SHARED or node.mode is Mode.TIMESLICE:
        share, mode = Fraction(1, max(1, node.replicas)), Mode.TIMESLICE
    else:
        share, mode = Fraction(1), Mode.WHOLE
    return [Holding(resource, ordinal, mode, node.gpu_type, share) for ordinal in range(count)]


def _slices(resource: str, profile: str, count: int, node: NodeCards) -> list[Holding]:
    slices = parse_mig(profile).compute_slices
    share = mig_share(profile, node.compute_slices)
    return [
        Holding(resource, ordinal, Mode.MIG, node.gpu_type, share, profile=profile, slices=slices)
        for ordinal in range(count)
    ]


# --- HAMi ---


@dataclass(frozen=True, slots=True)
class _Ask:
    """A part of a card: MiB and percent of its cores (None: not said), on a known card or on any."""

    memory_mib: int
    cores: int | None
    uuid: str = ""


def _hami(pod: PodEvidence, node: NodeCards) -> list[Holding]:
    """By HAMi's record where it may be believed, else by what the pod asks for, on no known card."""
    record = believed_record(pod, {card.uuid for card in node.cards})
    asks = _granted(pod, record) or _requested(pod, node)
    return [
        Holding(
            resource=GPU,
            ordinal=ordinal,
            mode=Mode.HAMI,
            gpu_type=node.gpu_type,
            share=_share(ask, node),
            device_uuid=ask.uuid,
            memory_mib=ask.memory_mib,
            cores=ask.cores,
            compute_uncapped=not ask.cores,
            doubt=record.doubt,
        )
        for ordinal, ask in enumerate(asks)
    ]


def _share(ask: _Ask, node: NodeCards) -> Fraction:
    return hami_share(ask.memory_mib, ask.cores, node.card_memory_mib(ask.uuid))


def _granted(pod: PodEvidence, record: HamiRecord) -> list[_Ask]:
    """What HAMi's record says, card by card; empty where it says nothing."""
    entries = record.containers
    kinds = [container.kind for container in pod.containers]
    kinds += [ContainerKind.MAIN] * (len(entries) - len(kinds))
    memory = reserved((kind, _per_card(entry, "memory_mib")) for kind, entry in zip(kinds, entries, strict=False))
    cores = reserved((kind, _per_card(entry, "cores")) for kind, entry in zip(kinds, entries, strict=False))
    order = list(dict.fromkeys(grant.uuid for grant in record.grants))
    return [_Ask(whole(memory[uuid]), whole(cores[uuid]), uuid) for uuid in order]


def _per_card(grants: Iterable[HamiGrant], figure: str) -> dict[str, Fraction]:
    amounts: dict[str, Fraction] = {}
    for grant in grants:
        amounts[grant.uuid] = amounts.get(grant.uuid, Fraction(0)) + getattr(grant, figure)
    return amounts


def _requested(pod: PodEvidence, node: NodeCards) -> list[_Ask]:
    """What the containers ask for. On which cards is not known, so each part counts by itself.

    Kubernetes' rule for init containers, applied to the sum of shares: the combination that holds most is
    kept.
    """
    sidecars: list[_Ask] = []
    mains: list[_Ask] = []
    combinations: list[list[_Ask]] = []
    for container in pod.containers:
        asks = _container_asks(container, node)
        if container.kind is ContainerKind.INIT:
            combinations.append(sidecars + asks)
        elif container.kind is ContainerKind.SIDECAR:
            sidecars = sidecars + asks
        else:
            mains += asks
    combinations.insert(0, sidecars + mains)
    return max(combinations, key=lambda asks: sum(_share(ask, node) for ask in asks))


def _container_asks(container: ContainerEvidence, node: NodeCards) -> list[_Ask]:
    requests = dict(container.requests)
    if not any(_is_hami(resource) for resource in requests):
        return []
    count = _number(requests.get(GPU, Fraction(1)))  # HAMi's webhook adds the 1
    card = node.card_memory_mib()
    if GPU_MEMORY in requests:
        memory = _amount(requests[GPU_MEMORY])
    else:
        memory = min(card * whole(requests.get(GPU_MEMORY_PERCENT, Fraction(100))) // 100, MOST_AMOUNT)
    cores = min(whole(requests[GPU_CORES]), MOST_CORES) if GPU_CORES in requests else None
    if cores is None and GPU_MEMORY not in requests and GPU_MEMORY_PERCENT not in requests:
        cores = 100  # neither memory nor cores: HAMi gives the whole card
    return [_Ask(memory, cores)] * count
