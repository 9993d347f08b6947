"""Small helpers on objects: copies, times, names, owner references. Objects are plain JSON dictionaries."""

from __future__ import annotations

import os
import random
import re
import uuid
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from simulator.kinds import Obj

# The alphabet of generated names: no vowels, nothing that is easily misread.
_NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def clone(value: Any) -> Any:
    """A deep copy of JSON data (many times faster than copy.deepcopy)."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def rfc3339(seconds: float) -> str:
    """Unix seconds → UTC text to the second (cut, as the API server does)."""
    return _second(int(seconds))


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(seconds: float) -> str:
    """Unix seconds → UTC text to the microsecond."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def unix(text: str) -> float:
    """UTC text → unix seconds."""
    return datetime.fromisoformat(text).timestamp()


def duration(text: str) -> float:
    """'90s', '1m30s', '250ms' or a bare number of seconds → seconds; raises ValueError naming the text."""
    try:
        return float(text)
    except ValueError:
        pass
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration: write it like 90s, 1m30s or 250ms")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def meta(obj: Obj) -> Obj:
    """The object's metadata, made if it is missing."""
    found: Obj = obj.setdefault("metadata", {})
    return found


def name_of(obj: Obj) -> str:
    """metadata.name, or ''."""
    return str(obj.get("metadata", {}).get("name", ""))


def namespace_of(obj: Obj) -> str:
    """metadata.namespace, or '' for what belongs to no namespace."""
    return str(obj.get("metadata", {}).get("namespace", ""))


def uid_of(obj: Obj) -> str:
    """metadata.uid."""
    return str(obj.get("metadata", {}).get("uid", ""))


def labels_of(obj: Obj) -> dict[str, str]:
    """metadata.labels, or {}."""
    return obj.get("metadata", {}).get("labels") or {}


def annotations_of(obj: Obj) -> dict[str, str]:
    """metadata.annotations, or {}."""
    return obj.get("metadata", {}).get("annotations") or {}


def is_deleting(obj: Obj) -> bool:
    """True once a deletion has been asked for."""
    return bool(obj.get("metadata", {}).get("deletionTimestamp"))


def controller_of(obj: Obj) -> Obj | None:
    """The owner reference with controller: true; not to be changed."""
    for ref in obj.get("metadata", {}).get("ownerReferences") or []:
        if ref.get("controller"):
            found: Obj = ref
            return found
    return None


def owner_reference(owner: Obj) -> Obj:
    """A controlling owner reference to the object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def condition(obj: Obj, kind: str) -> Obj | None:
    """The condition of that type in status.conditions, or None."""
    for row in obj.get("status", {}).get("conditions") or []:
        if row.get("type") == kind:
            return dict(row)
    return None


class Ids:
    """Makes uids and name suffixes: from the machine's randomness, or the same again from a seed."""

    def __init__(self, seed: str | None) -> None:
        self._random: random.Random = (
            random.Random(seed) if seed is not None else random.SystemRandom()  # noqa: S311  a seed is asked for in tests
        )

    def uid(self) -> str:
        """A new uid."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def suffix(self, length: int = 5) -> str:
        """Letters for a generated name."""
        return "".join(self._random.choice(_NAME_LETTERS) for _ in range(length))


def letters_from(number: int, length: int = 10) -> str:
    """A number written in the alphabet of generated names (for template hashes)."""
    out = ""
    for _ in range(length):
        number, rest = divmod(number, len(_NAME_LETTERS))
        out += _NAME_LETTERS[rest]
    return out


def write_atomically(path: str, data: bytes, mode: int = 0o600) -> None:
    """Replace the file in one step, so that a reader never sees half of it."""
    half = f"{path}.part"
    handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "wb") as out:
        out.write(data)
    Path(half).replace(path)


def spec_of(obj: Obj) -> Obj:
    """Everything whose change counts as a new generation."""
    return {k: v for k, v in obj.items() if k not in ("metadata", "status", "kind", "apiVersion")}


def same(old: Obj, new: Obj) -> bool:
    """True if nothing but times in managedFields differs."""
    if any(old.get(key) != new.get(key) for key in {*old, *new} if key != "metadata"):
        return False
    left, right = old["metadata"], new["metadata"]
    if any(left.get(key) != right.get(key) for key in {*left, *right} if key != "managedFields"):
        return False

    def owned(meta: Obj) -> list[Obj]:
        return sorted(
            ({k: v for k, v in row.items() if k != "time"} for row in meta.get("managedFields") or []),
            key=lambda row: (row["manager"], row["operation"], row["apiVersion"], row.get("subresource", "")),
        )

    return owned(left) == owned(right)
