"""Time: instants are aware datetimes in UTC, spans are half-open, and periods are made here alone.

Durations are whole milliseconds. An instant is floored to its millisecond before two of them are subtracted,
so that the parts of a span always add up to the whole, wherever it is cut.

This module imports no Django.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
MILLISECOND = timedelta(milliseconds=1)

_RFC3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.(\d+))?(?:([Zz])|([+-])(\d{2}):(\d{2}))",
    re.ASCII,
)


# --- now ---


def _system_time() -> datetime:
    return datetime.now(UTC)


_sources: list[Callable[[], datetime]] = [_system_time]


def utcnow() -> datetime:
    """The present instant in UTC. Everything that asks for the time asks here."""
    return as_utc(_sources[-1]())


@contextmanager
def time_source(source: Callable[[], datetime]) -> Iterator[None]:
    """Within the block `utcnow` answers what `source` answers (tests, replays, seeding)."""
    _sources.append(source)
    try:
        yield
    finally:
        _sources.pop()


# --- instants ---


def as_utc(instant: datetime) -> datetime:
    """The same instant in UTC. A naive datetime raises ValueError: it does not say which instant it means."""
    if instant.utcoffset() is None:
        raise ValueError(f"{instant!r} has no time zone; give an aware datetime, for instance with tzinfo=UTC")
    return instant if instant.tzinfo is UTC else instant.astimezone(UTC)


def parse_rfc3339(text: str) -> datetime:
    """An instant from RFC 3339 text (`2026-11-29T16:31:14Z`, `…14.25+01:00`), in UTC.

    Strict: date, time and offset are all required. Digits beyond the microsecond are cut off. Raises
    ValueError with the text and the reason.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not an RFC 3339 instant; write it like 2026-11-29T16:31:14Z, with Z or an offset"
        )
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, _z, sign, offset_hours, offset_minutes = match.groups()[6:]
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    try:
        instant = datetime(year, month, day, hour, minute, second, micros, tzinfo=UTC)
        if sign is None:
            return instant
        if int(offset_hours) > 23 or int(offset_minutes) > 59:
            raise ValueError("the offset is out of range")
        offset = timedelta(hours=int(offset_hours), minutes=int(offset_minutes))
        return instant - offset if sign == "+" else instant + offset
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is not an instant: {error}") from error


def format_rfc3339(instant: datetime) -> str:
    """RFC 3339 text in UTC with a `Z`; a fraction only where there is one. `parse_rfc3339` reads it back
    unchanged."""
    text = as_utc(instant).replace(tzinfo=None).isoformat()
    return text.rstrip("0") + "Z" if "." in text else text + "Z"


def epoch_ms(instant: datetime) -> int:
    """Whole milliseconds since 1970-01-01T00:00:00Z, floored."""
    return (as_utc(instant) - EPOCH) // MILLISECOND


def from_epoch_ms(milliseconds: int) -> datetime:
    """The inverse of `epoch_ms`."""
    return EPOCH + milliseconds * MILLISECOND


def hour_start(instant: datetime) -> datetime:
    """The start of the UTC hour that contains `instant`."""
    return as_utc(instant).replace(minute=0, second=0, microsecond=0)


# --- intervals ---


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """`[start, end)` in UTC. `start == end` is empty; an end before the start raises ValueError."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", as_utc(self.start))
        object.__setattr__(self, "end", as_utc(self.end))
        if self.end < self.start:
            raise ValueError(
                f"an interval can't end at {format_rfc3339(self.end)}, before its start {format_rfc3339(self.start)}"
            )

    @property
    def ms(self) -> int:
        """Its length in whole milliseconds."""
        return epoch_ms(self.end) - epoch_ms(self.start)

    @property
    def is_empty(self) -> bool:
        return self.start == self.end

    def __contains__(self, instant: object) -> bool:
        return isinstance(instant, datetime) and self.start <= as_utc(instant) < self.end

    def overlaps(self, other: Interval) -> bool:
        """Whether they share any time; touching ends share none."""
        return max(self.start, other.start) < min(self.end, other.end)

    def __str__(self) -> str:
        return f"[{format_rfc3339(self.start)}, {format_rfc3339(self.end)})"


def ms(interval: Interval) -> int:
    """Whole milliseconds of an interval; additive over any cut."""
    return interval.ms


def total_ms(intervals: Iterable[Interval]) -> int:
    """Σ of whole milliseconds, overlaps counted as often as they occur."""
    return sum(interval.ms for interval in intervals)


def clip(interval: Interval, window: Interval) -> Interval | None:
    """The part of `interval` inside `window`; None when there is none."""
    start, end = max(interval.start, window.start), min(interval.end, window.end)
    return Interval(start, end) if start < end else None


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time as sorted intervals that neither overlap nor touch; empty ones are dropped."""
    merged: list[Interval] = []
    for interval in sorted(intervals):
        if interval.is_empty:
            continue
        if merged and interval.start <= merged[-1].end:
            if interval.end > merged[-1].end:
                merged[-1] = Interval(merged[-1].start, interval.end)
        else:
            merged.append(interval)
    return merged


def subtract(interval: Interval, holes: Iterable[Interval]) -> list[Interval]:
    """What of `interval` lies in none of `holes`, sorted."""
    parts: list[Interval] = []
    at = interval.start
    for hole in union(holes):
        if hole.end <= at:
            continue
        if hole.start >= interval.end:
            break
        if hole.start > at:
            parts.append(Interval(at, hole.start))
        at = hole.end
    if at < interval.end:
        parts.append(Interval(at, interval.end))
    return parts


def intersect(left: Iterable[Interval], right: Iterable[Interval]) -> list[Interval]:
    """The time that lies in both, sorted."""
    first, second = union(left), union(right)
    parts: list[Interval] = []
    i = j = 0
    while i < len(first) and j < len(second):
        part = clip(first[i], second[j])
        if part is not None:
            parts.append(part)
        if first[i].end <= second[j].end:
            i += 1
        else:
            j += 1
    return parts


def split_at(interval: Interval, instants: Iterable[datetime]) -> list[Interval]:
    """`interval` cut at each instant that lies inside it; the parts in order. An empty interval has no
    parts."""
    if interval.is_empty:
        return []
    cuts = sorted({as_utc(instant) for instant in instants})
    points = [interval.start, *(cut for cut in cuts if interval.start < cut < interval.end), interval.end]
    return [Interval(start, end) for start, end in pairwise(points)]


def hours(interval: Interval) -> Iterator[Interval]:
    """Each whole UTC hour that `interval` touches, in order (not cut to it)."""
    at = hour_start(interval.start)
    while at < interval.end:
        yield Interval(at, at + HOUR)
        at += HOUR


# --- billing periods ---


@dataclass(frozen=True, slots=True, order=True)
class Period(Interval):
    """A calendar month in a time zone, as two instants: what a bill is for. Stored with its instants, once
    made."""

    year: int
    month: int
    tz_name: str

    @property
    def label(self) -> str:
        """`2026-11`."""
        return f"{self.year:04d}-{self.month:02d}"


def zone(tz_name: str) -> ZoneInfo:
    """The time zone of an IANA name. Raises ValueError with the name where there is none."""
    try:
        return ZoneInfo(tz_name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"{tz_name!r} is no IANA time zone; write it like Europe/Berlin or UTC") from error


def billing_month(year: int, month: int, tz_name: str) -> Period:
    """The month from its first local midnight to the next month's: 743 or 745 h where the clocks change."""
    tz = zone(tz_name)
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    start = datetime(year, month, 1, tzinfo=tz).astimezone(UTC)
    end = datetime(*following, 1, tzinfo=tz).astimezone(UTC)
    return Period(start, end, year, month, tz_name)


def period_of(instant: datetime, tz_name: str) -> Period:
    """The billing month that contains `instant` in that zone."""
    local = as_utc(instant).astimezone(zone(tz_name))
    return billing_month(local.year, local.month, tz_name)


def next_period(period: Period) -> Period:
    """The month that begins at the instant at which this one ends."""
    return period_of(period.end, period.tz_name)


def previous_period(period: Period) -> Period:
    """The month that ends at the instant at which this one begins."""
    return period_of(period.start - MILLISECOND, period.tz_name)
