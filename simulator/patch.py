"""The three other kinds of PATCH: merge patch (RFC 7386), strategic merge patch, JSON patch (RFC 6902)."""

from __future__ import annotations

from typing import Any

from simulator.errors import ApiError, bad_request, status
from simulator.fields import indexed
from simulator.objects import clone
from simulator.schema import Path, is_set, item_key, list_keys


def merge_patch(live: Any, patch: Any) -> Any:
    """RFC 7386: null removes, maps merge, everything else is replaced."""
    if not isinstance(patch, dict):
        return clone(patch)
    out = dict(live) if isinstance(live, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge_patch(out.get(key), value)
    return out


def strategic_patch(live: Any, patch: Any, path: Path = ()) -> Any:
    """Like a merge patch, but keyed lists merge by key; understands `$patch`, `$retainKeys` and
    `$deleteFromPrimitiveList/…`; `$setElementOrder/…` is read and left aside."""
    if not isinstance(patch, dict):
        return clone(patch)
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    if directive == "replace":
        return clone({key: value for key, value in patch.items() if key != "$patch"})
    out = dict(live) if isinstance(live, dict) else {}
    retain = patch.get("$retainKeys")
    if isinstance(retain, list):
        out = {key: value for key, value in out.items() if key in retain}
    for key, value in patch.items():
        if key in ("$patch", "$retainKeys") or key.startswith("$setElementOrder/"):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.split("/", 1)[1]
            out[field] = [item for item in out.get(field) or [] if item not in value]
        elif value is None:
            out.pop(key, None)
        elif isinstance(value, list):
            out[key] = _strategic_list(out.get(key) or [], value, (*path, key))
        elif isinstance(value, dict):
            out[key] = strategic_patch(out.get(key), value, (*path, key))
        else:
            out[key] = value
    return out


def _strategic_list(live: list[Any], patch: list[Any], path: Path) -> list[Any]:
    if is_set(path):
        return [*live, *(item for item in patch if item not in live)]
    keys = list_keys(path)
    rows = indexed(live, keys) if keys else None
    if keys is None or rows is None:
        return [clone(item) for item in patch]
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [clone(item) for item in patch if item.get("$patch") != "replace"]
    for item in patch:
        key = item_key(item, keys)
        if key is None:
            raise bad_request(f"map: {item!r} does not contain declared merge key: {', '.join(keys)}")
        if item.get("$patch") == "delete":
            rows.pop(key, None)
        else:
            rows[key] = strategic_patch(rows.get(key, {}), item, path)
    return list(rows.values())


def json_patch(live: Any, operations: Any) -> Any:
    """RFC 6902; raises ApiError 422 if a test fails or a path does not exist."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    out = clone(live)
    for step in operations:
        try:
            out = _operate(out, step)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            message = f"the server rejected our request due to an error in our request: {step!r}: {error}"
            raise ApiError(422, status(422, "Invalid", message, {})) from error
    return out


def _operate(doc: Any, step: dict[str, Any]) -> Any:
    operation, path = step["op"], _pointer(step["path"])
    if operation == "test":
        if _at(doc, path) != step["value"]:
            raise ValueError("testing value failed")
        return doc
    if operation in ("move", "copy"):
        source = _pointer(step["from"])
        value = clone(_at(doc, source))
        if operation == "move":
            doc = _remove(doc, source)
        return _add(doc, path, value)
    if operation == "remove":
        return _remove(doc, path)
    if operation == "replace":
        _at(doc, path)
        if path and isinstance(_at(doc, path[:-1]), list):
            doc = _remove(doc, path)
        return _add(doc, path, clone(step["value"]))
    if operation == "add":
        return _add(doc, path, clone(step["value"]))
    raise ValueError(f"unknown operation {operation!r}")


def _pointer(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _at(doc: Any, path: list[str]) -> Any:
    for part in path:
        doc = doc[int(part)] if isinstance(doc, list) else doc[part]
    return doc


def _add(doc: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _at(doc, path[:-1]), path[-1]
    if isinstance(parent, list):
        index = len(parent) if last == "-" else int(last)
        if index > len(parent):
            raise IndexError(f"index {index} is beyond the list")
        parent.insert(index, value)
    else:
        parent[last] = value
    return doc


def _remove(doc: Any, path: list[str]) -> Any:
    parent, last = _at(doc, path[:-1]), path[-1]
    if isinstance(parent, list):
        del parent[int(last)]
    else:
        del parent[last]
    return doc
