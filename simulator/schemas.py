"""The little of structural schemas that custom resources need here: unknown fields, types, bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simulator.errors import FieldError, bad_value, invalid, required
from simulator.kinds import Kind, Obj
from simulator.objects import name_of

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def kind_from_crd(crd: Obj) -> list[Kind]:
    """The kinds that a CustomResourceDefinition serves, one per version."""
    spec, names = crd["spec"], crd["spec"]["names"]
    return [
        Kind(
            spec["group"],
            version["name"],
            names["kind"],
            names["plural"],
            namespaced=spec.get("scope") == "Namespaced",
            status="status" in (version.get("subresources") or {}),
            returns_object=False,
            short=tuple(names.get("shortNames") or ()),
            schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
        )
        for version in spec.get("versions") or []
        if version.get("served")
    ]


def unknown_field(kind: Kind, obj: Obj) -> str:
    """The path of the first field that the schema lacks ('.spec.colour'), or ''."""
    for path in _unknown(kind.schema or {}, obj, "", top=True):
        return f".{path}"
    return ""


def prune(kind: Kind, obj: Obj) -> list[str]:
    """Drop the fields that the schema lacks, in place; returns their paths."""
    paths = list(_unknown(kind.schema or {}, obj, "", top=True))
    for path in paths:
        at: Any = obj
        steps = path.replace("[", ".[").split(".")
        for step in steps[:-1]:
            at = at[int(step[1:-1])] if step.startswith("[") else at[step]
        at.pop(steps[-1], None)
    return paths


def _unknown(schema: Obj, value: Any, path: str, top: bool = False) -> Iterator[str]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if isinstance(value, dict):
        known, free = schema.get("properties"), schema.get("additionalProperties")
        for key, item in value.items():
            below = f"{path}.{key}" if path else key
            if top and key in ("kind", "apiVersion", "metadata"):
                continue
            if known is not None and key in known:
                yield from _unknown(known[key], item, below)
            elif isinstance(free, dict):
                yield from _unknown(free, item, below)
            elif not free:
                yield below
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(schema.get("items") or {}, item, f"{path}[{index}]")


def violations(kind: Kind, obj: Obj) -> None:
    """422 if a custom resource breaks its schema."""
    if kind.schema is None:
        return
    problems = list(_broken(kind.schema, obj, ""))
    if problems:
        raise invalid(kind, name_of(obj), problems)


def _broken(schema: Obj, value: Any, path: str) -> Iterator[FieldError]:
    if value is None:
        return
    wanted = schema.get("type")
    if wanted in _TYPES and not _fits(schema, value, wanted):
        yield bad_value(path, value, f'{path} in body must be of type {wanted}: "{type(value).__name__}"')
        return
    if isinstance(value, dict):
        yield from _broken_object(schema, value, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _broken(schema.get("items") or {}, item, f"{path}[{index}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if "maximum" in schema and value > schema["maximum"]:
            yield bad_value(path, value, f"{path} in body should be less than or equal to {schema['maximum']}")
        if "minimum" in schema and value < schema["minimum"]:
            yield bad_value(path, value, f"{path} in body should be greater than or equal to {schema['minimum']}")
    if schema.get("enum") and value not in schema["enum"]:
        names = ", ".join(f'"{item}"' for item in schema["enum"])
        yield FieldError(path, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {names}')


def _fits(schema: Obj, value: Any, wanted: str) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, int | str)
    return isinstance(value, _TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))


def _broken_object(schema: Obj, value: Obj, path: str) -> Iterator[FieldError]:
    front = f"{path}." if path else ""
    for key in schema.get("required") or []:
        if key not in value:
            yield required(f"{front}{key}")
    known = schema.get("properties") or {}
    for key, below in known.items():
        if key in value and (path or key != "metadata"):
            yield from _broken(below, value[key], f"{front}{key}")
    free = schema.get("additionalProperties")
    if isinstance(free, dict):
        for key, item in value.items():
            if key not in known:
                yield from _broken(free, item, f"{front}{key}")
