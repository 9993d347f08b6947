"""What people give as labels, taints, names and namespaces of the fleet, checked."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from portal.kernel.problems import Invalid

_SLUG = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def checked_slug(value: str) -> str:
    """``value`` if it can name a site or cluster in addresses and object names."""
    if not _SLUG.fullmatch(value) or value == "new":
        raise Invalid.field(
            "/slug", "Use 1 to 40 lower-case letters, digits and dashes, beginning with a letter; not 'new'."
        )
    return value


def checked_name(value: str, slug: str) -> str:
    """The name for people; the slug where none is given."""
    if len(value) > 120:
        raise Invalid.field("/name", "Use at most 120 characters.")
    return value.strip() or slug


def checked_labels(labels: Mapping[Any, Any]) -> dict[str, str]:
    """Labels by Kubernetes' rules (an optional DNS prefix, names and values of at most 63 characters)."""
    for key, value in labels.items():
        if not (isinstance(key, str) and _is_label_key(key)):
            raise Invalid.field("/labels", f"{key!r} is no label key. Write name or prefix.example/name.")
        if not (isinstance(value, str) and (value == "" or _LABEL_NAME.fullmatch(value))):
            raise Invalid.field(
                "/labels", f"The value of {key} must be at most 63 letters, digits, dashes, dots and underscores."
            )
    return dict(labels)


def checked_taints(taints: Iterable[Mapping[Any, Any]]) -> list[dict[str, str]]:
    """Taints: ``{"key", "value" (may be empty), "effect"}``."""
    checked = []
    for index, taint in enumerate(taints):
        at = f"/taints/{index}"
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        if not (isinstance(key, str) and _is_label_key(key)):
            raise Invalid.field(f"{at}/key", "A taint needs a key such as prefix.example/name.")
        if not (isinstance(value, str) and (value == "" or _LABEL_NAME.fullmatch(value))):
            raise Invalid.field(f"{at}/value", "Use at most 63 letters, digits, dashes, dots and underscores.")
        if effect not in TAINT_EFFECTS:
            raise Invalid.field(f"{at}/effect", f"Use one of {', '.join(TAINT_EFFECTS)}.")
        if unknown := set(taint) - {"key", "value", "effect"}:
            raise Invalid.field(at, f"A taint has no field {min(unknown)}.")
        checked.append({"key": key, "value": value, "effect": effect})
    return checked


def checked_namespaces(namespaces: Iterable[Any]) -> list[str]:
    """Names of namespaces, each once and in order."""
    for name in namespaces:
        if not (isinstance(name, str) and _DNS_LABEL.fullmatch(name)):
            raise Invalid.field("/system_namespaces", f"{name!r} is no name of a namespace.")
    return sorted(set(namespaces))


def _is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(_LABEL_NAME.fullmatch(name)) and (not slash or bool(_LABEL_PREFIX.fullmatch(prefix)))
