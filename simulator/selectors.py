"""Label and field selectors, from text (list, watch) and from objects (matchLabels, matchExpressions)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from simulator.errors import bad_request
from simulator.kinds import Obj

Labels = dict[str, str]
Predicate = Callable[[Obj], bool]
LabelTest = Callable[[Labels], bool]

_SET = re.compile(r"^\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^)]*)\)\s*$")
_SPLIT = re.compile(r",(?![^(]*\))")


def parse_labels(text: str) -> LabelTest:
    """A label selector as in a URL; raises ApiError 400 naming the part that is wrong."""
    tests = [_label_test(part) for part in _SPLIT.split(text) if part.strip()]
    return lambda labels: all(test(labels) for test in tests)


def _label_test(part: str) -> LabelTest:
    found = _SET.match(part)
    if found:
        key, operator = found.group(1), found.group(2)
        values = {value.strip() for value in found.group(3).split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    for sign in ("!=", "==", "="):
        if sign in part:
            key, value = (piece.strip() for piece in part.split(sign, 1))
            if sign == "!=":
                return lambda labels: labels.get(key) != value
            return lambda labels: labels.get(key) == value
    key = part.strip()
    if re.search(r"[\s()]", key):
        raise bad_request(f"unable to parse requirement: {part.strip()!r} is no label requirement")
    if key.startswith("!"):
        absent = key[1:].strip()
        return lambda labels: absent not in labels
    return lambda labels: key in labels


def matches(selector: Obj | None, labels: Labels) -> bool:
    """A LabelSelector object. None matches nothing, an empty one everything."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(matches_expression(row, labels) for row in selector.get("matchExpressions") or [])


def matches_expression(row: Obj, labels: Labels) -> bool:
    """One requirement of a label selector or of a node selector term (In, NotIn, Exists, Gt, ...)."""
    key, operator, values = row.get("key", ""), row.get("operator"), row.get("values") or []
    present, value = key in labels, labels.get(key)
    if operator == "In":
        return present and value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return present
    if operator == "DoesNotExist":
        return not present
    if operator in ("Gt", "Lt") and present and len(values) == 1:
        try:
            left, right = int(str(value)), int(values[0])
        except ValueError:
            return False
        return left > right if operator == "Gt" else left < right
    return False


def parse_fields(text: str) -> Predicate:
    """A field selector as in a URL (`spec.nodeName=n1,status.phase!=Failed`)."""
    tests: list[tuple[list[str], bool, str]] = []
    for part in text.split(","):
        if not part.strip():
            continue
        for sign in ("!=", "==", "="):
            if sign in part:
                path, value = (piece.strip() for piece in part.split(sign, 1))
                tests.append((path.split("."), sign != "!=", value))
                break
        else:
            raise bad_request(f"invalid field selector {part!r}: can't understand it, write field=value")

    def test(obj: Obj) -> bool:
        return all((_field(obj, path) == value) is wanted for path, wanted, value in tests)

    return test


def _field(obj: Obj, path: list[str]) -> str:
    found: Any = obj
    for step in path:
        if not isinstance(found, dict):
            return ""
        found = found.get(step)
    if isinstance(found, bool):
        return str(found).lower()
    return "" if found is None else str(found)
