"""Reading plain data field by field: every fault is collected, and every field that nobody asked for is one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tenants.manifest.loading import pointer_join
from tenants.manifest.tree import FieldError, Pairs

_LABEL_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\Z")
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
MAX_ERRORS = 50


class Errors:
    """The faults found so far. ``positions`` gives line and column of a pointer, where the text is known."""

    def __init__(self, positions: Mapping[str, tuple[int, int]] | None = None) -> None:
        self.found: list[FieldError] = []
        self._positions = positions or {}

    def add(self, pointer: str, detail: str, *, offset: tuple[int, int] | None = None) -> None:
        """Note a fault. ``offset``: 1-based line and column inside the value (a selector), told in the detail."""
        if offset is not None:
            detail = f"line {offset[0]}, column {offset[1]} of the expression: {detail}"
        at = self._at(pointer)
        if len(self.found) < MAX_ERRORS:
            self.found.append(FieldError(pointer, detail, *(at or (None, None))))

    def in_order(self) -> list[FieldError]:
        """The faults by their place in the text."""
        return sorted(self.found, key=lambda error: (error.line or 0, error.column or 0))

    def _at(self, pointer: str) -> tuple[int, int] | None:
        while pointer not in self._positions:
            if not pointer:
                return None
            pointer = pointer.rpartition("/")[0]
        return self._positions[pointer]


class Reader:
    """One mapping. Read every known field, then call :meth:`done`: what is left over is an unknown field."""

    def __init__(self, data: Any, pointer: str, errors: Errors, *, what: str) -> None:
        self.pointer = pointer
        self.errors = errors
        self._known: set[str] = set()
        self._broken = data is not None and not isinstance(data, Mapping)  # then nothing is said of what lacks
        if isinstance(data, Mapping):
            self._data: Mapping[str, Any] = data
        else:
            self._data = {}
            if self._broken:
                errors.add(pointer, f"{what} must be a mapping of fields, not {kind_of(data)}.")

    def at(self, key: str | int) -> str:
        """The pointer of a field."""
        return pointer_join(self.pointer, key)

    def has(self, key: str) -> bool:
        """Whether the field is given (null counts as left out)."""
        self._known.add(key)
        return self._data.get(key) is not None

    def raw(self, key: str) -> Any:
        """The value as it is; None where it is left out."""
        self._known.add(key)
        return self._data.get(key)

    def names(self) -> list[str]:
        """The names of the fields that are given."""
        return [key for key, value in self._data.items() if value is not None]

    def text(
        self,
        key: str,
        *,
        required: bool = False,
        default: str = "",
        longest: int = 253,
        pattern: re.Pattern[str] | None = None,
        example: str = "",
    ) -> str:
        """A text. ``pattern`` must match it; ``example`` says in the error what would be right."""
        value = self.raw(key)
        if value is None:
            if required and not self._broken:
                self.errors.add(self.pointer, f"{key} is missing; add it{f', e.g. {example}' if example else ''}.")
            return default
        if not isinstance(value, str):
            self.errors.add(self.at(key), f"{key} must be a text, not {kind_of(value)}; put it in quotes.")
            return default
        if len(value) > longest or (required and not value):
            self.errors.add(self.at(key), f"{key} must have 1 to {longest} characters, not {len(value)}.")
            return default
        if pattern is not None and not pattern.match(value):
            self.errors.add(self.at(key), f"{key} {value!r} is not well formed; write it like {example}.")
            return default
        return value

    def choice(self, key: str, options: tuple[str, ...], *, default: str) -> str:
        """One of some words."""
        value = self.raw(key)
        if value is None:
            return default
        if value not in options:
            self.errors.add(
                self.at(key), f"{key} is {value!r}; choose {' or '.join(options)}{suggestion(value, options)}."
            )
            return default
        return str(value)

    def integer(self, key: str, *, default: int, low: int, high: int) -> int:
        """A whole number between two bounds, both allowed."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.errors.add(self.at(key), f"{key} must be a whole number, not {kind_of(value)}.")
            return default
        if not low <= value <= high:
            self.errors.add(self.at(key), f"{key} is {value}; choose {low} to {high}.")
            return default
        return value

    def flag(self, key: str, *, default: bool = False) -> bool:
        """True or false."""
        value = self.raw(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.errors.add(self.at(key), f"{key} must be true or false, not {kind_of(value)}.")
        return default

    def child(self, key: str) -> Reader:
        """A mapping below; an empty one where it is left out."""
        return Reader(self.raw(key), self.at(key), self.errors, what=key)

    def items(self, key: str, *, low: int = 0, high: int) -> Iterator[tuple[str, Any]]:
        """The items of a list with their pointers; its length must lie between two bounds."""
        value = self.raw(key)
        if value is None:
            value = []
            if low:
                if not self._broken:
                    self.errors.add(self.pointer, f"{key} is missing; list {low} to {high}.")
                return
        if not isinstance(value, list | tuple):
            self.errors.add(self.at(key), f"{key} must be a list, not {kind_of(value)}.")
            return
        if not low <= len(value) <= high:
            self.errors.add(self.at(key), f"{key} has {len(value)} entries; {low} to {high} are allowed.")
        for index, item in enumerate(value[:high]):
            yield pointer_join(self.at(key), index), item

    def texts(self, key: str, *, high: int, longest: int) -> tuple[str, ...]:
        """A list of texts."""
        out: list[str] = []
        for pointer, item in self.items(key, high=high):
            if not isinstance(item, str):
                self.errors.add(pointer, f"each of {key} must be a text, not {kind_of(item)}; put it in quotes.")
            elif len(item) > longest:
                self.errors.add(pointer, f"an entry of {key} has {len(item)} characters; at most {longest}.")
            else:
                out.append(item)
        return tuple(out)

    def labels(self, key: str, *, reserved: tuple[str, ...] = (), high: int = 32) -> Pairs:
        """Labels as Kubernetes takes them. ``reserved`` prefixes are the platform's."""
        reader = self.child(key)
        pairs: list[tuple[str, str]] = []
        names = reader.names()
        if len(names) > high:
            self.errors.add(reader.pointer, f"{key} has {len(names)} entries; at most {high} are allowed.")
        for name in names[:high]:
            value = reader.raw(name)
            if not _LABEL_NAME.match(name) or name.startswith(reserved):
                why = "is reserved for the platform" if name.startswith(reserved) else "is not a label name"
                self.errors.add(reader.at(name), f"{name!r} {why}; choose another, e.g. team.example.com/stage.")
            elif not isinstance(value, str) or not _LABEL_VALUE.match(value):
                self.errors.add(
                    reader.at(name),
                    f"the value of {name} must be a text of at most 63 letters, digits, -, _ and dots, "
                    f"not {value!r}{'; put it in quotes' if not isinstance(value, str) else ''}.",
                )
            else:
                pairs.append((name, value))
        return tuple(sorted(pairs))

    def done(self) -> None:
        """Name each field that was not asked for, with the nearest known name."""
        for key in self._data:
            if len(self.errors.found) >= MAX_ERRORS:
                return  # no more is told, and each name costs a search for the nearest
            if key not in self._known:
                self.errors.add(
                    self.at(str(key)),
                    f"{key!r} is not a field here{suggestion(key, tuple(self._known))}. "
                    f"Known: {', '.join(sorted(self._known))}.",
                )


def kind_of(value: Any) -> str:
    """What a value is, in words for an error."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"the truth value {str(value).lower()}"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {value[:40]!r}"
        case list() | tuple():
            return "a list"
        case _:
            return "a mapping"


def suggestion(word: Any, known: tuple[str, ...]) -> str:
    """``; did you mean x?`` or nothing."""
    lowered = {name.lower(): name for name in known}
    near = difflib.get_close_matches(str(word).lower(), list(lowered), n=1, cutoff=0.7)
    return f"; did you mean {lowered[near[0]]}?" if near else ""
