"""How pages of usage and money write quantities, prices and buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from django import template

from billing.selectors.conservation import BUCKETS
from infra.models.hardware import SharingMode
from portal.kernel.money import THIN_SPACE, decimal_from, quantize

register = template.Library()

CARD_HOUR = 1_000_000 * 3_600_000
BAR = 1000
"""Width of a bar in its own units."""

_UNITS = {
    "gpu-hour": "GPU-hours",
    "instance-hour": "instance-hours",
    "core-hour": "core-hours",
    "gib-hour": "GiB-hours",
}


@register.filter
def quantity(value: Decimal | None, places: int = 3) -> str:
    """A quantity to so many decimals, with thin spaces; a dash for none. What is not zero never reads as zero."""
    if value is None:
        return "–"
    shown = quantize(value, places)
    if value and not shown:
        return f"< {Decimal(1).scaleb(-places):f}" if value > 0 else f"> -{Decimal(1).scaleb(-places):f}"
    return f"{shown:,f}".replace(",", THIN_SPACE)


@register.filter
def exactly(value: Decimal | None) -> str:
    """A decimal without zeros that say nothing; a dash for none."""
    if value is None:
        return "–"
    written = f"{value:,f}".replace(",", THIN_SPACE)
    return written.rstrip("0").rstrip(".") if "." in written else written


@register.filter
def price(value: Decimal | None) -> str:
    """A price with at least two decimals, and more where it has more; "not known" for none."""
    if value is None:
        return "not known"
    places = max(2, -int(value.normalize().as_tuple().exponent))
    return f"{value:,.{places}f}".replace(",", THIN_SPACE)


@register.filter
def card_hours(value: int | None) -> str:
    """Millionths·milliseconds of cards as card-hours, to three decimals; a dash for none."""
    return "–" if value is None else quantity(decimal_from(Fraction(value, CARD_HOUR), 12))


@register.filter
def share(millionths: int | None) -> str:
    """Millionths of a card as a part of it: ``1``, ``0.25``."""
    return "–" if millionths is None else exactly(Decimal(millionths).scaleb(-6))


@register.filter
def unit(name: str) -> str:
    """A unit in the plural."""
    return _UNITS.get(name, name)


@register.filter
def mode(sharing: str, profile: str = "") -> str:
    """How a card is handed out, in words: ``MIG slices 1g.10gb``."""
    try:
        words = SharingMode(sharing).label
    except ValueError:
        return sharing or "–"
    return f"{words} {profile}".strip()


@dataclass(frozen=True, slots=True)
class BarPart:
    """A bucket's rectangle in a bar that is ``BAR`` wide."""

    name: str
    x: int
    width: int


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of buckets, and the same in words for those who don't see it."""

    parts: list[BarPart]
    label: str


@register.filter
def bucket_bar(row: Any) -> Bar:
    """The six buckets of an hour, or of a sum of hours, as parts of what was in service."""
    values: Mapping[str, int] = getattr(row, "buckets", None) or {name: getattr(row, name) for name in BUCKETS}
    whole = max(row.in_service, sum(values.values()), 1)
    parts, at = [], 0
    for name in BUCKETS:
        end = at + values[name]
        left, right = at * BAR // whole, end * BAR // whole
        # What is there is seen: at least one unit wide.
        if values[name] > 0:
            parts.append(BarPart(name, left, max(right - left, 1)))
        at = end
    words = ", ".join(f"{name} {values[name] * 100 / whole:.1f} %" for name in BUCKETS if values[name])
    return Bar(parts, words or "nothing in service")


@register.filter
def bucket(row: Any, name: str) -> int:
    """One bucket of an hour, or of a sum of hours."""
    value: int = row.buckets[name] if hasattr(row, "buckets") else getattr(row, name)
    return value
