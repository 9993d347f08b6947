"""The state of a whole deployment from its replicas and its plan. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tenants.observing import Phase


class Replica(Protocol):
    """What is read of a replica (a row has it)."""

    index: int
    phase: str
    message: str
    ready: bool


@dataclass(frozen=True, slots=True)
class Status:
    """``phase`` in a word, ``waiting`` in a sentence ("" when nothing is waited for)."""

    phase: str
    ready_replicas: int
    reason: str
    waiting: str


def overall(
    *,
    wanted: int,
    replicas: Sequence[Replica],
    current: Sequence[bool],
    leaving: int,
    short_reason: str,
    short: str,
    rollout: str,
) -> Status:
    """Sum up.

    Args:
        wanted: how many replicas there should be.
        replicas: those that are not being deleted.
        current: for each of them, whether it shows the wanted spec, applied and seen.
        leaving: how many are being deleted.
        short_reason, short: why some have no place (a word and a sentence); "" when all have one.
        rollout: why a rollout does not go on; "" when nothing holds it up.
    """
    ready = sum(replica.ready for replica in replicas)
    if wanted == 0 and not replicas:
        if leaving:
            return Status("Progressing", 0, "ScalingToZero", f"{leaving} replicas have not ended yet.")
        return Status("Stopped", 0, "ScaledToZero", "")
    trouble = _first(replicas, Phase.FAILED) or _first(replicas, Phase.DEGRADED)
    starting = next((replica for replica in replicas if not replica.ready), None)
    unready = trouble or starting
    said = "" if unready is None else f"Replica {unready.index}: {unready.message}"
    if short:
        return Status("Waiting" if trouble is None else "Degraded", ready, short_reason, short)
    if ready >= wanted and all(current) and len(replicas) == wanted:
        return Status("Ready", ready, "Ready", "")
    if trouble is not None:
        return Status("Degraded" if ready else "Failed", ready, str(trouble.phase), rollout or said)
    return Status("Progressing", ready, "Progressing", rollout or said)


def _first(replicas: Sequence[Replica], phase: Phase) -> Replica | None:
    return next((replica for replica in replicas if replica.phase == phase), None)
