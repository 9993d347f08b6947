"""Sets of field paths, as `managedFields` holds them, and the comparison of two objects.

An element is written as in FieldsV1 (structured-merge-diff, fieldpath/serialize-pe.go): `f:name` a field,
`k:{"name":"main"}` an item of a keyed list, `v:"text"` an item of a set; `.` marks the container itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from simulator.kinds import Obj
from simulator.schema import Path, is_atomic_map, is_set, item_key, list_keys

# Fields that nobody owns, by path from the root.
_UNOWNED_METADATA = (
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink",
    "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName",
)  # fmt: skip


class FieldSet:
    """A tree of path elements; `member` tells whether the path up to here is itself in the set."""

    __slots__ = ("children", "member")

    def __init__(self, member: bool = False) -> None:
        self.member = member
        self.children: dict[str, FieldSet] = {}

    @classmethod
    def from_v1(cls, tree: Obj) -> FieldSet:
        """Read a fieldsV1 tree."""
        root = cls()
        for element, below in tree.items():
            if element == ".":
                root.member = True
                continue
            child = cls.from_v1(below)
            if not below:
                child.member = True
            root.children[element] = child
        return root

    def to_v1(self) -> Obj:
        """Write a fieldsV1 tree."""
        out: Obj = {}
        if self.member and self.children:
            out["."] = {}
        for element in sorted(self.children):
            out[element] = self.children[element].to_v1()
        return out

    @property
    def empty(self) -> bool:
        """True if no path is in the set."""
        return not self.member and all(child.empty for child in self.children.values())

    def child(self, element: str) -> FieldSet:
        """The node below, made if it is missing."""
        return self.children.setdefault(element, FieldSet())

    def union(self, other: FieldSet) -> FieldSet:
        """Paths in either."""
        out = FieldSet(self.member or other.member)
        for element in {**self.children, **other.children}:
            mine, theirs = self.children.get(element), other.children.get(element)
            if mine is not None and theirs is not None:
                out.children[element] = mine.union(theirs)
            else:
                out.children[element] = mine or theirs  # type: ignore[assignment]
        return out

    def difference(self, other: FieldSet) -> FieldSet:
        """Paths in self and not in other."""
        out = FieldSet(self.member and not other.member)
        for element, mine in self.children.items():
            theirs = other.children.get(element)
            rest = mine.difference(theirs) if theirs is not None else mine
            if not rest.empty:
                out.children[element] = rest
        return out

    def intersection(self, other: FieldSet) -> FieldSet:
        """Paths in both."""
        out = FieldSet(self.member and other.member)
        for element, mine in self.children.items():
            theirs = other.children.get(element)
            if theirs is not None:
                both = mine.intersection(theirs)
                if not both.empty:
                    out.children[element] = both
        return out

    def equals(self, other: FieldSet) -> bool:
        """The same paths."""
        return self.difference(other).empty and other.difference(self).empty

    def paths(self, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        """Each member path, depth first, in order."""
        if self.member and above:
            yield above
        for element in sorted(self.children):
            yield from self.children[element].paths((*above, element))


def show(path: tuple[str, ...]) -> str:
    """A path as messages print it: `.spec.containers[name="main"].image`."""
    out = ""
    for element in path:
        mark, text = element[:2], element[2:]
        if mark == "f:":
            out += f".{text}"
        elif mark == "k:":
            pairs = json.loads(text).items()
            out += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in pairs) + "]"
        else:
            out += f"[={text}]"
    return out


def item_element(keys: tuple[str, ...], values: tuple[Any, ...]) -> str:
    """The element of a keyed list item."""
    pairs = dict(sorted(zip(keys, values, strict=True)))
    return "k:" + json.dumps(pairs, separators=(",", ":"))


def value_element(value: Any) -> str:
    """The element of a set's item."""
    return "v:" + json.dumps(value, separators=(",", ":"))


def indexed(items: list[Any], keys: tuple[str, ...]) -> dict[tuple[Any, ...], Any] | None:
    """Items of a keyed list by key, or None if they can't be told apart."""
    out: dict[tuple[Any, ...], Any] = {}
    for item in items:
        key = item_key(item, keys)
        if key is None or key in out:
            return None
        out[key] = item
    return out


def without_unowned(obj: Obj) -> Obj:
    """The object without kind, apiVersion and the metadata that the server keeps (shallow copies)."""
    out = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
    metadata = {k: v for k, v in obj.get("metadata", {}).items() if k not in _UNOWNED_METADATA}
    if metadata:
        out["metadata"] = metadata
    else:
        out.pop("metadata", None)
    return out


def fields_of(value: Any, path: Path = (), *, containers: bool = False) -> FieldSet:
    """The fields a value sets. With `containers` every map and list on the way counts as well, as it does for
    what an update adds; without, only leaves and list items, as for what is applied."""
    out = FieldSet()
    if isinstance(value, dict) and value and not (path and is_atomic_map(path)):
        out.member = containers and bool(path)
        for key, item in value.items():
            out.children[f"f:{key}"] = fields_of(item, (*path, key), containers=containers)
        return out
    if isinstance(value, list) and value:
        keys = list_keys(path)
        if keys:
            rows = indexed(value, keys)
            if rows is not None:
                out.member = containers
                for key, item in rows.items():
                    node = fields_of(item, path, containers=containers)
                    node.member = True
                    out.children[item_element(keys, key)] = node
                return out
        elif is_set(path):
            out.member = containers
            for item in value:
                out.children[value_element(item)] = FieldSet(True)
            return out
    out.member = bool(path) or value != {}
    return out


class Comparison:
    """What differs between two objects."""

    def __init__(self) -> None:
        self.added = FieldSet()
        self.modified = FieldSet()
        self.removed = FieldSet()

    @property
    def same(self) -> bool:
        """True if nothing differs."""
        return self.added.empty and self.modified.empty and self.removed.empty


def compare(old: Obj, new: Obj) -> Comparison:
    """Compare two objects, leaving out what nobody owns."""
    out = Comparison()
    left, right = without_unowned(old), without_unowned(new)
    left.setdefault("metadata", {})
    right.setdefault("metadata", {})
    _compare(left, right, (), out.added, out.modified, out.removed)
    return out


def _compare(old: Any, new: Any, path: Path, added: FieldSet, modified: FieldSet, removed: FieldSet) -> None:
    if old == new:
        return
    if isinstance(new, dict | list) and old is None:
        old = type(new)()  # a null of the empty object: the container itself does not count as added
    if isinstance(old, dict) and isinstance(new, dict) and not (path and is_atomic_map(path)):
        _compare_items(
            {f"f:{key}": (value, (*path, key)) for key, value in old.items()},
            {f"f:{key}": (value, (*path, key)) for key, value in new.items()},
            added, modified, removed,
        )  # fmt: skip
        return
    if isinstance(old, list) and isinstance(new, list):
        keys = list_keys(path)
        if keys:
            left, right = indexed(old, keys), indexed(new, keys)
            if left is not None and right is not None:
                _compare_items(
                    {item_element(keys, key): (item, path) for key, item in left.items()},
                    {item_element(keys, key): (item, path) for key, item in right.items()},
                    added, modified, removed,
                )  # fmt: skip
                return
        elif is_set(path):
            _compare_items(
                {value_element(item): (item, path) for item in old},
                {value_element(item): (item, path) for item in new},
                added, modified, removed,
            )  # fmt: skip
            return
    modified.member = True


def _compare_items(
    old: dict[str, tuple[Any, Path]],
    new: dict[str, tuple[Any, Path]],
    added: FieldSet,
    modified: FieldSet,
    removed: FieldSet,
) -> None:
    for element, (value, path) in new.items():
        before = old.get(element)
        if before is None:
            added.children[element] = _whole(element, value, path)
        elif before[0] != value:
            a, m, r = FieldSet(), FieldSet(), FieldSet()
            _compare(before[0], value, path, a, m, r)
            for target, node in ((added, a), (modified, m), (removed, r)):
                if not node.empty:
                    target.children[element] = node
    for element, (value, path) in old.items():
        if element not in new:
            removed.children[element] = _whole(element, value, path)


def _whole(element: str, value: Any, path: Path) -> FieldSet:
    if element.startswith("v:"):
        return FieldSet(True)
    node = fields_of(value, path, containers=True)
    node.member = True
    return node
