"""Samples folded into hours.

A sample stands for the time since the sample before it, if that is at most two intervals: one missed scrape is
bridged. After a longer silence, and at a series' start, it stands for one interval. What no sample stands for is not
known. So a fold of a window needs the samples before it (they add nothing themselves), windows never overlap in what
they add, and a window that is folded again gives the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, NamedTuple

from infra.prometheus.types import Sample

HOUR_MS = 3_600_000

Figure = Literal["busy_percent", "memory_mib", "energy_mj"]


class Subject(NamedTuple):
    """Whose figures they are: the columns of ``infra.models.TelemetryHour`` that are its key."""

    uuid: str
    mig_instance: str
    scope: Literal["card", "pod"]
    namespace: str
    pod: str
    container: str


@dataclass(frozen=True)
class Track:
    """One figure of a subject over time: percent (0 to 100), MiB in use, or an energy counter in mJ."""

    subject: Subject
    figure: Figure
    samples: tuple[Sample, ...]
    node: str = ""
    mig_profile: str = ""


@dataclass
class Figures:
    """What is known of a subject in an hour; ``None`` is not known. ``busy`` and ``memory`` are percent·ms ÷ 100 and
    MiB·ms, exact."""

    busy: Decimal | None = None
    observed_ms: int | None = None
    memory: Decimal | None = None
    memory_observed_ms: int | None = None
    memory_max: Decimal | None = None
    energy_mj: int | None = None


@dataclass
class HourRow:
    """An hour of a subject."""

    hour_ms: int
    subject: Subject
    node: str = ""
    mig_profile: str = ""
    figures: Figures = field(default_factory=Figures)

    @property
    def busy_ms(self) -> int | None:
        """Rounded half up to a millisecond."""
        return None if self.figures.busy is None else int(self.figures.busy + Decimal("0.5"))


_Point = tuple[int, Decimal | None, Track]


def fold(tracks: Iterable[Track], start_ms: int, end_ms: int, interval_ms: int) -> list[HourRow]:
    """The hours of ``[start_ms, end_ms)``: what the samples inside stand for (it may reach back before ``start_ms``).

    Args:
        tracks: with the samples of at least two intervals before the window.
    """
    lines: dict[object, list[_Point]] = defaultdict(list)
    for track in tracks:
        subject = track.subject
        # A card is held by one pod after another: their samples are one line, so no time is told twice.
        line = (*subject[:3], track.figure, *(subject[3:] if subject.scope == "pod" else ()))
        lines[line] += [(moment, value, track) for moment, value in track.samples]
    rows: dict[tuple[int, Subject], HourRow] = {}
    for points in lines.values():
        points.sort(key=lambda point: point[0])
        _fold_line(points, start_ms, end_ms, interval_ms, rows)
    return [rows[key] for key in sorted(rows)]


def _fold_line(
    points: list[_Point], start_ms: int, end_ms: int, interval_ms: int, rows: dict[tuple[int, Subject], HourRow]
) -> None:
    before: int | None = None
    counted: tuple[int, Decimal] | None = None
    for moment, value, track in points:
        if before is not None and moment <= before:
            continue  # the same instant from two series: the first is as good
        if start_ms <= moment < end_ms:
            near = before is not None and moment - before <= 2 * interval_ms
            since = before if near and before is not None else moment - interval_ms
            if track.figure == "energy_mj":
                if counted is not None and value is not None and value >= counted[1]:
                    _add_energy(rows, track, counted[0], moment, int(value - counted[1]))
            elif value is not None:
                _add_level(rows, track, since, moment, value)
        if value is not None:
            counted = (moment, value)
        before = moment


def _add_level(rows: dict[tuple[int, Subject], HourRow], track: Track, since: int, until: int, value: Decimal) -> None:
    for hour, length in _hours(since, until):
        figures = _row(rows, track, hour).figures
        if track.figure == "busy_percent":
            figures.busy = (figures.busy or Decimal(0)) + value * length / 100
            figures.observed_ms = (figures.observed_ms or 0) + length
        else:
            figures.memory = (figures.memory or Decimal(0)) + value * length
            figures.memory_observed_ms = (figures.memory_observed_ms or 0) + length
            figures.memory_max = value if figures.memory_max is None else max(figures.memory_max, value)


def _add_energy(rows: dict[tuple[int, Subject], HourRow], track: Track, since: int, until: int, used: int) -> None:
    given = 0
    for hour, length in _hours(since, until):
        upto = used * (min(hour + HOUR_MS, until) - since) // (until - since)
        figures = _row(rows, track, hour).figures
        figures.energy_mj = (figures.energy_mj or 0) + upto - given
        given = upto
        del length


def _row(rows: dict[tuple[int, Subject], HourRow], track: Track, hour: int) -> HourRow:
    row = rows.get((hour, track.subject))
    if row is None:
        row = rows[hour, track.subject] = HourRow(hour, track.subject)
    row.node = row.node or track.node
    row.mig_profile = row.mig_profile or track.mig_profile
    return row


def _hours(since: int, until: int) -> Iterator[tuple[int, int]]:
    """(start of the hour, milliseconds in it) of a stretch."""
    at = since
    while at < until:
        hour = at // HOUR_MS * HOUR_MS
        end = min(hour + HOUR_MS, until)
        yield hour, end - at
        at = end
