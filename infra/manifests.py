"""``InferenceClass`` and ``InferenceCluster`` (``modelplane.ai/v1alpha1``) as data, with exact errors.

Source of the format: the CRDs of the public Modelplane project. An InferenceClass is a hardware recipe (which devices a
node has); an InferenceCluster names node pools of such classes. The portal connects clusters that exist and provisions
none: of ``spec.cluster`` only the source is read, of ``spec.provisioning`` nothing but its form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from infra.cel.device import Device
from infra.quantity import parse_quantity
from portal.kernel.problems import Invalid

API_VERSION = "modelplane.ai/v1alpha1"
POOL_LABEL = "modelplane.ai/pool"
"""The nodes of a declared pool carry it, with the pool's name."""

_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_PROVIDERS = {"GKE": "gke", "EKS": "eks", "AKS": "aks", "Nebius": "nebius", "Vultr": "vultr"}
_SOURCES = {**_PROVIDERS, "Existing": "existing"}
_POOL_FIELDS = frozenset(
    {
        "name",
        "className",
        "nodeCount",
        "minNodeCount",
        "maxNodeCount",
        "zones",
        "capacityBlock",
        "fabric",
    }
)
_DEVICE_FIELDS = frozenset({"name", "claim", "driver", "deviceClassName", "count", "attributes", "capacity"})


@dataclass(frozen=True)
class ClassManifest:
    """A hardware recipe. ``devices`` have their defaults filled in."""

    name: str
    description: str
    devices: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class PoolManifest:
    """A pool: ``nodes`` is the largest number that it is meant to have (``maxNodeCount``, else ``nodeCount``)."""

    name: str
    class_name: str
    nodes: int


@dataclass(frozen=True)
class ClusterManifest:
    """A cluster with its pools. ``source`` is ``Existing`` or the provider that Modelplane would make it with."""

    name: str
    source: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()
    pools: tuple[PoolManifest, ...] = ()


class _Errors:
    """Collects what is wrong, so that all of it is told at once."""

    def __init__(self) -> None:
        self.found: list[dict[str, str]] = []

    def add(self, path: tuple[str | int, ...], detail: str) -> None:
        pointer = "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
        self.found.append({"pointer": pointer, "detail": detail})

    def done(self) -> None:
        """Raises Invalid if anything was added."""
        if self.found:
            raise Invalid(errors=self.found)

    def mapping(self, value: Any, path: tuple[str | int, ...], known: frozenset[str] | None = None) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.add(path, f"expected a mapping, got {_kind(value)}")
            return {}
        for key in value:
            if known is not None and key not in known:
                self.add((*path, str(key)), f"unknown field; known here: {', '.join(sorted(known))}")
        return dict(value)

    def items(self, value: Any, path: tuple[str | int, ...], least: int, most: int) -> list[Any]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            got = f"{len(value)} entries" if isinstance(value, list) else _kind(value)
            self.add(path, f"expected a list of {least} to {most} entries, got {got}")
            return []
        return value

    def text(self, value: Any, path: tuple[str | int, ...], most: int = 253, default: str | None = None) -> str:
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not 1 <= len(value) <= most:
            self.add(path, f"required: a text of 1 to {most} characters, got {_kind(value)}")
            return ""
        return value

    def number(self, value: Any, path: tuple[str | int, ...], least: int, most: int, default: int | None) -> int:
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.add(path, f"expected a whole number from {least} to {most}, got {value!r}")
            return least
        return value

    def choice(self, value: Any, path: tuple[str | int, ...], allowed: list[str], default: str | None = None) -> str:
        if value is None and default is not None:
            return default
        if value not in allowed:
            self.add(path, f"expected one of {', '.join(allowed)}, got {value!r}")
            return allowed[0]
        return str(value)


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {value!r}"[:80]


def load_documents(text: str) -> list[dict[str, Any]]:
    """The documents of a YAML or JSON text. Raises Invalid with line and column where it is neither."""
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise Invalid(errors=[{"pointer": "", "detail": f"the manifest is no YAML{where}: {problem}"}]) from error
    for number, document in enumerate(documents):
        if not isinstance(document, dict):
            raise Invalid(
                errors=[{"pointer": "", "detail": f"document {number + 1} is no mapping but {_kind(document)}"}]
            )
    return documents


def read_class(manifest: Mapping[str, Any]) -> ClassManifest:
    """An InferenceClass. Raises Invalid with a JSON pointer for everything that is wrong."""
    errors = _Errors()
    name, _, spec = _head(manifest, "InferenceClass", errors, frozenset({"description", "devices", "provisioning"}), 63)
    devices = tuple(
        _device(entry, ("spec", "devices", number), errors)
        for number, entry in enumerate(errors.items(spec.get("devices"), ("spec", "devices"), 1, 16))
    )
    _unique([device["name"] for device in devices], ("spec", "devices"), "name", errors)
    if "provisioning" in spec:
        block = errors.mapping(spec["provisioning"], ("spec", "provisioning"))
        provider = errors.choice(block.get("provider"), ("spec", "provisioning", "provider"), list(_PROVIDERS))
        if not errors.found and _PROVIDERS[provider] not in block:
            errors.add(("spec", "provisioning", _PROVIDERS[provider]), f"required where the provider is {provider}")
    description = spec.get("description")
    errors.done()
    return ClassManifest(name, str(description or ""), devices)


def _device(entry: Any, path: tuple[str | int, ...], errors: _Errors) -> dict[str, Any]:
    raw = errors.mapping(entry, path, _DEVICE_FIELDS)
    claim = errors.choice(raw.get("claim"), (*path, "claim"), ["DRA", "Synthetic"], "DRA")
    device: dict[str, Any] = {
        "name": errors.text(raw.get("name"), (*path, "name"), 63),
        "claim": claim,
        "driver": errors.text(raw.get("driver"), (*path, "driver")),
        "count": errors.number(raw.get("count"), (*path, "count"), 1, 64, 1),
    }
    if claim == "DRA" or "deviceClassName" in raw:
        device["deviceClassName"] = errors.text(raw.get("deviceClassName"), (*path, "deviceClassName"))
    for kind in ("attributes", "capacity"):
        values = errors.mapping(raw.get(kind), (*path, kind))
        if len(values) > 32:
            errors.add((*path, kind), f"at most 32 entries, got {len(values)}")
        for key, value in values.items():
            try:
                Device.from_manifest({"driver": "any", kind: {key: value}})
                if kind == "capacity":
                    parse_quantity(value["value"])
            except (KeyError, TypeError, ValueError) as error:
                errors.add((*path, kind, str(key)), str(error))
        if values:
            device[kind] = values
    return device


def read_cluster(manifest: Mapping[str, Any]) -> ClusterManifest:
    """An InferenceCluster. Raises Invalid with a JSON pointer for everything that is wrong."""
    errors = _Errors()
    name, labels, spec = _head(manifest, "InferenceCluster", errors, frozenset({"cluster", "taints", "nodePools"}), 40)
    cluster = errors.mapping(spec.get("cluster"), ("spec", "cluster"))
    source = errors.choice(cluster.get("source"), ("spec", "cluster", "source"), list(_SOURCES))
    if _SOURCES[source] not in cluster and not errors.found:
        errors.add(("spec", "cluster", _SOURCES[source]), f"required where the source is {source}")
    taints = tuple(
        _taint(entry, ("spec", "taints", number), errors)
        for number, entry in enumerate(errors.items(spec.get("taints") or [], ("spec", "taints"), 0, 64))
    )
    _unique([f"{taint['key']}:{taint['effect']}" for taint in taints], ("spec", "taints"), "key and effect", errors)
    pools = tuple(
        _pool(entry, ("spec", "nodePools", number), errors)
        for number, entry in enumerate(errors.items(spec.get("nodePools"), ("spec", "nodePools"), 1, 8))
    )
    _unique([pool.name for pool in pools], ("spec", "nodePools"), "name", errors)
    errors.done()
    return ClusterManifest(name, source, labels, taints, pools)


def _taint(entry: Any, path: tuple[str | int, ...], errors: _Errors) -> dict[str, str]:
    raw = errors.mapping(entry, path, frozenset({"key", "value", "effect"}))
    return {
        "key": errors.text(raw.get("key"), (*path, "key")),
        "value": errors.text(raw.get("value"), (*path, "value"), default="") if raw.get("value") != "" else "",
        "effect": errors.choice(raw.get("effect"), (*path, "effect"), ["NoSchedule", "NoExecute"]),
    }


def _pool(entry: Any, path: tuple[str | int, ...], errors: _Errors) -> PoolManifest:
    raw = errors.mapping(entry, path, _POOL_FIELDS)
    name = errors.text(raw.get("name"), (*path, "name"), 40)
    if name and not _NAME.fullmatch(name):
        errors.add((*path, "name"), f"{name!r}: small letters, digits and dashes, at most 40 characters")
    count = errors.number(raw.get("nodeCount"), (*path, "nodeCount"), 0, 100_000, 1)
    least = errors.number(raw.get("minNodeCount"), (*path, "minNodeCount"), 0, 100_000, 0)
    most = errors.number(raw.get("maxNodeCount"), (*path, "maxNodeCount"), 1, 100_000, max(count, least, 1))
    if "maxNodeCount" in raw and most < max(count, least):
        errors.add((*path, "maxNodeCount"), f"{most} is less than the {max(count, least)} nodes asked for")
    return PoolManifest(
        name=name,
        class_name=errors.text(raw.get("className"), (*path, "className"), 63),
        nodes=most if "maxNodeCount" in raw else count,
    )


def _head(
    manifest: Mapping[str, Any], kind: str, errors: _Errors, known: frozenset[str], longest: int
) -> tuple[str, dict[str, str], dict[str, Any]]:
    if manifest.get("apiVersion") != API_VERSION:
        errors.add(("apiVersion",), f"expected {API_VERSION}, got {manifest.get('apiVersion')!r}")
    if manifest.get("kind") != kind:
        errors.add(("kind",), f"expected {kind}, got {manifest.get('kind')!r}")
    for key in manifest:
        if key not in ("apiVersion", "kind", "metadata", "spec", "status"):
            errors.add((str(key),), "unknown field; known here: apiVersion, kind, metadata, spec, status")
    metadata = errors.mapping(manifest.get("metadata"), ("metadata",))
    name = errors.text(metadata.get("name"), ("metadata", "name"), longest)
    if name and not _NAME.fullmatch(name):
        errors.add(("metadata", "name"), f"{name!r}: small letters, digits and dashes, begun and ended by no dash")
    labels = errors.mapping(metadata.get("labels"), ("metadata", "labels"))
    for key, value in labels.items():
        if not isinstance(value, str):
            errors.add(("metadata", "labels", str(key)), f"a label's value is text; write it in quotes: {value!r}")
    return name, labels, errors.mapping(manifest.get("spec"), ("spec",), known)


def _unique(values: list[str], path: tuple[str | int, ...], what: str, errors: _Errors) -> None:
    for number, value in enumerate(values):
        if value and value in values[:number]:
            errors.add((*path, number), f"{what} {value!r} is there twice")
