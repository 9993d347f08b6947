"""The objects of one cluster, with versions and a bounded history. Stored objects are never changed in place."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from simulator.errors import gone
from simulator.kinds import Kind, Obj
from simulator.objects import clone, name_of, namespace_of

Key = tuple[str, str]


class Entry:
    """A stored object with its JSON text, made once."""

    __slots__ = ("_raw", "obj", "version")

    def __init__(self, obj: Obj, version: int) -> None:
        self.obj = obj
        self.version = version
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        """The object as compact JSON."""
        if self._raw is None:
            self._raw = json.dumps(self.obj, separators=(",", ":"), ensure_ascii=False).encode()
        return self._raw


class Change(NamedTuple):
    """One step of history. `old` is None for ADDED; for DELETED `new` is the last state, with its own version."""

    version: int
    type: str
    kind: Kind
    new: Entry
    old: Entry | None


Listener = Callable[[Change], None]


class Store:
    """All objects of a cluster by kind, namespace and name; one counter of versions for all of them."""

    def __init__(self, history: int = 2000) -> None:
        self.version = 1
        self._limit = history
        self._tables: dict[Kind, dict[Key, Entry]] = {}
        self._history: dict[Kind, deque[Change]] = {}
        self._oldest: dict[Kind, int] = {}
        self._floor = 1
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call the listener after each change, in order."""
        self._listeners.append(listener)

    def get(self, kind: Kind, namespace: str, name: str) -> Entry | None:
        """The entry, or None."""
        return self._tables.get(kind, {}).get((namespace, name))

    def table(self, kind: Kind) -> dict[Key, Entry]:
        """All entries of a kind by (namespace, name); not to be changed."""
        return self._tables.get(kind, {})

    def objects(self, kind: Kind, namespace: str | None = None) -> list[Obj]:
        """The objects of a kind, of one namespace or of all; not to be changed."""
        entries = self._tables.get(kind, {})
        return [e.obj for (ns, _), e in entries.items() if namespace is None or ns == namespace]

    def kinds(self) -> Iterator[Kind]:
        """The kinds of which something is or was stored."""
        return iter(list(self._tables))

    def put(self, kind: Kind, obj: Obj) -> Entry:
        """Store a new state (the store owns it from now on) under the next version."""
        key = (namespace_of(obj), name_of(obj))
        table = self._tables.setdefault(kind, {})
        old = table.get(key)
        entry = self._stamp(obj)
        table[key] = entry
        self._record(Change(entry.version, "MODIFIED" if old else "ADDED", kind, entry, old))
        return entry

    def remove(self, kind: Kind, namespace: str, name: str, last: Obj | None = None) -> Entry | None:
        """Remove an object; its last state (or `last`) gets a version of its own in the history."""
        old = self._tables.get(kind, {}).pop((namespace, name), None)
        if old is None:
            return None
        entry = self._stamp(clone(last if last is not None else old.obj))
        self._record(Change(entry.version, "DELETED", kind, entry, old))
        return entry

    def _stamp(self, obj: Obj) -> Entry:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        return Entry(obj, self.version)

    def _record(self, change: Change) -> None:
        history = self._history.setdefault(change.kind, deque())
        history.append(change)
        while len(history) > self._limit:
            self._oldest[change.kind] = history.popleft().version
        for listener in self._listeners:
            listener(change)

    def oldest(self, kind: Kind) -> int:
        """The lowest version from which the kind's history is whole."""
        return max(self._floor, self._oldest.get(kind, 0))

    def since(self, kind: Kind, version: int) -> list[Change]:
        """The changes after a version, oldest first. Ask `oldest` first."""
        found: list[Change] = []
        for change in reversed(self._history.get(kind, ())):
            if change.version <= version:
                break
            found.append(change)
        found.reverse()
        return found

    def at(self, kind: Kind, version: int) -> dict[Key, Entry]:
        """The kind's entries as they were at a version; raises ApiError 410 if the history does not reach."""
        if version < self.oldest(kind):
            raise gone("The resourceVersion for the provided list is too old.")
        table = dict(self.table(kind))
        for change in reversed(self._history.get(kind, ())):
            if change.version <= version:
                break
            key = (namespace_of(change.new.obj), name_of(change.new.obj))
            if change.old is None:
                table.pop(key, None)
            else:
                table[key] = change.old
        return table

    def compact(self) -> int:
        """Forget all history; returns the version from which a watch can start."""
        for history in self._history.values():
            history.clear()
        self._floor = self.version
        return self.version

    def load(self, version: int, objects: list[tuple[Kind, Obj]]) -> None:
        """Take over saved objects as they are, without history; no listener is called."""
        self.version = self._floor = version
        for kind, obj in objects:
            key = (namespace_of(obj), name_of(obj))
            rv = int(obj["metadata"]["resourceVersion"])
            self._tables.setdefault(kind, {})[key] = Entry(obj, rv)
