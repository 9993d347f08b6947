"""What a node hands out, what is taken of it, and what is left. Pure: no Django, no cluster.

The same arithmetic serves the scheduler's snapshot and the check under lock when devices are reserved, so a place that
the one saw is refused by the other only if somebody was faster. Units: MiB, percent of a card's cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from infra.pod_devices import GPU, MIG_PREFIX
from infra.quantity import parse_quantity, whole
from infra.shares import mig_spelled

UNKNOWN_ZONE = "?"
"""The zone of a holder whose tenant is not known: no tenant is in it, so nobody shares a card with such a holder."""
DEFAULT_SLOTS = 10
"""HAMi's own default of ``deviceSplitCount``."""


@dataclass(frozen=True, slots=True)
class CardCapacity:
    """A HAMi card. ``memory_mib`` is what HAMi hands out, which scaling may raise above ``physical_mib``."""

    memory_mib: int
    physical_mib: int
    cores: int = 100
    slots: int = DEFAULT_SLOTS
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """What a node can hand out now: whole cards, MIG instances by profile, HAMi cards by UUID."""

    cards: int = 0
    slices: Mapping[str, int] = field(default_factory=dict)
    shared: Mapping[str, CardCapacity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Taken:
    """A sum of what holders have of one kind on a node: of whole cards, of one MIG profile, or of one HAMi card."""

    profile: str = ""
    uuid: str = ""
    cards: int = 0
    slices: int = 0
    memory_mib: int = 0
    cores: int = 0
    pods: int = 0
    unpinned: int = 0
    zones: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CardFree:
    """What is left of a HAMi card, and whose zones are on it."""

    memory_mib: int
    cores: int
    slots: int
    pods: int
    physical_mib: int
    zones: frozenset[str]


@dataclass(frozen=True, slots=True)
class NodeFree:
    """What is left of a node. Never negative. ``slice_zones``: who holds MIG instances on it (which card an instance
    is on is not known beforehand, so the instances of a node stay within one zone). ``unpinned``: how many shares are
    held of which nobody knows the card; while there are any, nothing on the node is sure."""

    cards: int
    slices: Mapping[str, int]
    shared: Mapping[str, CardFree]
    slice_zones: frozenset[str] = frozenset()
    unpinned: int = 0


@lru_cache(maxsize=4096)
def _whole(quantity: str, times: int) -> int:
    return whole(parse_quantity(quantity) * times)


def amount_of(resources: Mapping[str, str], resource: str, *, times: int = 1) -> int:
    """A resource of a node times ``times``, rounded up to a whole number; 0 where it has none. A fleet's nodes say the
    same few quantities, so each is read once."""
    return _whole(resources.get(resource, "0"), times)


def node_capacity(
    *,
    sharing: str,
    allocatable: Mapping[str, str],
    cards: int,
    unavailable: int,
    mig_profile: str = "",
    shared: Mapping[str, CardCapacity] | None = None,
    dra: bool = False,
) -> NodeCapacity:
    """From a node as it was seen. ``dra``: cards are claimed, not counted as a resource of the node."""
    if sharing == "hami":
        return NodeCapacity(shared=dict(shared or {}))
    number = amount_of(allocatable, GPU)
    if sharing == "mig":
        if mig_profile:
            return NodeCapacity(slices={mig_spelled(mig_profile): number})
        slices = {
            mig_spelled(resource): amount_of(allocatable, resource)
            for resource in allocatable
            if resource.startswith(MIG_PREFIX)
        }
        return NodeCapacity(cards=number, slices=slices)
    if sharing != "whole":
        return NodeCapacity()
    return NodeCapacity(cards=cards - unavailable if dra else number)


def node_free(capacity: NodeCapacity, taken: Iterable[Taken]) -> NodeFree:
    """What is left.

    A holder may be of another kind than the node hands out now, from before its cards were cut up, shared, or made
    whole again. It holds a card all the same: of a shared node one that is not known, of others a whole one.
    """
    cards = unpinned = 0
    hami = bool(capacity.shared)
    slices: dict[str, int] = {}
    slice_zones: frozenset[str] = frozenset()
    shared: dict[str, Taken] = {}
    for one in taken:
        unpinned += one.unpinned + (one.cards + one.slices if hami else 0)
        if one.uuid:
            shared[one.uuid] = one
            cards += 0 if hami else 1
            continue
        cards += one.cards + (0 if hami else one.unpinned)
        if one.profile:
            profile = mig_spelled(one.profile)
            slices[profile] = slices.get(profile, 0) + one.slices
            slice_zones |= one.zones
    if not capacity.slices:
        cards += sum(slices.values())
    # More whole cards are held than are whole: some of those that are cut are not free to anybody.
    cut = cards > capacity.cards
    return NodeFree(
        cards=max(0, capacity.cards - cards),
        slices={profile: 0 if cut else max(0, n - slices.get(profile, 0)) for profile, n in capacity.slices.items()},
        shared={uuid: _card_free(card, shared.get(uuid, Taken())) for uuid, card in capacity.shared.items()},
        slice_zones=slice_zones,
        unpinned=unpinned,
    )


def _card_free(card: CardCapacity, taken: Taken) -> CardFree:
    usable = card.healthy
    return CardFree(
        memory_mib=max(0, card.memory_mib - taken.memory_mib) if usable else 0,
        cores=max(0, card.cores - taken.cores) if usable else 0,
        slots=max(0, card.slots - taken.pods) if usable else 0,
        pods=taken.pods,
        physical_mib=card.physical_mib,
        zones=taken.zones,
    )


def sole_zone(zones: frozenset[str]) -> str:
    """The zone of those who hold something: "" = nobody does; several, which must not be, are nobody's."""
    return next(iter(zones)) if len(zones) == 1 else UNKNOWN_ZONE if zones else ""
