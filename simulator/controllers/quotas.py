"""ResourceQuota status: what is hard and what is used."""

from __future__ import annotations

from collections.abc import Iterable

from simulator import quantity
from simulator.admission import quota_used
from simulator.controllers.base import Controller, Key
from simulator.kinds import EVENT, LEASE, RESOURCE_QUOTA, Obj
from simulator.objects import name_of, namespace_of
from simulator.store import Change


class Quotas(Controller):
    """Counts again whenever something in the namespace comes, goes or ends."""

    name = "quotas"

    def interest(self, change: Change) -> Iterable[Key]:
        if not change.kind.namespaced or change.kind in (EVENT, LEASE):
            return
        if change.kind != RESOURCE_QUOTA and change.type == "MODIFIED":
            before, after = change.old.obj.get("status") if change.old else None, change.new.obj.get("status")
            if (before or {}).get("phase") == (after or {}).get("phase"):
                return
        namespace = namespace_of(change.new.obj)
        if any(key[0] == namespace for key in self.store.table(RESOURCE_QUOTA)):
            yield (namespace,)

    def start(self) -> Iterable[Key]:
        return [(namespace_of(quota),) for quota in self.store.objects(RESOURCE_QUOTA)]

    def reconcile(self, key: Key) -> float | None:
        (namespace,) = key
        for quota in self.store.objects(RESOURCE_QUOTA, namespace):
            hard = quota["spec"].get("hard") or {}
            used = quota_used(self.store, namespace, list(hard))

            def change(obj: Obj, hard: Obj = hard, used: Obj = used) -> None:
                obj["status"] = {
                    "hard": dict(hard),
                    "used": {name: quantity.like(used[name], str(hard[name])) for name in hard},
                }

            self.registry.modify(RESOURCE_QUOTA, namespace, name_of(quota), change, self.options("status"))
        return None
