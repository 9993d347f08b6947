"""How one pod fits on one node: which devices it would take, and what is then left.

Two steps. `match_member` finds, once for each kind of pool, which device entries satisfy each request (selectors,
sharing). `MemberMatch.fits` then answers for a free vector, and remembers the answer: nodes that are alike are asked
once, whatever their number and however many deployments come.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from infra.cel import Answer, Match, compile_selector
from infra.placement.fleet import Card, ClaimKind, DeviceEntry, FreeVector, PoolShape, Sharing, interned
from infra.placement.quota import profile_key
from infra.placement.request import DeviceRequest, HamiShare, MemberSpec, MigShare
from infra.shares import CARD, capped_cores, floor_millionths, hami_share, mig_share, parse_mig

# Ways to place one pod on one node that are looked at; more differ only in details.
MAX_WAYS = 12
_KEPT = 8192
# Pods on one node that are counted; a kubelet takes far fewer.
UNCOUNTED = 1000
# Stands for the memory of a card whose size is not known: it is taken last.
_UNKNOWN_MIB = 1 << 40

Score = tuple[int, int, int]
NO_FIT: Score = (1 << 62, 0, 0)


@dataclass(frozen=True, slots=True)
class Pick:
    """What one request takes. `cards` are positions in the vector's cards (HAMi)."""

    request: int
    entry: DeviceEntry
    count: int
    millionths: int
    cards: tuple[int, ...] = ()
    memory_mib: int = 0
    cores: int = 0
    profile: str = ""


@dataclass(frozen=True, slots=True)
class Fit:
    """One way to place the pod: what it takes, what is left, and how well it fits (smaller is better).

    score: (MiB of card memory taken, millionths by which memory and compute of a card drift apart, millionths left on
    what is touched): the tightest type first, then what strands least, then the fullest card or node.
    """

    picks: tuple[Pick, ...]
    after: FreeVector
    score: Score
    usage: tuple[tuple[str, int], ...]  # GPU type → millionths, MIG profile → instances: infra.placement.quota


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one entry is to one request: a candidate, or why not."""

    entry: DeviceEntry
    fits: bool
    sharing: bool = True  # the entry is handed out in the way the request wants
    match: Match | None = None
    selector: str = ""


@dataclass
class MemberMatch:
    """A member against a kind of pool, for a tenant of `zone`."""

    member: MemberSpec
    shape: PoolShape
    zone: str
    verdicts: tuple[tuple[Verdict, ...], ...]  # by request, by entry
    candidates: tuple[tuple[DeviceEntry, ...], ...]  # by request
    possible: bool
    # What `fits` has answered so far, and the score of the best way (NO_FIT: there is none).
    scores: dict[FreeVector, Score] = field(default_factory=dict)
    known: dict[FreeVector, tuple[Fit, ...]] = field(default_factory=dict)
    _room: dict[FreeVector, int] = field(default_factory=dict)

    def fits(self, free: FreeVector) -> tuple[Fit, ...]:
        """All ways to place one pod on a node with this vector, best first; empty if there is none."""
        known = self.known.get(free)
        if known is None:
            known = tuple(_ways(self, free)) if self.possible else ()
            if len(self.known) >= _KEPT:
                self.known.clear()
                self.scores.clear()
            self.known[free] = known
            self.scores[free] = known[0].score if known else NO_FIT
        return known

    def room(self, free: FreeVector, distinct: bool, enough: int) -> int:
        """How many of these pods fit on one such node (at most one if `distinct`); stops counting at `enough`."""
        if distinct or enough <= 1:
            return 1 if self.fits(free) else 0
        known = self._room.get(free)
        if known is None:
            known, vector = 0, free
            # A pod that takes nothing fits without end.
            while known < UNCOUNTED and (ways := self.fits(vector)):
                known += 1
                vector = ways[0].after
            if len(self._room) >= _KEPT:
                self._room.clear()
            self._room[free] = known
        return known


@lru_cache(maxsize=2048)
def match_member(member: MemberSpec, shape: PoolShape, zone: str) -> MemberMatch:
    """Which entries of a pool satisfy which request. Raises SelectorError for a selector that does not compile."""
    verdicts = tuple(tuple(_verdict(request, entry, shape) for entry in shape.entries) for request in member.devices)
    candidates = tuple(tuple(v.entry for v in row if v.fits) for row in verdicts)
    possible = all(candidates) and not any(map(_whole_claim_fails, verdicts))
    return MemberMatch(member, shape, zone, verdicts, candidates, possible)


def _whole_claim_fails(row: tuple[Verdict, ...]) -> bool:
    """Whether the real allocator would fail the claim: a selector breaks on a device of a class that it looks at,
    even if another device of that class would do."""
    classes = {v.entry.device_class or v.entry.device.driver for v in row if v.fits and v.entry.claim is ClaimKind.DRA}
    return any(
        v.match is not None
        and v.match.answer is Answer.EVAL_ERROR
        and v.entry.claim is ClaimKind.DRA
        and (v.entry.device_class or v.entry.device.driver) in classes
        for v in row
    )


def _verdict(request: DeviceRequest, entry: DeviceEntry, shape: PoolShape) -> Verdict:
    for selector in request.selectors:
        match = compile_selector(selector).matches(entry.device)
        if not match:
            return Verdict(entry, False, _handed_out(request, entry, shape), match, selector)
    sharing = _handed_out(request, entry, shape)
    return Verdict(entry, sharing, sharing)


def _handed_out(request: DeviceRequest, entry: DeviceEntry, shape: PoolShape) -> bool:
    share = request.share
    if not entry.gpu_type:
        return share is None
    if share is None:
        return shape.sharing is Sharing.WHOLE or (shape.sharing is Sharing.MIG and bool(entry.mig_profile))
    if isinstance(share, HamiShare):
        return shape.sharing is Sharing.HAMI
    if shape.sharing is not Sharing.MIG:
        return False
    return not entry.mig_profile or parse_mig(entry.mig_profile) == parse_mig(share.profile)


# ------------------------------------------------------------------------------------------- ways on one node


def _ways(match: MemberMatch, free: FreeVector) -> list[Fit]:
    member = match.member
    if member.cpu_millis is not None and free.cpu_millis is not None and free.cpu_millis < member.cpu_millis:
        return []
    if member.memory_bytes is not None and free.memory_bytes is not None and free.memory_bytes < member.memory_bytes:
        return []
    order = sorted(range(len(member.devices)), key=lambda i: (len(match.candidates[i]), -member.devices[i].count, i))
    found: dict[FreeVector, Fit] = {}
    start = _less_host(free, member)
    for picks, after in _place(match, order, 0, start, frozenset(), free):
        fit = Fit(picks, interned(after), _score(picks, free, after), _usage(picks))
        known = found.get(fit.after)
        if known is None or fit.score < known.score:
            found[fit.after] = fit
        if len(found) >= MAX_WAYS:
            break
    return sorted(found.values(), key=lambda fit: fit.score)


def _less_host(free: FreeVector, member: MemberSpec) -> FreeVector:
    cpu = None if free.cpu_millis is None else free.cpu_millis - (member.cpu_millis or 0)
    memory = None if free.memory_bytes is None else free.memory_bytes - (member.memory_bytes or 0)
    return replace(free, cpu_millis=cpu, memory_bytes=memory)


def _place(
    match: MemberMatch, order: list[int], depth: int, free: FreeVector, used: frozenset[int], whole: FreeVector
) -> Iterator[tuple[tuple[Pick, ...], FreeVector]]:
    """Every assignment of the remaining requests, depth first. `used`: card positions this pod has already."""
    if depth == len(order):
        yield (), free
        return
    index = order[depth]
    request = match.member.devices[index]
    for entry in match.candidates[index]:
        for pick, after in _take(index, request, entry, free, used, match):
            for rest, final in _place(match, order, depth + 1, after, used | set(pick.cards), whole):
                yield (pick, *rest), final


def _take(
    index: int, request: DeviceRequest, entry: DeviceEntry, free: FreeVector, used: frozenset[int], match: MemberMatch
) -> Iterator[tuple[Pick, FreeVector]]:
    if isinstance(request.share, HamiShare) and entry.gpu_type:
        yield from _take_cards(index, request, request.share, entry, free, used, match.zone)
        return
    profile = ""
    if entry.gpu_type and match.shape.sharing is Sharing.MIG:
        asked = request.share.profile if isinstance(request.share, MigShare) else entry.mig_profile
        profile = str(parse_mig(asked))
        if free.zone not in ("", match.zone):
            return
        after = _less(free.mig, profile, request.count)
        if after is None:
            return
        millionths = request.count * floor_millionths(mig_share(profile, entry.mig_slices))
        pick = Pick(index, entry, request.count, millionths, profile=profile)
        yield pick, replace(free, mig=after, zone=match.zone or free.zone)
        return
    left = _less(free.devices, entry.name, request.count)
    if left is not None:
        millionths = request.count * CARD if entry.gpu_type else 0
        yield Pick(index, entry, request.count, millionths), replace(free, devices=left)


def _less(amounts: tuple[tuple[str, int], ...], name: str, count: int) -> tuple[tuple[str, int], ...] | None:
    for position, (key, amount) in enumerate(amounts):
        if key == name:
            if amount < count:
                return None
            return (*amounts[:position], (key, amount - count), *amounts[position + 1 :])
    return None


def _take_cards(
    index: int,
    request: DeviceRequest,
    share: HamiShare,
    entry: DeviceEntry,
    free: FreeVector,
    used: frozenset[int],
    zone: str,
) -> Iterator[tuple[Pick, FreeVector]]:
    """Different cards for one request, the tightest first; for a single card each distinct shape is tried."""
    fitting: list[tuple[int, int, int, Card]] = []
    for position, card in enumerate(free.cards):
        if position not in used and card.entry == entry.name and not card_refusal(card, share, zone):
            need, cores = card_need(card, share)
            was_mib, was_cores = _free_parts(card)
            left = replace(card, free_mib=card.free_mib - need, free_cores=card.free_cores - cores)
            mib, left_cores = _free_parts(left)
            fitting.append((abs(mib - left_cores) - abs(was_mib - was_cores), mib + left_cores, position, card))
    fitting.sort(key=lambda item: item[:3])
    if len(fitting) < request.count:
        return
    seen: set[Card] = set()
    for start, (_, _, _, first) in enumerate(fitting):
        if first in seen:
            continue
        seen.add(first)
        # One request is one amount of MiB on each card, so a percentage needs cards of one size.
        chosen = [item for item in fitting[start:] if item[3].physical_mib == first.physical_mib][: request.count]
        if len(chosen) < request.count:
            continue
        cards = list(free.cards)
        millionths = 0
        for _, _, position, card in chosen:
            need, cores = card_need(card, share)
            millionths += floor_millionths(hami_share(need, cores, card.physical_mib))
            cards[position] = replace(
                card,
                free_mib=card.free_mib - need,
                free_cores=card.free_cores - cores,
                pods=card.pods + 1,
                free_slots=card.free_slots - 1,
                zone=zone or card.zone,
            )
        need, cores = card_need(first, share)
        positions = tuple(sorted(position for _, _, position, _ in chosen))
        pick = Pick(index, entry, request.count, millionths, positions, need, cores)
        yield pick, replace(free, cards=tuple(cards))


def card_need(card: Card, share: HamiShare) -> tuple[int, int]:
    """(MiB, cores) that the share takes of this card; unset cores become the memory's percentage."""
    need = share.mib(card.physical_mib)
    return need, share.cores or capped_cores(need, card.physical_mib)


def card_refusal(card: Card, share: HamiShare, zone: str) -> str:
    """Why the share does not fit on this card: "zone", "slots", "memory", "cores"; "" if it fits."""
    if card.physical_mib <= 0:
        return "memory"
    need, cores = card_need(card, share)
    if card.free_slots < 1:
        return "slots"
    if card.free_mib < need:
        return "memory"
    # HAMi gives 100 cores only to a card that nobody holds a part of.
    if card.free_cores < cores or (cores >= 100 and card.pods):
        return "cores"
    return "" if card.zone in ("", zone) else "zone"


def _score(picks: tuple[Pick, ...], before: FreeVector, after: FreeVector) -> Score:
    taken = stranded = left = 0
    for pick in picks:
        if not pick.entry.gpu_type:
            continue
        if pick.cards:
            taken += pick.memory_mib * pick.count
            for position in pick.cards:
                mib, cores = _free_parts(after.cards[position])
                was_mib, was_cores = _free_parts(before.cards[position])
                stranded += abs(mib - cores) - abs(was_mib - was_cores)
                left += mib + cores
        elif pick.profile:
            taken += pick.count * parse_mig(pick.profile).memory_gb * 1024
            left += sum(amount for _, amount in after.mig) * CARD
        else:
            taken += pick.count * (pick.entry.memory_mib or _UNKNOWN_MIB)
            left += sum(amount for _, amount in after.devices) * CARD
    return taken, stranded, left


def _free_parts(card: Card) -> tuple[int, int]:
    """Free memory and free compute of a card, each in millionths of the card."""
    return card.free_mib * CARD // card.physical_mib, card.free_cores * CARD // 100


def _usage(picks: tuple[Pick, ...]) -> tuple[tuple[str, int], ...]:
    usage: dict[str, int] = {}
    for pick in picks:
        if pick.entry.gpu_type:
            usage[pick.entry.gpu_type] = usage.get(pick.entry.gpu_type, 0) + pick.millionths
            if pick.profile:
                key = profile_key(pick.entry.gpu_type, pick.profile)
                usage[key] = usage.get(key, 0) + pick.count
    return tuple(sorted(usage.items()))
