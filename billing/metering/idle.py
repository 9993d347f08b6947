"""Why cards were idle: each moment's idle amount is given to reasons, piece by piece. Pure: no Django.

A node's idle amount at a moment is cut into pieces (a card of a shared node, the free slices of a MIG profile, the
free whole cards). Each piece goes, in this order, to

1. a promise that no pod has taken up yet (``reserved``);
2. ``stranded``, where nothing can be placed on what is left of a shared card: no memory, no cores, or no slot;
3. those who wait, the longest wait first: ``quota`` where the ask would fit and its quota refused it; ``fragmented``
   where the pool has enough, but not on one node (or on one card); ``stranded`` where one dimension of a card would
   do and the other would not, where slices are cut in another way, or where the host's CPU and memory are used up;
   ``pending`` where it would fit and is about to be placed;
4. ``zone`` where the cards are kept for a trust zone, of which nobody waits;
5. ``no_demand``: nobody waits for it.

Nothing is found by subtraction from a total: the pieces of a moment are what is handed out, so the reasons of an hour
are its idle time by construction, and the meter's own sum is compared with them.

Unit: millionths of a card; times milliseconds in sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Protocol

from infra.shares import CARD


class Reason(StrEnum):
    """Why cards were idle. The order is that of pages."""

    NO_DEMAND = "no_demand"
    QUOTA = "quota"
    FRAGMENTED = "fragmented"
    STRANDED = "stranded"
    RESERVED = "reserved"
    PENDING = "pending"
    ZONE = "zone"


class Lacks(StrEnum):
    """What a waiting ask was refused for."""

    QUOTA = "quota"
    DEVICES = "devices"
    HOST = "host"  # CPU or memory of the node, beside its cards


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of what is idle on a node.

    ``shared``: what is left of one HAMi card, with its free memory (of ``card_mib`` MiB), cores (percent) and slots,
    and the trust zone of those who hold the rest ("" = nobody). ``profile``: free MIG slices, each of ``unit``
    millionths. Else whole cards, and what is less than one.
    """

    amount: int
    uuid: str = ""
    shared: bool = False
    free_mib: int = 0
    card_mib: int = 0
    free_cores: int = 0
    free_slots: int = 0
    zone: str = ""
    profile: str = ""
    unit: int = CARD

    @property
    def is_full(self) -> bool:
        """Nothing can be placed on what is left of the shared card."""
        return self.shared and (self.free_slots < 1 or self.free_mib < 1 or self.free_cores < 1)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A node from ``start`` to ``end`` (ms), while nothing on it changed. ``zone``: its cards are kept for it."""

    node: Hashable
    start: int
    end: int
    pieces: tuple[Piece, ...]
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Promise:
    """Kept on a node from ``start`` to ``end`` (ms) for a pod that holds nothing of it yet."""

    node: Hashable
    start: int
    end: int
    amount: int
    uuid: str = ""
    profile: str = ""
    memory_mib: int = 0
    cores: int = 0


@dataclass(frozen=True, slots=True)
class Demand:
    """``pods`` pods wait from ``start`` to ``end`` (ms) for ``count`` devices each, on one node of the pool.

    ``memory_mib`` and ``cores``: a part of a card (HAMi); ``profile``: MIG slices of ``unit`` millionths; else whole
    cards (in a pool that is cut in one way: slices). ``zone``: the asking tenant's. ``who`` and ``owner`` are passed
    through.
    """

    start: int
    end: int
    lacks: Lacks
    count: int
    pods: int
    zone: str = ""
    memory_mib: int = 0
    cores: int = 0
    profile: str = ""
    unit: int = 0
    who: Hashable = None
    owner: Hashable = None

    @property
    def shared(self) -> bool:
        """Whether it asks for parts of cards."""
        return self.memory_mib > 0


@dataclass(slots=True)
class Split:
    """Millionths·milliseconds by (node, reason); and of quota, by (node, who waited, whose guarantee is unused)."""

    reasons: dict[tuple[Hashable, Reason], int] = field(default_factory=lambda: defaultdict(int))
    blocked: dict[tuple[Hashable, Hashable, Hashable], int] = field(default_factory=lambda: defaultdict(int))

    def of(self, node: Hashable) -> dict[Reason, int]:
        """The reasons of one node, also those that are 0."""
        return {reason: self.reasons.get((node, reason), 0) for reason in Reason}


def cut_to(pieces: Iterable[Piece], idle: int) -> tuple[Piece, ...]:
    """The pieces so that together they are ``idle``: what is withheld is taken from the emptiest cards first, and what
    belongs to no piece (a remainder of rounding, cards that are not registered) is one without properties."""
    found = [piece for piece in pieces if piece.amount > 0]
    over = sum(piece.amount for piece in found) - idle
    for index in sorted(range(len(found)), key=lambda i: -found[i].amount) if over > 0 else ():
        less = min(over, found[index].amount)
        found[index] = replace(found[index], amount=found[index].amount - less)
        over -= less
        if not over:
            break
    if over < 0:
        found.append(Piece(-over))
    return tuple(piece for piece in found if piece.amount > 0)


def split_idle(stretches: Sequence[Stretch], promises: Iterable[Promise] = (), demands: Iterable[Demand] = ()) -> Split:
    """The idle time of one pool's nodes by reason. Stretches of one node must not overlap."""
    result = Split()
    kept: dict[Hashable, list[Promise]] = defaultdict(list)
    for promise in promises:
        if promise.start < promise.end and promise.amount > 0:
            kept[promise.node].append(promise)
    waiting = sorted((one for one in demands if one.start < one.end and one.pods), key=lambda one: one.start)
    if not waiting:
        for stretch in stretches:
            for start, end in _cut(stretch.start, stretch.end, kept[stretch.node]):
                _moment([stretch], _at(kept[stretch.node], start), [], end - start, result)
        return result
    edges = {edge for stretch in stretches for edge in (stretch.start, stretch.end)}
    edges |= {edge for nodes in kept.values() for one in nodes for edge in (one.start, one.end)}
    edges |= {edge for one in waiting for edge in (one.start, one.end)}
    by_start = sorted(stretches, key=lambda one: one.start)
    position = 0
    active: dict[Hashable, Stretch] = {}
    for start, end in pairwise(sorted(edges)):
        while position < len(by_start) and by_start[position].start <= start:
            active[by_start[position].node] = by_start[position]
            position += 1
        now = [one for one in active.values() if one.end > start]
        if now:
            held = [one for stretch in now for one in _at(kept.get(stretch.node, ()), start)]
            asking = [one for one in waiting if one.start <= start < one.end]
            _moment(now, held, asking, end - start, result)
    return result


def _cut(start: int, end: int, promises: Sequence[Promise]) -> Iterable[tuple[int, int]]:
    inner = {edge for one in promises for edge in (one.start, one.end) if start < edge < end}
    return pairwise([start, *sorted(inner), end])


def _at(promises: Sequence[Promise], moment: int) -> list[Promise]:
    return [one for one in promises if one.start <= moment < one.end]


class Give(Protocol):
    """Books an amount of a node under a reason."""

    def __call__(self, node: _Node, reason: Reason, amount: int, demand: Demand | None = None) -> None: ...


# --- one moment ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    """A node's pieces that have no reason yet."""

    key: Hashable
    zone: str
    pieces: list[Piece]


def _moment(
    stretches: Sequence[Stretch], promises: Iterable[Promise], demands: Iterable[Demand], ms: int, result: Split
) -> None:
    nodes = {one.node: _Node(one.node, one.zone, list(one.pieces)) for one in stretches}

    def give(node: _Node, reason: Reason, amount: int, demand: Demand | None = None) -> None:
        if amount:
            result.reasons[node.key, reason] += amount * ms
            if reason is Reason.QUOTA and demand is not None:
                result.blocked[node.key, demand.who, demand.owner] += amount * ms

    for promise in promises:
        node = nodes.get(promise.node)
        if node is not None:
            give(node, Reason.RESERVED, _keep(node, promise))
    for node in nodes.values():
        give(node, Reason.STRANDED, sum(piece.amount for piece in node.pieces if piece.is_full))
        node.pieces = [piece for piece in node.pieces if not piece.is_full]
    for demand in demands:
        usable = [node for node in nodes.values() if node.pieces and node.zone in ("", demand.zone)]
        _meet(demand, usable, give)
    for node in nodes.values():
        give(node, Reason.ZONE if node.zone else Reason.NO_DEMAND, sum(piece.amount for piece in node.pieces))


def _keep(node: _Node, promise: Promise) -> int:
    """Take a promise from the node's pieces: its card's or profile's first, then any; the answer is what was there."""
    left = promise.amount

    def nearest(index: int) -> tuple[bool, bool, int]:
        piece = node.pieces[index]
        return piece.uuid != promise.uuid, piece.profile != promise.profile, -piece.amount

    for index in sorted(range(len(node.pieces)), key=nearest):
        piece = node.pieces[index]
        if promise.uuid and piece.uuid and piece.uuid != promise.uuid:
            continue
        taken = min(left, piece.amount)
        mine = bool(piece.uuid) and piece.uuid == promise.uuid
        node.pieces[index] = replace(
            piece,
            amount=piece.amount - taken,
            free_mib=piece.free_mib - (promise.memory_mib if mine else 0),
            free_cores=piece.free_cores - (promise.cores if mine else 0),
            free_slots=piece.free_slots - (1 if mine else 0),
        )
        left -= taken
        if not left:
            break
    node.pieces = [piece for piece in node.pieces if piece.amount > 0]
    return promise.amount - left


def _meet(demand: Demand, nodes: list[_Node], give: Give) -> None:
    """Give what this ask explains to its reason."""
    fits = {Lacks.QUOTA: Reason.QUOTA, Lacks.HOST: Reason.STRANDED, Lacks.DEVICES: Reason.PENDING}[demand.lacks]
    left = demand.pods
    for node in sorted(nodes, key=lambda one: _room(one, demand)):  # the tightest first, as the scheduler does
        while left and _room(node, demand) >= demand.count:
            give(node, fits, _take(node, demand, demand.count), demand)
            left -= 1
    if not left or demand.lacks is Lacks.QUOTA:
        return  # what does not fit was not refused by the quota alone
    _spread(demand, nodes, left, give)
    if demand.shared:
        _lopsided(demand, nodes, left, give)
    elif demand.unit:
        _cut_otherwise(demand, nodes, left, give)


def _room(node: _Node, demand: Demand) -> int:
    """How many of the asked devices the node has free: whole cards, slices, or cards with room for the part."""
    return sum(_devices(piece, demand) for piece in node.pieces)


def _devices(piece: Piece, demand: Demand) -> int:
    if demand.shared:
        return int(piece.shared and _fits(piece, demand) == (True, True))
    if piece.shared or (demand.profile and piece.profile != demand.profile) or (demand.unit and not piece.profile):
        return 0
    return piece.amount // piece.unit


def _fits(piece: Piece, demand: Demand) -> tuple[bool, bool]:
    """Whether (memory, cores) of a card have room for the part; neither where another zone holds the card."""
    if piece.zone not in ("", demand.zone) or piece.free_slots < 1:
        return False, False
    return piece.free_mib >= demand.memory_mib, piece.free_cores >= _cores(piece, demand)


def _cores(piece: Piece, demand: Demand) -> int:
    """Percent of the card's cores; a part without a figure takes as many as it takes of the memory."""
    return demand.cores or -(-100 * demand.memory_mib // max(1, piece.card_mib))


def _part(piece: Piece, demand: Demand) -> int:
    """Millionths of the card that the part would be charged."""
    memory = demand.memory_mib * CARD // max(1, piece.card_mib)
    return min(piece.amount, max(memory, _cores(piece, demand) * CARD // 100))


def _take(node: _Node, demand: Demand, devices: int) -> int:
    """Take so many devices from the node's pieces; the answer is their amount."""
    taken = 0
    for index, piece in enumerate(node.pieces):
        here = min(devices, _devices(piece, demand))
        if not here:
            continue
        amount = _part(piece, demand) if demand.shared else here * piece.unit
        node.pieces[index] = replace(
            piece,
            amount=piece.amount - amount,
            free_mib=piece.free_mib - (demand.memory_mib if demand.shared else 0),
            free_cores=piece.free_cores - (_cores(piece, demand) if demand.shared else 0),
            free_slots=piece.free_slots - (1 if demand.shared else 0),
        )
        taken += amount
        devices -= here
        if not devices:
            break
    node.pieces = [piece for piece in node.pieces if piece.amount > 0]
    return taken


def _spread(demand: Demand, nodes: list[_Node], pods: int, give: Give) -> None:
    """Fragmented: devices that fit are there, enough for a pod, but on different nodes; of a part of a card: enough
    memory and cores are free, but on different cards."""
    total = sum(_room(node, demand) for node in nodes)
    wanted = min(pods, total // demand.count) * demand.count if demand.count else 0
    for node in sorted(nodes, key=lambda one: -_room(one, demand)):
        here = min(wanted, _room(node, demand))
        if here:
            give(node, Reason.FRAGMENTED, _take(node, demand, here), demand)
            wanted -= here
    if not demand.shared or total:
        return
    small = [
        (node, piece)
        for node in nodes
        for piece in node.pieces
        if piece.shared and piece.zone in ("", demand.zone) and _fits(piece, demand) == (False, False)
    ]
    memory, cores = sum(piece.free_mib for _, piece in small), sum(piece.free_cores for _, piece in small)
    if memory >= demand.memory_mib and small and cores >= _cores(small[0][1], demand):
        left = pods * demand.count * max(_cores(piece, demand) for _, piece in small) * CARD // 100
        for node, piece in sorted(small, key=lambda one: -one[1].amount):
            left -= _all_of(node, piece, left, Reason.FRAGMENTED, demand, give)


def _lopsided(demand: Demand, nodes: list[_Node], pods: int, give: Give) -> None:
    """Stranded: one dimension of a card has room for the part, the other has not."""
    cards = pods * demand.count
    for node in nodes:
        for piece in [one for one in node.pieces if one.shared]:
            memory, cores = _fits(piece, demand)
            if cards and memory != cores:
                _all_of(node, piece, piece.amount, Reason.STRANDED, demand, give)
                cards -= 1


def _cut_otherwise(demand: Demand, nodes: list[_Node], pods: int, give: Give) -> None:
    """Stranded: free slices that another profile than the asked one has cut up."""
    left = pods * demand.count * demand.unit
    for node in nodes:
        others = [piece for piece in node.pieces if piece.profile and piece.profile != demand.profile]
        if sum(piece.amount for piece in others) < demand.unit:
            continue
        for piece in others:
            left -= _all_of(node, piece, left, Reason.STRANDED, demand, give)


def _all_of(node: _Node, piece: Piece, most: int, reason: Reason, demand: Demand, give: Give) -> int:
    """Give a piece, or ``most`` of it, to a reason; the answer is how much it was."""
    amount = min(piece.amount, max(0, most))
    node.pieces = [one for one in node.pieces if one is not piece]
    if piece.amount > amount:
        node.pieces.append(replace(piece, amount=piece.amount - amount))
    give(node, reason, amount, demand)
    return amount
