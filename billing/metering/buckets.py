"""Where the time of a node's cards went: six buckets that together are the cards' time in service. Pure: no
Django.

The hour is swept interval by interval between the instants at which anything changes. What a pod occupies
physically is what it is charged ÷ max(1, Σ charged on its card); what no pod occupies is stranded by the MIG
geometry (overhead), withheld (unavailable) or idle. Time in service is summed on its own, from the capacity
alone, so that the comparison of the two is a check.

Unit: millionths of a card times milliseconds, whole numbers. A card's hour is 3,600,000,000,000.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from billing.metering.intervals import Bucket
from billing.metering.usage import Usage
from infra.shares import CARD
from portal.kernel.clock import Interval, clip, epoch_ms
from portal.kernel.money import split_units

Key = tuple[object, ...]
Amount = int | Fraction


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a node had in service. Spans of one node and type must not overlap.

    `unavailable_cards`: cordoned, unhealthy or missing from allocatable; only free ones count as unavailable,
    a held one is still on its tenant's account. `lost`: the node was lost, and all of it unavailable.
    `stranded`: millionths of a card that the MIG geometry of the node leaves unusable. `devices`: UUIDs of those
    unavailable cards that are known; the rest of them are any.
    """

    interval: Interval
    cards: int
    unavailable_cards: int = 0
    lost: bool = False
    stranded: int = 0
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """What one piece of usage occupies: `share` in millionths, of a known card or ("") of any of the node's.

    `certain` is false for time after the last proof of a pod: it never displaces what was there for sure.
    """

    key: Key
    interval: Interval
    bucket: Bucket
    share: int
    device_uuid: str = ""
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Free:
    """From ``start`` to ``end`` (ms) nothing changed: what was idle, what the MIG geometry stranded (millionths of a
    card), and who held the rest."""

    start: int
    end: int
    idle: Amount
    stranded: int
    active: tuple[Load, ...]


@dataclass(slots=True)
class Account:
    """One window of one node and type.

    `physical`: what each load occupied, by its key. `overbooked`: certain load beyond what was in service
    (clocks that disagree, or evidence that is wrong); it was scaled down to fit. `outside`: load while no
    capacity was known, or on a node said to be lost. `per_card`: every load's card was known. `free`: the stretches
    in which the node was in service and not lost.
    """

    window: Interval
    in_service: int = 0
    buckets: dict[Bucket, int] = field(default_factory=lambda: dict.fromkeys(Bucket, 0))
    physical: dict[Key, int] = field(default_factory=dict)
    overbooked: int = 0
    outside: int = 0
    per_card: bool = True
    free: list[Free] = field(default_factory=list)

    @property
    def difference(self) -> int:
        """Time in service less the six buckets: anything but 0 is an error."""
        return self.in_service - sum(self.buckets.values())


def load_of(usage: Usage) -> Load:
    """What a piece of usage occupies. Time after the last proof of a pod is uncertain."""
    return Load(
        key=usage.key,
        interval=usage.interval,
        bucket=usage.bucket,
        share=usage.allocation.holding.share_millionths,
        device_uuid=usage.allocation.holding.device_uuid,
        certain=usage.phase.is_certain,
    )


def account(window: Interval, capacity: Sequence[Capacity], loads: Iterable[Load]) -> Account:
    """The buckets of one node and type in a window. Raises ValueError where capacity spans overlap."""
    spans = _spans(window, capacity)
    result = Account(window, in_service=sum(CARD * span.cards * (end - start) for start, end, span in spans))
    parts: dict[tuple[Bucket, Key], Amount] = defaultdict(int)
    for start, end, span, active in _sweep(spans, _clipped(window, loads, result)):
        moment = _moment(span, active)
        for part, amount in moment.parts.items():
            parts[part] += amount * (end - start)
        result.overbooked += int(moment.overbooked * (end - start))
        result.outside += moment.outside * (end - start)
        if span is not None and span.cards and not span.lost:
            stranded = int(moment.parts[Bucket.OVERHEAD, ()])
            result.free.append(Free(start, end, moment.parts[Bucket.IDLE, ()], stranded, tuple(active)))
    for (bucket, key), units in _whole(parts, result.in_service).items():
        result.buckets[bucket] += units
        if key:
            result.physical[key] = result.physical.get(key, 0) + units
    return result


def mig_stranded(cards: int, compute_slices: int, configured: Mapping[int, int]) -> int:
    """Millionths of a card that a node's MIG geometry leaves unusable, floored.

    `configured`: compute slices of a profile → instances of such profiles on the node. Raises ValueError
    where they need more than the cards have.
    """
    used = sum(slices * count for slices, count in configured.items())
    if used > cards * compute_slices:
        raise ValueError(f"{used} MIG compute slices are more than {cards} cards with {compute_slices} each have")
    return CARD * (cards * compute_slices - used) // compute_slices


# --- the sweep ---

_Span = tuple[int, int, Capacity]


def _spans(window: Interval, capacity: Sequence[Capacity]) -> list[_Span]:
    spans: list[_Span] = []
    for span in sorted(capacity, key=lambda one: one.interval):
        part = clip(span.interval, window)
        if part is None:
            continue
        if spans and epoch_ms(part.start) < spans[-1][1]:
            raise ValueError(f"capacity is given twice: {spans[-1][2].interval} and {span.interval} overlap")
        spans.append((epoch_ms(part.start), epoch_ms(part.end), span))
    return spans


def _clipped(window: Interval, loads: Iterable[Load], result: Account) -> list[tuple[int, int, Load]]:
    clipped = []
    for load in loads:
        part = clip(load.interval, window)
        if part is None:
            continue
        clipped.append((epoch_ms(part.start), epoch_ms(part.end), load))
        result.physical[load.key] = 0
        result.per_card = result.per_card and bool(load.device_uuid)
    return clipped


def _sweep(
    spans: list[_Span], loads: list[tuple[int, int, Load]]
) -> Iterable[tuple[int, int, Capacity | None, list[Load]]]:
    """Each stretch of time in which nothing changes, with what was in service and who was there."""
    edges = sorted({edge for start, end, _ in (*spans, *loads) for edge in (start, end)})
    starts: dict[int, list[Load]] = defaultdict(list)
    ends: dict[int, list[Load]] = defaultdict(list)
    for start, end, load in loads:
        if start < end:
            starts[start].append(load)
            ends[end].append(load)
    active: dict[Key, Load] = {}
    position = 0
    for start, end in pairwise(edges):
        for load in ends[start]:
            del active[load.key]
        for load in starts[start]:
            active[load.key] = load
        while position < len(spans) and spans[position][1] <= start:
            position += 1
        inside = position < len(spans) and spans[position][0] <= start
        yield start, end, spans[position][2] if inside else None, list(active.values())


@dataclass(slots=True)
class _Moment:
    """Millionths of cards at one moment: by (bucket, key of the load, or () for what no load occupies)."""

    parts: dict[tuple[Bucket, Key], Amount] = field(default_factory=dict)
    overbooked: Amount = 0
    outside: int = 0


def _moment(span: Capacity | None, active: list[Load]) -> _Moment:
    if span is None or not span.cards:
        return _Moment(outside=sum(load.share for load in active if load.certain))
    moment = _Moment()
    cards = CARD * span.cards
    if span.lost:
        displaced = [load for load in active if load.bucket is not Bucket.UNAVAILABLE]
        moment.outside = sum(load.share for load in displaced if load.certain)
        active = [load for load in active if load.bucket is Bucket.UNAVAILABLE]
    certain = _on_cards([load for load in active if load.certain])
    moment.overbooked = max(0, sum(certain.values()) - cards)
    certain = _scaled(certain, cards)
    free = cards - sum(certain.values())
    uncertain = _uncertain([load for load in active if not load.certain], active, free)
    free -= sum(uncertain.values())
    for load in active:
        moment.parts[load.bucket, load.key] = (certain if load.certain else uncertain)[load.key]
    if span.lost:
        moment.parts[Bucket.UNAVAILABLE, ()] = free
        return moment
    stranded = min(span.stranded, free)
    withheld = min(_withheld(span, active), free - stranded)
    moment.parts[Bucket.OVERHEAD, ()] = stranded
    moment.parts[Bucket.UNAVAILABLE, ()] = withheld
    moment.parts[Bucket.IDLE, ()] = free - stranded - withheld
    return moment


def _withheld(span: Capacity, active: list[Load]) -> int:
    """What can't be handed out, at most: of a card that is known, what nobody holds of it; of the others, all."""
    known = span.devices[: span.unavailable_cards]
    if not known:
        return CARD * span.unavailable_cards
    held: dict[str, int] = defaultdict(int)
    for load in active:
        held[load.device_uuid] += load.share
    return CARD * (span.unavailable_cards - len(known)) + sum(max(0, CARD - held[uuid]) for uuid in known)


def _on_cards(loads: list[Load]) -> dict[Key, Amount]:
    """What each occupies of its card: its share ÷ max(1, Σ on the card)."""
    on_card: dict[str, int] = defaultdict(int)
    for load in loads:
        on_card[load.device_uuid] += load.share
    occupied: dict[Key, Amount] = {}
    for load in loads:
        total = on_card[load.device_uuid] if load.device_uuid else 0
        occupied[load.key] = load.share if total <= CARD else Fraction(load.share * CARD, total)
    return occupied


def _uncertain(loads: list[Load], active: list[Load], free: Amount) -> dict[Key, Amount]:
    """Only what is left: of its own card where that is known, and of the node."""
    held: dict[str, int] = defaultdict(int)
    for load in active:
        if load.certain:
            held[load.device_uuid] += load.share
    wanted = [load if not load.device_uuid else _at_most(load, max(0, CARD - held[load.device_uuid])) for load in loads]
    return _scaled(_on_cards(wanted), free)


def _at_most(load: Load, share: int) -> Load:
    return Load(load.key, load.interval, load.bucket, min(load.share, share), load.device_uuid, certain=False)


def _scaled(amounts: dict[Key, Amount], limit: Amount) -> dict[Key, Amount]:
    total = sum(amounts.values())
    if total <= limit:
        return amounts
    return {key: Fraction(amount * limit) / total for key, amount in amounts.items()}


def _whole(parts: Mapping[tuple[Bucket, Key], Amount], total: int) -> dict[tuple[Bucket, Key], int]:
    """Fractions (from overcommitted cards) rounded together, so that their sum stays what it is."""
    if all(isinstance(amount, int) or amount.denominator == 1 for amount in parts.values()):
        return {part: int(amount) for part, amount in parts.items()}
    order = sorted(parts, key=lambda part: (part[0], tuple(map(str, part[1]))))
    units = split_units(total, [parts[part] for part in order])
    return dict(zip(order, units, strict=True))
