"""Which replicas get a new spec next. Pure.

One replica that serves is down at a time: the next one follows when the last is Ready with the new spec. Those that
don't serve anyway are brought up to date at once, so a corrected typo heals every one of them. A new spec that never
becomes Ready stops the rollout after its first replica; the others keep serving what they had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A replica that is not being deleted.

    Attributes:
        current: it has the wanted spec.
        in_place: the wanted spec holds the same devices, so it can change where it is; else it must be placed anew.
        serves: it is Ready, with whatever spec it shows.
        settled: it is Ready with the spec it has (what was applied last is what was seen).
        message: why it is not, for people.
    """

    index: int
    current: bool
    in_place: bool
    serves: bool
    settled: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now: indexes to update in place, at most one to place anew, and why the others wait."""

    update: tuple[int, ...] = ()
    replace: int | None = None
    waits: str = ""


def next_step(replicas: Sequence[ReplicaState], *, leaving: int) -> Step:
    """The next step of a rollout. ``leaving``: how many replicas are being deleted at the moment."""
    outdated = sorted((one for one in replicas if not one.current), key=lambda one: one.index)
    if not outdated:
        return Step()
    down = [one for one in outdated if not one.serves]
    update = tuple(one.index for one in down if one.in_place)
    moving = [one for one in down if not one.in_place]
    busy = [one for one in replicas if one.current and not one.settled]
    if moving and not leaving:
        return Step(update, moving[0].index)
    if update or moving:
        return Step(update)
    if leaving:
        return Step(waits=f"The rollout waits for {leaving} replicas to end.")
    if busy:
        first = min(busy, key=lambda one: one.index)
        said = f": {first.message}" if first.message else "."
        return Step(waits=f"The rollout waits for replica {first.index}{said}")
    first = outdated[0]
    return Step((first.index,)) if first.in_place else Step((), first.index)
