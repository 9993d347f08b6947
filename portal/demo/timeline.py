"""What the demonstration's pods did in the past: a pure, repeatable timetable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal

Sharing = Literal["whole", "hami", "mig"]
MONDAY, TUESDAY, FRIDAY, SATURDAY = 0, 1, 4, 5


@dataclass(frozen=True)
class Run:
    """One pod of the past: where it ran, what it held, from when to when.

    ``node`` counts the nodes of that cluster, product and sharing by name. ``card`` is the HAMi card that it shared.
    ``bound`` is when the scheduler gave it its node; between that and ``start`` its image was pulled.
    """

    cluster: str
    namespace: str
    name: str
    product: str
    sharing: Sharing
    node: int
    bound: datetime
    start: datetime
    end: datetime
    gpus: int = 1
    profile: str = ""
    card: int = 0
    memory_mib: int = 0
    cores: int = 0
    owner: str = "Job"


def timeline(since: datetime, until: datetime) -> list[Run]:
    """All runs within [since, until), in the order in which they were bound. Both at full minutes, UTC."""
    runs = [run for make in (_ml_team, _team_vision, _notebooks, _others) for run in make(since, until)]
    return sorted((run for run in runs if run.start < run.end), key=lambda run: (run.bound, run.namespace, run.name))


def _days(since: datetime, until: datetime) -> Iterator[datetime]:
    day = datetime(since.year, since.month, since.day, tzinfo=UTC)
    while day < until:
        yield day
        day += timedelta(days=1)


def _between(since: datetime, until: datetime, start: datetime, hours: float) -> tuple[datetime, datetime] | None:
    first, last = max(since, start), min(until, start + timedelta(hours=hours))
    return (first, last) if first < last else None


def _ml_team(since: datetime, until: datetime) -> Iterator[Run]:
    """A chat service all the time on two cards (made anew each Monday), a summariser on weekdays."""
    edges = [since, *(day + timedelta(hours=6) for day in _days(since, until) if day.weekday() == MONDAY), until]
    edges = sorted({edge for edge in edges if since <= edge <= until})
    for number, (start, end) in enumerate(pairwise(edges)):
        for replica in range(2):
            yield Run(
                "gpu-fra-1", "t-ml-team", f"chat-{number:02d}-{replica}", "H100", "whole", 0,
                start, start + timedelta(minutes=3 + replica), end - timedelta(seconds=30), owner="ReplicaSet",
            )  # fmt: skip
    for day in _days(since, until):
        if day.weekday() < SATURDAY and (span := _between(since, until, day + timedelta(hours=7), 12)):
            bound, end = span
            yield Run(
                "gpu-fra-1", "t-ml-team", f"summariser-{day:%m%d}", "L4", "whole", 0,
                bound, bound + timedelta(seconds=80), end, owner="ReplicaSet",
            )  # fmt: skip


def _team_vision(since: datetime, until: datetime) -> Iterator[Run]:
    """Two trainings a week on eight cards, an evaluation after each, and short checks every day."""
    for day in _days(since, until):
        if day.weekday() in (TUESDAY, FRIDAY) and (span := _between(since, until, day + timedelta(hours=18), 30)):
            bound, end = span
            for worker in range(2):
                yield Run(
                    "gpu-fra-1", "team-vision", f"train-{day:%m%d}-{worker}", "H100", "whole", 1,
                    bound, bound + timedelta(minutes=4), end, gpus=4,
                )  # fmt: skip
            if check := _between(since, until, end, 0.4):
                yield Run(
                    "gpu-fra-1", "team-vision", f"evaluate-{day:%m%d}", "L4", "whole", 1,
                    check[0], check[0] + timedelta(seconds=20), check[1],
                )  # fmt: skip
        if span := _between(since, until, day + timedelta(hours=9, minutes=12), 1):
            # Forty seconds: what a five-minute grid never sees.
            bound = span[0]
            yield Run(
                "gpu-fra-1", "team-vision", f"check-{day:%m%d}", "L4", "whole", 2,
                bound, bound + timedelta(seconds=5), bound + timedelta(seconds=45),
            )  # fmt: skip


def _notebooks(since: datetime, until: datetime) -> Iterator[Run]:
    """Shares of cards (HAMi) and MIG slices, on weekdays."""
    for day in _days(since, until):
        if day.weekday() >= SATURDAY:
            continue
        if span := _between(since, until, day + timedelta(hours=8), 10):
            for number in range(3):
                yield Run(
                    "gpu-fra-2", "team-lab", f"notebook-{day:%m%d}-{number}", "A100", "hami", 0,
                    span[0], span[0] + timedelta(seconds=15), span[1], card=number // 2,
                    memory_mib=20_000 * (1 + number % 2), cores=25 * (1 + number % 2), owner="StatefulSet",
                )  # fmt: skip
            for number in range(2):
                yield Run(
                    "gpu-hel-1", "team-course", f"slice-{day:%m%d}-{number}", "H100", "mig", 0,
                    span[0], span[0] + timedelta(seconds=25), span[1], profile="1g.10gb", owner="StatefulSet",
                )  # fmt: skip


def _others(since: datetime, until: datetime) -> Iterator[Run]:
    """A namespace that nobody has claimed, and the platform's own weekly test."""
    for day in _days(since, until):
        if day.weekday() < SATURDAY and (span := _between(since, until, day + timedelta(hours=1), 3)):
            yield Run(
                "gpu-fra-2", "legacy-batch", f"nightly-{day:%m%d}", "A100", "whole", 0,
                span[0], span[0] + timedelta(seconds=40), span[1], gpus=2,
            )  # fmt: skip
        if day.weekday() == MONDAY and (span := _between(since, until, day + timedelta(hours=4), 1)):
            yield Run(
                "gpu-fra-2", "gpu-operator", f"card-test-{day:%m%d}", "A100", "whole", 1,
                span[0], span[0] + timedelta(seconds=10), span[1],
            )  # fmt: skip
