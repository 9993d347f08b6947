"""Conditions of a HelmRelease, as helm-controller writes them. Pure."""

from __future__ import annotations

import datetime as dt

from controlplane.api import Obj

ORDER = ("Reconciling", "Stalled", "Ready", "Released")


def now() -> str:
    """The present moment as Kubernetes writes it (whole seconds)."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: str, reason: str, message: str) -> Obj:
    """A condition without its time."""
    return {"type": kind, "status": status, "reason": reason, "message": message}


def changed(before: list[Obj], generation: int, rows: list[Obj], without: tuple[str, ...] = ()) -> list[Obj]:
    """The conditions with `rows` put in and the types of `without` taken out; a time changes with the status only."""
    known = {row["type"]: row for row in before if row["type"] not in without}
    for row in rows:
        old = known.get(row["type"])
        same = old is not None and old["status"] == row["status"]
        time = old["lastTransitionTime"] if same and old is not None else now()
        known[row["type"]] = {**row, "observedGeneration": generation, "lastTransitionTime": time}
    return sorted(known.values(), key=lambda row: ORDER.index(row["type"]) if row["type"] in ORDER else len(ORDER))


def find(status: Obj, kind: str) -> Obj:
    """The condition of this type, or an empty one."""
    return next((row for row in status.get("conditions") or [] if row["type"] == kind), {})
