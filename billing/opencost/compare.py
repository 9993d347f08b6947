"""Why OpenCost's card-seconds differ from ours, class by class. Pure: no Django.

One comparison is of all pods of one name in one window that OpenCost was asked for. The difference is taken apart in
steps, each from evidence; what is left is *unexplained*, and shown as such. Σ of the parts is the difference, exactly.

============  =========================================================================================================
HAMi share    ``nvidia.com/gpu: 1`` of a HAMi pod is read as a whole card
MIG           resources ``nvidia.com/mig-*`` are not known to it
starting      we count from the container that holds the card (init containers, termination): it counts running alone
short         between two of its samples a run leaves no trace: no row
recreated     rows are keyed by name: the gap between two pods of one name is billed, and which of them counts is lost
grid          starts and ends lie on samples that are minutes apart
window        a window off the 5-minute marks loses what lies beyond them
missing       a pod that ran over several of its samples, and yet has no row
first day     it knows of time before we were connected, or that we only rebuilt from history
rounding      its hours have five decimals: no difference to speak of
unexplained   the rest
============  =========================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fractions import Fraction

from portal.kernel.clock import Interval, epoch_ms, union

GRID_MS = 300_000
"""Samples of its default resolution are five minutes apart."""
RENEWAL_MS = 60_000
"""It renews its metric of cards once a minute, whatever the scrape interval."""
ROUNDING = Fraction(5, 100)
"""Hours are rounded to five decimals: so many seconds a row are no difference."""


class Class(StrEnum):
    """Why figures differ."""

    HAMI = "hami"
    MIG = "mig"
    STARTING = "starting"
    SHORT = "short"
    RECREATED = "recreated"
    GRID = "grid"
    WINDOW = "window"
    MISSING = "missing"
    FIRST_DAY = "first_day"
    PRICE = "price"
    ROUNDING = "rounding"
    UNEXPLAINED = "unexplained"


WORDS = {
    Class.HAMI: "share counted as a whole card",
    Class.MIG: "MIG not counted",
    Class.STARTING: "held while starting or ending",
    Class.SHORT: "too short to be seen",
    Class.RECREATED: "one row for one name",
    Class.GRID: "edges on a grid",
    Class.WINDOW: "window off the grid",
    Class.MISSING: "its row is missing",
    Class.FIRST_DAY: "before we watched",
    Class.PRICE: "another price",
    Class.ROUNDING: "rounding",
    Class.UNEXPLAINED: "unexplained",
}


@dataclass(frozen=True, slots=True)
class Run:
    """What one pod held of one kind, in the window.

    Attributes:
        cards: how many devices (cards, shares of cards, MIG instances).
        share: what one of them is of a card.
        held: when they were charged to whoever had the namespace.
        running: when its main containers ran; None where only ``held`` is known.
        weak: the evidence begins when we were connected, or was rebuilt from history.
    """

    uid: str
    sharing: str
    cards: int
    share: Fraction
    held: Interval
    running: Interval | None = None
    weak: bool = False

    @property
    def ran(self) -> Interval:
        """When OpenCost could have counted it."""
        return self.running or self.held


@dataclass(frozen=True, slots=True)
class Difference:
    """Card-seconds of ours and theirs, and what the difference is made of. ``theirs`` is None for no row."""

    ours: Fraction
    theirs: Fraction | None
    parts: tuple[tuple[Class, Fraction], ...]

    @property
    def difference(self) -> Fraction:
        """Theirs less ours: Σ of the parts."""
        return (self.theirs or Fraction(0)) - self.ours

    @property
    def classes(self) -> list[Class]:
        """The classes of it, in the order of the table above; empty: the same, but for rounding."""
        return [name for name, _ in self.parts if name is not Class.ROUNDING]


def compare(
    window: Interval, runs: Sequence[Run], theirs: Fraction | None, *, watched_from: datetime | None = None
) -> Difference:
    """All pods of one name in one window.

    Args:
        runs: ours, already cut to the window (``held`` and ``running``).
        theirs: card-seconds of OpenCost's row; None where it has none.
        watched_from: since when the cluster is watched.
    """
    ours = sum((run.cards * run.share * run.held.ms / 1000 for run in runs), Fraction(0))
    found = _Parts()
    counted: list[tuple[Run, Fraction]] = []
    for run in runs:
        whole = Fraction(run.cards * run.held.ms, 1000)
        if run.sharing == "mig":
            found.add(Class.MIG, -run.share * whole)
        elif theirs is None:
            counted.append((run, run.share * whole))
        else:
            found.add(Class.HAMI, (1 - run.share) * whole)
            found.add(Class.STARTING, Fraction(run.cards * (run.ran.ms - run.held.ms), 1000))
            counted.append((run, Fraction(run.cards * run.ran.ms, 1000)))
    rest = (theirs or Fraction(0)) - ours - found.total
    _explain(found, rest, window, counted, theirs, watched_from)
    return Difference(ours, theirs, found.sorted())


def _explain(
    found: _Parts, rest: Fraction, window: Interval, runs: Sequence[tuple[Run, Fraction]], theirs: Fraction | None,
    watched_from: datetime | None,
) -> None:  # fmt: skip
    """What is left without shares, MIG and starting. ``runs``: each with the seconds that are left of it."""
    if abs(rest) <= ROUNDING:
        found.add(Class.ROUNDING, rest)
    elif rest > 0 and ((watched_from is not None and window.start < watched_from) or any(run.weak for run, _ in runs)):
        found.add(Class.FIRST_DAY, rest)
    elif not runs:
        found.add(Class.UNEXPLAINED, rest)
    elif epoch_ms(window.start) % GRID_MS or epoch_ms(window.end) % GRID_MS:
        found.add(Class.WINDOW, rest)
    elif not theirs:
        unseen = sum((seconds for run, seconds in runs if not (_seen(run) and _renewed(run))), Fraction(0))
        found.add(Class.SHORT, -unseen)
        found.add(Class.MISSING, rest + unseen)
    else:
        rest -= _recreated(found, runs)
        allowed = sum((Fraction(run.cards * GRID_MS * _edges(run, window), 1000) for run, _ in runs), Fraction(0))
        name = Class.ROUNDING if abs(rest) <= ROUNDING else Class.GRID if abs(rest) <= allowed else Class.UNEXPLAINED
        found.add(name, rest)


def _recreated(found: _Parts, runs: Sequence[tuple[Run, Fraction]]) -> Fraction:
    """Several pods of one name are one row from the first to the last of them: the gaps between are billed too.

    What counts in the row is the last of them, with its cards.
    """
    if len({run.uid for run, _ in runs}) < 2:
        return Fraction(0)
    ran = union(run.ran for run, _ in runs)
    last = max((run for run, _ in runs), key=lambda run: (run.ran.start, run.uid)).uid
    cards = sum(run.cards for run, _ in runs if run.uid == last)
    counted = Fraction(cards * Interval(ran[0].start, ran[-1].end).ms, 1000)
    part = counted - sum((seconds for _, seconds in runs), Fraction(0))
    found.add(Class.RECREATED, part)
    return part


def _seen(run: Run) -> bool:
    """Whether one of its samples lies in the run."""
    return -(-epoch_ms(run.ran.start) // GRID_MS) * GRID_MS <= epoch_ms(run.ran.end)


def _renewed(run: Run) -> bool:
    """Whether the run lasted over a minute's mark, when OpenCost renews its metric of cards."""
    return epoch_ms(run.ran.end) // RENEWAL_MS > epoch_ms(run.ran.start) // RENEWAL_MS


def _edges(run: Run, window: Interval) -> int:
    """How many of its start and end lie inside the window, where they are moved to a sample."""
    return int(run.ran.start > window.start) + int(run.ran.end < window.end)


class _Parts:
    """Parts by class; nothing is kept of a class that comes to nothing."""

    def __init__(self) -> None:
        self._sums: dict[Class, Fraction] = {}

    def add(self, name: Class, seconds: Fraction) -> None:
        if seconds:
            self._sums[name] = self._sums.get(name, Fraction(0)) + seconds

    @property
    def total(self) -> Fraction:
        return sum(self._sums.values(), Fraction(0))

    def sorted(self) -> tuple[tuple[Class, Fraction], ...]:
        return tuple((name, self._sums[name]) for name in Class if self._sums.get(name))


def together(differences: Iterable[Difference]) -> Difference:
    """Several comparisons added up; no row only where none of them had one. Parts of a class that cancel are left."""
    ours, theirs, found, rows = Fraction(0), Fraction(0), _Parts(), False
    for one in differences:
        ours += one.ours
        theirs += one.theirs or Fraction(0)
        rows = rows or one.theirs is not None
        for name, seconds in one.parts:
            found.add(name, seconds)
    return Difference(ours, theirs if rows else None, found.sorted())
