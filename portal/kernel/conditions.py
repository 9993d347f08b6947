"""Conditions: what is true of an object, since when and why (the shape of Kubernetes' ``metav1.Condition``).

Stored as a list in a JSON column ``conditions``. Pure, no Django.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

Status = Literal["True", "False", "Unknown"]


@dataclass(frozen=True)
class Condition:
    """One condition.

    Attributes:
        type: what is judged: ``Ready``, ``Placed``, ``Stalled``.
        status: ``True``, ``False`` or ``Unknown``; absent is not False.
        reason: one word for programs: ``QuotaExceeded``.
        message: a sentence for people, with the numbers.
        observed_generation: the generation of the wish that was judged.
        last_transition_time: since when ``status`` is what it is; UTC.
    """

    type: str
    status: Status
    reason: str
    message: str = ""
    observed_generation: int = 0
    last_transition_time: datetime | None = None

    def as_json(self) -> dict[str, Any]:
        """With Kubernetes' names."""
        moment = self.last_transition_time
        return {
            "type": self.type,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": self.observed_generation,
            "lastTransitionTime": moment.astimezone(UTC).isoformat().replace("+00:00", "Z") if moment else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Condition:
        """Read what :meth:`as_json` (or Kubernetes) wrote."""
        moment = data.get("lastTransitionTime")
        status = data.get("status", "Unknown")
        return cls(
            type=data["type"],
            status=status if status in ("True", "False") else "Unknown",
            reason=data.get("reason", ""),
            message=data.get("message", ""),
            observed_generation=int(data.get("observedGeneration") or 0),
            last_transition_time=datetime.fromisoformat(moment) if moment else None,
        )


def set_condition(
    conditions: Iterable[Mapping[str, Any]], new: Condition, *, now: datetime | None = None
) -> list[dict[str, Any]]:
    """The list with ``new`` in the place of the condition of its type, or at the end.

    ``lastTransitionTime`` moves to ``now`` (default: the clock's) only when ``status`` changes, so a message
    can be refreshed.
    """
    now = now or datetime.now(UTC)
    result: list[dict[str, Any]] = []
    placed = False
    for data in conditions:
        if data["type"] != new.type:
            result.append(dict(data))
            continue
        old = Condition.from_json(data)
        since = old.last_transition_time if old.status == new.status and old.last_transition_time else now
        result.append(replace(new, last_transition_time=since).as_json())
        placed = True
    if not placed:
        result.append(replace(new, last_transition_time=now).as_json())
    return result


def get_condition(conditions: Iterable[Mapping[str, Any]], type_: str) -> Condition | None:
    """The condition of that type, or ``None`` (which is not False)."""
    return next((Condition.from_json(data) for data in conditions if data["type"] == type_), None)


def drop_condition(conditions: Iterable[Mapping[str, Any]], type_: str) -> list[dict[str, Any]]:
    """The list without the condition of that type."""
    return [dict(data) for data in conditions if data["type"] != type_]
