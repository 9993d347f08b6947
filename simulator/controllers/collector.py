"""Garbage collection by owner references: background, foreground, orphan."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.cluster import Cluster
from simulator.controllers.base import Controller, Key
from simulator.deletion import FOREGROUND, ORPHAN
from simulator.errors import ApiError
from simulator.kinds import EVENT, LEASE, Kind, Obj
from simulator.objects import is_deleting, name_of, namespace_of, uid_of
from simulator.options import Options
from simulator.store import Change

Place = tuple[Kind, str, str]


class Collector(Controller):
    """Keys are uids: of owners that went or are going, and of dependents that named an owner."""

    name = "collector"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._where: dict[str, Place] = {}
        self._dependents: dict[str, set[str]] = {}

    def interest(self, change: Change) -> Iterable[Key]:
        if change.kind in (EVENT, LEASE):
            return
        obj, uid = change.new.obj, uid_of(change.new.obj)
        if change.old is not None:
            for ref in change.old.obj["metadata"].get("ownerReferences") or []:
                self._dependents.get(ref["uid"], set()).discard(uid)
        owners = [ref["uid"] for ref in obj["metadata"].get("ownerReferences") or []]
        if change.type == "DELETED":
            self._where.pop(uid, None)
            yield from ((owner,) for owner in owners)
            yield (uid,)
            return
        self._where[uid] = (change.kind, namespace_of(obj), name_of(obj))
        for owner in owners:
            self._dependents.setdefault(owner, set()).add(uid)
            if owner not in self._where:
                yield (owner,)
        if is_deleting(obj) and obj["metadata"].get("finalizers"):
            yield (uid,)

    def start(self) -> Iterable[Key]:
        for kind in self.store.kinds():
            for obj in self.store.objects(kind):
                self._where[uid_of(obj)] = (kind, namespace_of(obj), name_of(obj))
                for ref in obj["metadata"].get("ownerReferences") or []:
                    self._dependents.setdefault(ref["uid"], set()).add(uid_of(obj))
        going = [uid for uid in self._where if is_deleting(self._object(uid) or {})]
        lost = [uid for uid in self._dependents if uid not in self._where]
        return [(uid,) for uid in going + lost]

    def _object(self, uid: str) -> Obj | None:
        place = self._where.get(uid)
        return self.registry.find(*place) if place else None

    def _below(self, uid: str) -> list[tuple[Place, Obj]]:
        out = []
        for dependent in sorted(self._dependents.get(uid, ())):
            place = self._where.get(dependent)
            obj = self.registry.find(*place) if place else None
            if place and obj is not None and uid_of(obj) == dependent:
                out.append((place, obj))
        return out

    def reconcile(self, key: Key) -> float | None:
        (uid,) = key
        place, owner = self._where.get(uid), self._object(uid)
        below = self._below(uid)
        if place is None or owner is None or uid_of(owner) != uid:
            for where, obj in below:
                self._orphaned(where, obj, uid)
            if not below:
                self._dependents.pop(uid, None)
            return None
        finalizers = owner["metadata"].get("finalizers") or []
        if not is_deleting(owner):
            return None
        if ORPHAN in finalizers:
            for where, obj in below:
                self._release(where, obj, {uid})
            self._drop_finalizer(place, ORPHAN)
        elif FOREGROUND in finalizers:
            self._foreground(place, uid, below)
        return None

    def _foreground(self, place: Place, uid: str, below: list[tuple[Place, Obj]]) -> None:
        for where, obj in below:
            if not is_deleting(obj):
                deep = "Foreground" if self._dependents.get(uid_of(obj)) else "Background"
                self._delete(where, obj, deep)
        if not any(
            r["uid"] == uid and r.get("blockOwnerDeletion")
            for _, obj in self._below(uid)
            for r in obj["metadata"].get("ownerReferences") or []
        ):
            self._drop_finalizer(place, FOREGROUND)

    def _orphaned(self, where: Place, obj: Obj, uid: str) -> None:
        """An owner is gone: the object goes with its last one, else it forgets it."""
        if is_deleting(obj):
            return
        owners = {ref["uid"] for ref in obj["metadata"].get("ownerReferences") or []}
        gone = {owner for owner in owners if owner not in self._where}
        if owners == gone:
            self._delete(where, obj, "Background")
        else:
            self._release(where, obj, gone)

    def _delete(self, where: Place, obj: Obj, propagation: str) -> None:
        kind, namespace, name = where
        try:
            self.registry.delete(kind, namespace, name, Options(propagation=propagation, uid=uid_of(obj)))
        except ApiError:
            return

    def _release(self, where: Place, obj: Obj, owners: set[str]) -> None:
        def change(new: Obj) -> None:
            rest = [r for r in new["metadata"].get("ownerReferences") or [] if r["uid"] not in owners]
            if rest:
                new["metadata"]["ownerReferences"] = rest
            else:
                new["metadata"].pop("ownerReferences", None)

        self.registry.modify(*where, change, self.options())

    def _drop_finalizer(self, place: Place, finalizer: str) -> None:
        def change(new: Obj) -> None:
            rest = [f for f in new["metadata"].get("finalizers") or [] if f != finalizer]
            if rest:
                new["metadata"]["finalizers"] = rest
            else:
                new["metadata"].pop("finalizers", None)

        self.registry.modify(*place, change, self.options())
