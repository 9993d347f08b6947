"""How pages of usage and money write quantities, prices and buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from django import template

from billing.opencost.compare import WORDS, Class
from billing.selectors.conservation import BUCKETS, CARD_HOUR
from infra.models.hardware import SharingMode
from infra.shares import OVERCOMMIT
from portal.kernel.clock import epoch_ms, zone
from portal.kernel.money import MINOR_UNITS, THIN_SPACE, decimal_from, quantize

register = template.Library()

BAR = 1000
"""Width of a bar in its own units."""

_UNITS = {
    "gpu-hour": "GPU-hours",
    "instance-hour": "instance-hours",
    "core-hour": "core-hours",
    "gib-hour": "GiB-hours",
    "opencost-cost": "by OpenCost",
    "hour": "hours",
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
    """Millionths·milliseconds of cards as card-hours, to two decimals; a dash for none."""
    return "–" if value is None else quantity(decimal_from(Fraction(value, CARD_HOUR), 12), 2)


@register.filter
def share(millionths: int | None) -> str:
    """Millionths of a card as a part of it: ``1``, ``0.25``."""
    return "–" if millionths is None else exactly(Decimal(millionths).scaleb(-6))


@register.filter
def unit(name: str) -> str:
    """A unit in the plural."""
    return _UNITS.get(name, name)


@register.filter
def difference_words(name: str) -> str:
    """A class of difference to OpenCost, in words."""
    return WORDS[Class(name)]


@register.filter
def signed_quantity(value: Decimal, places: int = 3) -> str:
    """As :func:`quantity`, with its sign."""
    return f"+{quantity(value, places)}" if value > 0 else quantity(value, places).replace("-", "−")


@register.filter
def mode(sharing: str, profile: str = "") -> str:
    """How a card is handed out, in words: ``MIG slices 1g.10gb``, ``HAMi shares, over-committed``."""
    try:
        words = SharingMode(sharing).label
    except ValueError:
        return sharing or "–"
    return f"{words}, over-committed" if profile == OVERCOMMIT else f"{words} {profile}".strip()


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


@register.filter
def card_hours_or_dash(value: int) -> str:
    """As :func:`card_hours`, but a dash for zero: in a wide table only what is there stands out."""
    return card_hours(value) if value else "–"


@register.filter
def money(value: Decimal | None, currency: str = "") -> str:
    """An amount with the currency's decimals and without its code (the column says it)."""
    if value is None:
        return "not known"
    return quantity(quantize(value, MINOR_UNITS.get(currency, 2)), MINOR_UNITS.get(currency, 2))


@register.filter
def exactly_short(value: Decimal) -> str:
    """An amount that is not rounded to the currency, to four decimals."""
    return quantity(value, 4)


@register.filter
def percent(value: Decimal) -> str:
    """A fraction as percent: ``15 %``."""
    return f"{exactly(value * 100)}{THIN_SPACE}%"


@register.filter
def epoch(day: date) -> int:
    """Seconds since 1970 at which a day begins in UTC, for a chart's axis."""
    return epoch_ms(datetime(day.year, day.month, day.day, tzinfo=UTC)) // 1000


@register.filter
def day(value: date | datetime | str | None) -> str:
    """A day for a date field: what was typed, or the UTC day of an instant."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).date().isoformat()
    return value.isoformat() if isinstance(value, date) else value or ""


@register.filter
def last_day(value: date | datetime | str | None) -> str:
    """As :func:`day`; of an instant, the UTC day that ends there."""
    return day(value - timedelta(seconds=1)) if isinstance(value, datetime) else day(value)


@register.filter
def month_in(instant: datetime, tz_name: str) -> str:
    """The month that an instant lies in, in a zone: ``2026-11``."""
    return f"{instant.astimezone(zone(tz_name)):%Y-%m}"
