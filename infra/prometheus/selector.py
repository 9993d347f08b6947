"""Selectors of PromQL, put together safely: names are checked, values of labels escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(value: str) -> str:
    """``value`` as it stands between double quotes in PromQL (Go's string syntax)."""
    return (
        value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )


def is_label(name: str) -> bool:
    """Whether it can be the name of a label."""
    return bool(_LABEL.fullmatch(name))


def matchers_text(matchers: Mapping[str, str]) -> str:
    """``cluster="gpu-fra-1",env="prod"``, in the order of the names.

    Raises:
        ValueError: a name is none of a label.
    """
    for name in matchers:
        if not is_label(name):
            raise ValueError(f"{name!r} is no label of Prometheus.")
    return ",".join(f'{name}="{escaped(value)}"' for name, value in sorted(matchers.items()))


def one_of(values: Iterable[str]) -> str:
    """A regular expression (RE2, anchored by Prometheus) that matches exactly these values."""
    return "|".join(sorted({re.sub(r"([.+*?()|\[\]{}^$\\])", r"\\\1", value) for value in values}))


def selector(
    metric: str | Iterable[str],
    matchers: Mapping[str, str] | None = None,
    *,
    equal: Mapping[str, str] | None = None,
    regex: Mapping[str, str] | None = None,
) -> str:
    """``metric{…}``; of several metrics ``{__name__=~"a|b",…}``.

    Args:
        matchers: the endpoint's own; they stand first, always written the same.
        equal, regex: further conditions; a regular expression is escaped as text, not checked.

    Raises:
        ValueError: a name is none of a metric or label.
    """
    names = [metric] if isinstance(metric, str) else sorted(set(metric))
    for name in names:
        if not _METRIC.fullmatch(name):
            raise ValueError(f"{name!r} is no metric of Prometheus.")
    for name in regex or {}:
        if not is_label(name):
            raise ValueError(f"{name!r} is no label of Prometheus.")
    parts = [matchers_text(matchers or {}), matchers_text(equal or {})]
    parts += [f'{name}=~"{escaped(pattern)}"' for name, pattern in sorted((regex or {}).items())]
    if len(names) > 1:
        parts.append(f'__name__=~"{"|".join(names)}"')
    inside = ",".join(part for part in parts if part)
    head = names[0] if len(names) == 1 else ""
    return f"{head}{{{inside}}}" if inside or not head else head
