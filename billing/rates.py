"""Dated prices as plain data: which one is in force, where they change, overlap or leave a gap. Pure: no
Django."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from portal.kernel.clock import HOUR, Interval, as_utc, clip, format_rfc3339, hour_start, subtract
from portal.kernel.money import decimal_of


class Resource(StrEnum):
    """What a rate prices; values of `billing.models.Rate.Resource`."""

    GPU = "gpu"
    CPU = "cpu"
    MEMORY = "memory"
    STORAGE = "storage"
    NETWORK = "network"


class Unit(StrEnum):
    """What one price is for: an hour of a card (a share pays its part), of a MIG instance, of a core, of a
    GiB; or one unit of money of what OpenCost says that something cost."""

    GPU_HOUR = "gpu-hour"
    INSTANCE_HOUR = "instance-hour"
    CORE_HOUR = "core-hour"
    GIB_HOUR = "gib-hour"
    COST = "opencost-cost"


@dataclass(frozen=True, slots=True, order=True)
class RateKey:
    """What a price is for: a type of card in a sharing mode (and MIG profile), or CPU, or memory."""

    resource: Resource
    gpu_type: str = ""
    sharing: str = ""
    profile: str = ""

    @property
    def unit(self) -> Unit:
        if self.resource is Resource.GPU:
            return Unit.INSTANCE_HOUR if self.sharing == "mig" else Unit.GPU_HOUR
        if self.resource in (Resource.STORAGE, Resource.NETWORK):
            return Unit.COST
        return Unit.CORE_HOUR if self.resource is Resource.CPU else Unit.GIB_HOUR

    def __str__(self) -> str:
        parts = [self.gpu_type, self.sharing, self.profile] if self.resource is Resource.GPU else [self.resource.value]
        return " ".join(part for part in parts if part)


CPU = RateKey(Resource.CPU)
MEMORY = RateKey(Resource.MEMORY)
STORAGE = RateKey(Resource.STORAGE)
NETWORK = RateKey(Resource.NETWORK)


@dataclass(frozen=True, slots=True)
class Rate:
    """A price in force during `[valid_from, valid_to)` (None: until further notice).

    `price` is per unit-hour, before `margin` (0.15 is 15 %); None: it is not known, so the time is unpriced.
    `hourly`: it has no price of its own, but OpenCost's unit cost of the cluster and hour (`UnitCosts`).
    `included_*` (GPU rates): what one whole card, or one MIG instance, brings along of the host's CPU and
    memory; only more than that is charged. None: whatever the pod asks for is included. 0: nothing is.
    """

    id: str
    key: RateKey
    price: Decimal | None
    valid_from: datetime
    valid_to: datetime | None = None
    margin: Decimal = Decimal(0)
    included_cpu_millicores: int | None = None
    included_memory_mib: int | None = None
    hourly: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "valid_from", as_utc(self.valid_from))
        decimal_of(self.margin)
        if self.price is not None and decimal_of(self.price) < 0:
            raise ValueError(f"rate {self.id} ({self.key}): a price can't be negative, it is {self.price}")
        if self.valid_to is not None:
            object.__setattr__(self, "valid_to", as_utc(self.valid_to))
            if as_utc(self.valid_to) <= self.valid_from:
                raise ValueError(
                    f"rate {self.id} ({self.key}) ends at {format_rfc3339(self.valid_to)}, not after its start "
                    f"{format_rfc3339(self.valid_from)}"
                )

    @property
    def unit_price(self) -> Fraction | None:
        """Exact price per unit-hour, margin included; None where it is not known."""
        return None if self.price is None else with_margin(self.price, self.margin)

    def covers(self, interval: Interval) -> bool:
        """Whether it is in force for all of the interval."""
        return self.valid_from <= interval.start and (self.valid_to is None or interval.end <= self.valid_to)


@lru_cache(maxsize=4096)
def with_margin(price: Decimal, margin: Decimal) -> Fraction:
    """A price with its margin, exact."""
    return Fraction(price) * (1 + Fraction(margin))


@dataclass(frozen=True, slots=True)
class UnitCost:
    """What OpenCost says that a unit cost in one cluster and hour; `id` names the row that it is kept in."""

    id: str
    price: Decimal
    currency: str


CostKey = tuple[Resource, str, str, datetime]
"""(resource, slug of a type of card or "", id of a cluster, start of an hour)."""


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Unit costs by hour. `names`: slugs of clusters by id. `answered`: hours of clusters with an
    answer, whatever it prices. `currency`: what is charged in.

    `stand_in`: for hours that OpenCost has not answered for yet, its last price before (charges so far; never a bill).
    """

    costs: Mapping[CostKey, UnitCost] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    answered: frozenset[tuple[str, datetime]] = frozenset()
    currency: str = ""
    stand_in: bool = False

    def find(self, key: RateKey, cluster: str, at: datetime) -> tuple[UnitCost | None, str]:
        """The unit cost of the hour in which `at` lies, and a reason where there is none, or where another hour's
        stands in."""
        start = hour_start(at)
        found = self.costs.get((key.resource, key.gpu_type, cluster, start))
        where = f"{self.names.get(cluster, cluster or 'its cluster')} {hour_words(start)}"
        if found is None and self.stand_in:
            earlier = start - HOUR
            while found is None and start - earlier <= 48 * HOUR:
                found = self.costs.get((key.resource, key.gpu_type, cluster, earlier))
                earlier -= HOUR
            if found is not None:
                reason = (
                    f"OpenCost has not answered for {where} yet: its price of {hour_words(earlier + HOUR)} stands in"
                )
                return self._in_currency(found, where, reason)
        if found is None:
            if (cluster, start) in self.answered:
                return None, f"OpenCost's answer for {where} has no unit cost of {key}"
            return None, f"OpenCost has not answered for {where}"
        return self._in_currency(found, where, "")

    def _in_currency(self, found: UnitCost, where: str, reason: str) -> tuple[UnitCost | None, str]:
        if found.currency != self.currency:
            return None, f"OpenCost's prices for {where} are in {found.currency}, and bills are in {self.currency}"
        return found, reason


def hour_words(start: datetime) -> str:
    """An hour as people write it: `14–15 h on 2026-11-03 (UTC)`."""
    return f"{start:%H}–{(start + HOUR):%H} h on {start:%Y-%m-%d} (UTC)"


class Problem(StrEnum):
    """What is wrong with a dated list."""

    OVERLAP = "overlap"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class RateProblem:
    """Time from `start` until `end` (None: without end) in which a key has two prices, or none.

    `message` says which, when, and what to do.
    """

    problem: Problem
    key: RateKey
    start: datetime
    end: datetime | None
    message: str


def overlaps(rates: Iterable[Rate]) -> list[RateProblem]:
    """For each rate that begins while another of its key is in force: the time in which both are."""
    found: list[RateProblem] = []
    for key, dated in _by_key(rates).items():
        standing = dated[0]
        for later in dated[1:]:
            if standing.valid_to is None or later.valid_from < standing.valid_to:
                found.append(_overlap(key, standing, later))
            if _ends_later(later, standing):
                standing = later
    return found


def _overlap(key: RateKey, first: Rate, second: Rate) -> RateProblem:
    end = first.valid_to if _ends_later(second, first) else second.valid_to
    until = format_rfc3339(end) if end else "further notice"
    return RateProblem(
        Problem.OVERLAP,
        key,
        second.valid_from,
        end,
        f"{key}: rates {first.id} and {second.id} are both in force from {format_rfc3339(second.valid_from)} "
        f"until {until}; end the first one where the second begins",
    )


def _ends_later(rate: Rate, other: Rate) -> bool:
    return other.valid_to is not None and (rate.valid_to is None or rate.valid_to > other.valid_to)


def gaps(rates: Iterable[Rate], window: Interval, keys: Iterable[RateKey]) -> list[RateProblem]:
    """Every stretch of the window in which one of the keys has no rate."""
    dated = _by_key(rates)
    return [
        RateProblem(
            Problem.GAP,
            key,
            hole.start,
            hole.end,
            f"{key}: no rate is in force from {format_rfc3339(hole.start)} until {format_rfc3339(hole.end)}; "
            f"enter one, or what was used then stays unpriced and the period can't be closed",
        )
        for key in sorted(set(keys))
        for hole in subtract(window, _in_force(dated.get(key, ()), window))
    ]


def changes(rates: Iterable[Rate], window: Interval) -> list[datetime]:
    """The instants inside the window at which some rate begins or ends: usage is cut there."""
    edges = {edge for rate in rates for edge in (rate.valid_from, rate.valid_to) if edge is not None}
    return sorted(edge for edge in edges if window.start < edge < window.end)


class RateBook:
    """Rates by key and time, with the unit costs that hourly ones need. Raises ValueError with every overlap: with two
    prices nobody knows what is owed."""

    def __init__(self, rates: Iterable[Rate], costs: UnitCosts | None = None) -> None:
        self.costs = costs or UnitCosts()
        self._dated = _by_key(rates)
        found = overlaps(rate for dated in self._dated.values() for rate in dated)
        if found:
            raise ValueError("; ".join(problem.message for problem in found))

    def for_segment(self, key: RateKey, segment: Interval) -> Rate | None:
        """The rate in force for all of the segment, or None. A change inside the segment raises ValueError:
        usage has to be cut there first."""
        for rate in self._dated.get(key, ()):
            if rate.covers(segment):
                return rate
            if _within(rate, segment) is not None:
                edge = rate.valid_from if segment.start < rate.valid_from else rate.valid_to
                raise ValueError(
                    f"{key}: the rate changes at {format_rfc3339(edge or segment.end)}, inside {segment}; "
                    f"cut the usage there before it is rated"
                )
        return None


def _in_force(rates: Iterable[Rate], window: Interval) -> list[Interval]:
    return [span for rate in rates if (span := _within(rate, window)) is not None]


def _within(rate: Rate, window: Interval) -> Interval | None:
    return clip(Interval(rate.valid_from, rate.valid_to or max(window.end, rate.valid_from)), window)


def _by_key(rates: Iterable[Rate]) -> dict[RateKey, Sequence[Rate]]:
    found: dict[RateKey, list[Rate]] = {}
    for rate in rates:
        found.setdefault(rate.key, []).append(rate)
    return {key: sorted(dated, key=lambda one: (one.valid_from, one.id)) for key, dated in found.items()}
