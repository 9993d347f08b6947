"""CustomResourceDefinitions become Established."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.controllers.base import Controller, Key
from simulator.kinds import CRD, Obj
from simulator.objects import name_of
from simulator.store import Change


class Definitions(Controller):
    """Accepts the names and says so."""

    name = "definitions"

    def interest(self, change: Change) -> Iterable[Key]:
        if change.kind == CRD and change.type == "ADDED":
            yield (name_of(change.new.obj),)

    def start(self) -> Iterable[Key]:
        return [(name_of(crd),) for crd in self.store.objects(CRD)]

    def reconcile(self, key: Key) -> float | None:
        def change(obj: Obj) -> None:
            if obj["status"].get("conditions"):
                return
            now = self.registry.now()
            obj["status"] = {
                "conditions": [
                    {
                        "type": kind,
                        "status": "True",
                        "lastTransitionTime": now,
                        "reason": reason,
                        "message": message,
                    }
                    for kind, reason, message in (
                        ("NamesAccepted", "NoConflicts", "no conflicts found"),
                        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
                    )
                ],
                "acceptedNames": dict(obj["spec"]["names"]),
                "storedVersions": [v["name"] for v in obj["spec"].get("versions") or [] if v.get("storage")],
            }

        self.registry.modify(CRD, "", key[0], change, self.options("status"))
        return None
