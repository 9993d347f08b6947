"""Field ownership (`metadata.managedFields`) and server-side apply.

The rules are those of structured-merge-diff (sigs.k8s.io/structured-merge-diff, merge/update.go): an apply merges
the given object into the live one, removes what the manager applied before and no longer sends unless somebody
else owns it, and refuses to change what others own unless forced.
"""

from __future__ import annotations

from typing import Any, cast

from simulator.errors import apply_conflict
from simulator.fields import (
    Comparison,
    FieldSet,
    compare,
    fields_of,
    indexed,
    item_element,
    show,
    value_element,
    without_unowned,
)
from simulator.kinds import Obj
from simulator.objects import clone
from simulator.schema import KEY_DEFAULTS, Path, is_atomic_map, is_set, list_keys

Manager = tuple[str, str, str, str]
"""(manager, operation, apiVersion, subresource)"""


class Ownership:
    """Who owns which fields of one object."""

    def __init__(self, obj: Obj) -> None:
        self.sets: dict[Manager, FieldSet] = {}
        self.times: dict[Manager, str] = {}
        for row in obj.get("metadata", {}).get("managedFields") or []:
            who = (row["manager"], row["operation"], row["apiVersion"], row.get("subresource", ""))
            self.sets[who] = FieldSet.from_v1(row.get("fieldsV1") or {})
            self.times[who] = row.get("time", "")

    def rows(self) -> list[Obj]:
        """The managedFields list, sorted as the server sorts it: operation, time, manager."""
        order = sorted(self.sets, key=lambda who: (who[1], self.times.get(who, ""), who[0], who[2], who[3]))
        out = []
        for manager, operation, version, sub in order:
            who = (manager, operation, version, sub)
            row: Obj = {
                "manager": manager,
                "operation": operation,
                "apiVersion": version,
                "time": self.times.get(who, ""),
                "fieldsType": "FieldsV1",
                "fieldsV1": self.sets[who].to_v1(),
            }
            if sub:
                row["subresource"] = sub
            out.append(row)
        return out

    def conflicts(self, me: Manager, difference: Comparison) -> list[tuple[Manager, FieldSet]]:
        """The fields of others that the difference would change."""
        touched = difference.modified.union(difference.added)
        found = []
        for who, owned in self.sets.items():
            if who != me:
                both = owned.intersection(touched)
                if not both.empty:
                    found.append((who, both))
        return found

    def take_over(self, me: Manager, difference: Comparison) -> None:
        """Others lose what the difference changes or removes."""
        for who, lost in self.conflicts(me, difference):
            self.sets[who] = self.sets[who].difference(lost)
        if not difference.removed.empty:
            for who in self.sets:
                if who != me:
                    self.sets[who] = self.sets[who].difference(difference.removed)
        self._drop_empty()

    def _drop_empty(self) -> None:
        for who in [who for who, owned in self.sets.items() if owned.empty]:
            del self.sets[who]


def track_update(old: Obj, new: Obj, manager: str, subresource: str, now: str) -> None:
    """Write the managedFields of `new` after an update (create, PUT, PATCH) of `old` by the manager."""
    difference = compare(old, new)
    if difference.same:
        if "managedFields" in old["metadata"]:
            new["metadata"]["managedFields"] = old["metadata"]["managedFields"]
        return
    owners = Ownership(old)
    me: Manager = (manager, "Update", new["apiVersion"], subresource)
    owners.take_over(me, difference)
    mine = owners.sets.get(me, FieldSet())
    after = mine.union(difference.modified).union(difference.added).difference(difference.removed)
    if not after.empty:
        owners.sets[me] = after
    else:
        owners.sets.pop(me, None)
    owners.times[me] = now
    set_rows(new, owners)


def set_rows(obj: Obj, owners: Ownership) -> None:
    """Put the ownership into the object."""
    rows = owners.rows()
    if rows:
        obj["metadata"]["managedFields"] = rows
    else:
        obj["metadata"].pop("managedFields", None)


def apply(live: Obj | None, given: Obj, manager: str, subresource: str, force: bool, now: str) -> Obj:
    """The object after the manager applied `given` onto `live` (None: it does not exist yet).

    Raises ApiError 409 naming managers and fields. Defaults and validation come afterwards."""
    given = cast("Obj", strip_nulls(given))
    given.get("metadata", {}).pop("managedFields", None)
    me: Manager = (manager, "Apply", given["apiVersion"], subresource)
    mine = fields_of(without_unowned(given))
    if live is None:
        out = clone(given)
        owners = Ownership({})
    else:
        owners = Ownership(live)
        out = merge(live, given)
        last = owners.sets.get(me)
        if last is not None:
            keep = mine
            for who, owned in owners.sets.items():
                if who != me:
                    keep = keep.union(owned)
            out = _prune(out, last, keep, ())
        difference = compare(live, out)
        found = owners.conflicts(me, difference)
        if found and not force:
            raise apply_conflict([(printed(who), show(p)) for who, lost in found for p in lost.paths()])
        owners.take_over(me, difference)
    before = owners.sets.get(me)
    owners.sets[me] = mine
    if mine.empty:
        del owners.sets[me]
    elif live is None or before is None or not before.equals(mine) or not compare(live, out).same:
        owners.times[me] = now
    out.setdefault("metadata", {})
    set_rows(out, owners)
    return cast("Obj", out)


def printed(who: Manager) -> str:
    """A manager as conflict messages name it."""
    manager, operation, version, subresource = who
    text = f'"{manager}"'
    if subresource:
        text += f' with subresource "{subresource}"'
    return f"{text} using {version}" if operation == "Update" else text


def strip_nulls(value: Any) -> Any:
    """A copy without null fields: for an apply they say nothing."""
    if isinstance(value, dict):
        return {key: strip_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [strip_nulls(item) for item in value]
    return value


def merge(live: Any, given: Any, path: Path = ()) -> Any:
    """Merge what is given into the live value; neither is changed."""
    if isinstance(live, dict) and isinstance(given, dict) and not (path and is_atomic_map(path)):
        out = dict(live)
        for key, value in given.items():
            out[key] = merge(live[key], value, (*path, key)) if key in live else clone(value)
        return out
    if isinstance(live, list) and isinstance(given, list):
        keys = list_keys(path)
        if keys:
            left, right = indexed(live, keys), indexed(given, keys)
            if left is not None and right is not None:
                order = _order(list(left), list(right))
                return [_merge_item(left.get(key), right.get(key), path) for key in order]
        elif is_set(path):
            return [*live, *(item for item in given if item not in live)]
    return clone(given)


def _order(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The order of a merged list: what is given keeps its order, the rest stays where it was between."""
    out: list[tuple[Any, ...]] = []
    rest, given = iter(left), list(right)
    for key in rest:
        if key not in right:
            out.append(key)
        while key in given:
            out.append(given.pop(0))
    return out + given


def _merge_item(live: Any, given: Any, path: Path) -> Any:
    if given is None:
        return live
    if live is None:
        return clone(given)
    return merge(live, given, path)


def _prune(value: Any, last: FieldSet, keep: FieldSet, path: Path) -> Any:
    """Remove from the merged value what is in `last` and nobody keeps."""
    if isinstance(value, dict):
        out = dict(value)
        for element, node in last.children.items():
            key = element[2:]
            if not element.startswith("f:") or key not in out:
                continue
            kept = keep.children.get(element)
            if not path and key == "metadata":  # holds what nobody owns: name, uid, versions
                kept = kept or FieldSet(True)
            if kept is None or kept.empty:
                del out[key]
            elif node.children:
                pruned = _prune(out[key], node, kept, (*path, key))
                if pruned in ({}, []) and out[key] not in ({}, []):
                    del out[key]
                else:
                    out[key] = pruned
        return out
    if isinstance(value, list):
        keys = list_keys(path)
        out_list = []
        for item in value:
            named = _element(item, keys, path)
            mine = last.children.get(named) if named else None
            others = keep.children.get(named) if named else None
            if mine is None:
                out_list.append(item)
            elif others is not None and not others.empty:
                out_list.append(_prune(item, mine, others, path))
        return out_list
    return value


def _element(item: Any, keys: tuple[str, ...] | None, path: Path) -> str | None:
    if keys:
        rows = indexed([item], keys)
        return item_element(keys, next(iter(rows))) if rows else None
    return value_element(item) if is_set(path) else None


def fill_list_keys(value: Any, path: Path = ()) -> None:
    """Write the defaults of list keys (protocol: TCP) into an object, in place."""
    if isinstance(value, dict):
        for key, item in value.items():
            fill_list_keys(item, (*path, key))
    elif isinstance(value, list):
        keys = list_keys(path) or ()
        for item in value:
            if isinstance(item, dict):
                for key in keys:
                    if key in KEY_DEFAULTS:
                        item.setdefault(key, KEY_DEFAULTS[key])
            fill_list_keys(item, path)
