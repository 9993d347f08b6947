"""A device as a selector sees it: driver, attributes, capacity. Pure data, hashable, made once per kind of device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True, slots=True)
class Version:
    """A version attribute, as text. It is read strictly as semver (three parts, no leading v) when evaluated."""

    text: str


@dataclass(frozen=True)
class Device:
    """One kind of device.

    attributes: (qualified or bare name, value) sorted by name; bare names belong to the driver's domain,
    `domain/id` splits at the first slash. capacity: (name, Kubernetes quantity as text).
    `allow_multiple`: the device may be allocated more than once (consumable capacity).
    """

    driver: str
    attributes: tuple[tuple[str, bool | int | str | Version], ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()
    allow_multiple: bool = False

    @staticmethod
    def of(
        driver: str,
        attributes: Mapping[str, bool | int | str | Version] | None = None,
        capacity: Mapping[str, str] | None = None,
        *,
        allow_multiple: bool = False,
    ) -> Device:
        """A device from plain mappings."""
        return Device(
            driver,
            tuple(sorted((attributes or {}).items(), key=lambda item: item[0])),
            tuple(sorted((capacity or {}).items())),
            allow_multiple,
        )

    @staticmethod
    def from_manifest(raw: Mapping[str, Any]) -> Device:
        """From the shape of a ResourceSlice or InferenceClass device:
        `{driver, attributes: {name: {string|version|bool|int: value}}, capacity: {name: {value: quantity}}}`.

        Raises ValueError naming the attribute or capacity that is not of that shape.
        """
        attributes: dict[str, bool | int | str | Version] = {}
        for name, typed in (raw.get("attributes") or {}).items():
            attributes[name] = _attribute(name, typed)
        capacity: dict[str, str] = {}
        for name, entry in (raw.get("capacity") or {}).items():
            value = entry.get("value") if isinstance(entry, Mapping) else entry
            if not isinstance(value, str | int) or isinstance(value, bool):
                raise ValueError(f"capacity.{name}: expected a mapping with a quantity in `value`, got {entry!r}")
            capacity[name] = str(value)
        driver = raw.get("driver")
        if not isinstance(driver, str) or not driver:
            raise ValueError("driver: a device needs the name of its driver, e.g. gpu.nvidia.com")
        return Device.of(driver, attributes, capacity, allow_multiple=bool(raw.get("allowMultipleAllocations", False)))

    @cached_property
    def _hash(self) -> int:
        # True and 1 are equal in Python but not in CEL: the type goes into the key.
        return hash((self.driver, self._typed, self.capacity, self.allow_multiple))

    @cached_property
    def _typed(self) -> tuple[tuple[str, str, bool | int | str | Version], ...]:
        return tuple((name, type(value).__name__, value) for name, value in self.attributes)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Device):
            return NotImplemented
        return (self.driver, self._typed, self.capacity, self.allow_multiple) == (
            other.driver,
            other._typed,
            other.capacity,
            other.allow_multiple,
        )


def _attribute(name: str, typed: Any) -> bool | int | str | Version:
    if not isinstance(typed, Mapping) or len(typed) != 1:
        raise ValueError(f"attributes.{name}: expected exactly one of string, version, bool, int; got {typed!r}")
    ((kind, value),) = typed.items()
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "version" and isinstance(value, str):
        return Version(value)
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind in ("int", "int64") and isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"attributes.{name}: {value!r} is not a {kind}; expected string, version, bool or int")
