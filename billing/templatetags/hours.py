"""How the pages about the fleet's hours write parts, reasons and the names of rows."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django import template

from billing.selectors.hours import DIMENSIONS, PARTS, REASONS, UNEXPLAINED, WORDS, HoursRow
from billing.templatetags.billing import BAR, Bar, BarPart, quantity
from portal.kernel.money import THIN_SPACE, decimal_from

register = template.Library()

OPENS_TO = {
    "day": "pool", "site": "cluster", "cluster": "pool", "pool": "day", "gpu_type": "cluster", "tenant": "model",
    "model": "day",
}  # fmt: skip
"""What a row is apart in when the name of one of its keys is followed."""


@register.filter
def hours_bar(row: HoursRow) -> Bar:
    """The parts of a row, of what was in service; and in words."""
    whole = max(row.in_service, sum(row.parts.values()), 1)
    parts, at = [], 0
    for name in PARTS:
        end = at + row.parts[name]
        if row.parts[name] > 0:  # what is there is seen: at least one unit wide
            parts.append(BarPart(name, at * BAR // whole, max((end - at) * BAR // whole, 1)))
        at = end
    words = ", ".join(f"{WORDS[name]} {row.parts[name] * 100 / whole:.1f} %" for name in PARTS if row.parts[name])
    return Bar(parts, words or "nothing in service")


@register.filter
def percents(value: Decimal | None) -> str:
    """A percentage to a tenth; a dash where there is none."""
    return "–" if value is None else f"{value:.1f}{THIN_SPACE}%"


@register.filter
def ms_hours(value: int) -> str:
    """Milliseconds as hours."""
    return quantity(decimal_from(Fraction(value, 3_600_000), 2), 2)


@register.filter
def because(row: HoursRow) -> list[tuple[str, int]]:
    """The reasons of a row's idle time in words, the largest first."""
    found = [(WORDS[name], row.parts[name]) for name in (*REASONS, UNEXPLAINED) if row.parts[name]]
    return sorted(found, key=lambda one: -one[1])


@register.filter
def reason(row: Any, name: str) -> int:
    """One reason of an idle hour."""
    value: int = getattr(row, name)
    return value


@register.simple_tag
def key_text(row: HoursRow, name: str) -> str:
    """One of a row's keys in words."""
    value = getattr(row.key, name)
    if name == "day":
        return f"{value:%Y-%m-%d}"
    if value:
        return str(value)
    return {"tenant": "no team's", "model": "no team's", "gpu_type": "unknown type", "pool": "no pool"}.get(name, "–")


@register.simple_tag
def drill(query: str, row: HoursRow, name: str) -> str:
    """The address that a row's key opens to: narrowed to it, and apart in what lies below."""
    pairs = [(key, value) for key, value in parse_qsl(query) if key not in ("by", name)]
    value = getattr(row.key, name)
    if name == "day":
        pairs = [pair for pair in pairs if pair[0] not in ("start", "end")]
        pairs += [("start", f"{value:%Y-%m-%d}"), ("end", f"{value:%Y-%m-%d}")]
    elif name == "pool":
        pairs = [pair for pair in pairs if pair[0] != "cluster"] + [("cluster", row.key.cluster)]
    elif name != "model" and value:
        pairs.append((name, str(value)))
    if name == "model" and row.key.tenant:
        pairs = [pair for pair in pairs if pair[0] != "tenant"] + [("tenant", row.key.tenant)]
    by = [one for one in DIMENSIONS if one in (name, OPENS_TO[name])]
    return urlencode(pairs + [("by", one) for one in by])
