"""How lists and maps of Kubernetes objects merge: which lists are keyed, which are sets, what is atomic.

The table follows the `x-kubernetes-list-type`, `-list-map-keys` and `-map-type` marks of the Kubernetes OpenAPI
description (api/openapi-spec/swagger.json in kubernetes/kubernetes). A path is the tuple of field names from the
root, without list items: ("spec", "template", "spec", "containers", "ports").
"""

from __future__ import annotations

from typing import Any

Path = tuple[str, ...]

# Lists whose items are known by keys: last field name, or last two, → key names.
LIST_KEYS: dict[Path, tuple[str, ...]] = {
    ("containers",): ("name",),
    ("initContainers",): ("name",),
    ("ephemeralContainers",): ("name",),
    ("containers", "ports"): ("containerPort", "protocol"),
    ("initContainers", "ports"): ("containerPort", "protocol"),
    ("ephemeralContainers", "ports"): ("containerPort", "protocol"),
    ("spec", "ports"): ("port", "protocol"),
    ("env",): ("name",),
    ("volumes",): ("name",),
    ("volumeMounts",): ("mountPath",),
    ("volumeDevices",): ("devicePath",),
    ("imagePullSecrets",): ("name",),
    ("hostAliases",): ("ip",),
    ("topologySpreadConstraints",): ("topologyKey", "whenUnsatisfiable"),
    ("schedulingGates",): ("name",),
    ("resourceClaims",): ("name",),
    ("resources", "claims"): ("name",),
    ("conditions",): ("type",),
    ("podIPs",): ("ip",),
    ("hostIPs",): ("ip",),
    ("ownerReferences",): ("uid",),
    ("secrets",): ("name",),
    ("matchConditions",): ("name",),
    ("spec", "variables"): ("name",),
    ("status", "addresses"): ("type",),
    ("volumeClaimTemplates",): ("metadata.name",),
}

# Values for keys that an item may leave out.
KEY_DEFAULTS: dict[str, Any] = {"protocol": "TCP"}

SETS: set[Path] = {("finalizers",), ("validationActions",)}

# Maps that are replaced as a whole.
ATOMIC_MAPS: set[Path] = {
    ("selector",),
    ("labelSelector",),
    ("podSelector",),
    ("namespaceSelector",),
    ("objectSelector",),
    ("nodeSelector",),
    ("requiredDuringSchedulingIgnoredDuringExecution",),
    ("matchConstraints",),
    ("matchResources",),
    ("roleRef",),
    ("fieldRef",),
    ("resourceFieldRef",),
    ("secretKeyRef",),
    ("configMapKeyRef",),
    ("secretRef",),
    ("configMapRef",),
    ("involvedObject",),
    ("paramRef",),
    ("paramKind",),
}

# Maps with free keys (the others are structures with named fields).
FREE_MAPS: set[str] = {
    "labels",
    "annotations",
    "limits",
    "requests",
    "data",
    "binaryData",
    "stringData",
    "hard",
    "used",
    "capacity",
    "allocatable",
    "matchLabels",
    "overhead",
}

# Maps whose values are quantities.
QUANTITY_MAPS: set[str] = {"limits", "requests", "hard", "used", "capacity", "allocatable", "overhead"}
LIMIT_RANGE_MAPS: set[str] = {"default", "defaultRequest", "min", "max", "maxLimitRequestRatio"}


def list_keys(path: Path) -> tuple[str, ...] | None:
    """The keys of the list at the path, or None if it is no keyed list."""
    return LIST_KEYS.get(path[-2:]) or LIST_KEYS.get(path[-1:])


def is_set(path: Path) -> bool:
    """True for lists of scalars that merge as a set."""
    return path[-1:] in SETS


def is_atomic_map(path: Path) -> bool:
    """True for maps that are replaced as a whole."""
    return path[-1:] in ATOMIC_MAPS


def item_key(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...] | None:
    """The values of the keys in a list item (defaults filled in), or None if one is missing."""
    if not isinstance(item, dict):
        return None
    values = []
    for key in keys:
        found: Any = item
        for step in key.split("."):
            found = found.get(step) if isinstance(found, dict) else None
        if found is None:
            found = KEY_DEFAULTS.get(key)
        if found is None:
            return None
        values.append(found)
    return tuple(values)
