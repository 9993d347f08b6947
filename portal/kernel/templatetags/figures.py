"""How figures, money and moments are written on pages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from portal.kernel.money import MINOR_UNITS, THIN_SPACE, quantize

register = template.Library()


@register.filter
def moment(value: datetime | None) -> SafeString | str:
    """An instant in UTC as ``2026-11-29 18:34``; a dash for none."""
    if value is None:
        return "–"
    utc = value.astimezone(UTC)
    exact, short = f"{utc:%Y-%m-%dT%H:%M:%SZ}", f"{utc:%Y-%m-%d %H:%M}"
    return format_html('<time class="nowrap" datetime="{}">{}</time>', exact, short)


@register.filter
def grouped(value: int | Decimal | None) -> str:
    """A figure with thin spaces between groups of three digits; a dash for none."""
    return "–" if value is None else f"{value:,}".replace(",", THIN_SPACE)


@register.filter
def amount(value: Decimal | None, currency: str = "") -> str:
    """An amount with the currency's decimals, such as ``1 234.50 EUR``; "not known" for none."""
    if value is None:
        return "not known"
    places = MINOR_UNITS.get(currency, 2)
    return f"{grouped(quantize(value, places))}{THIN_SPACE}{currency}".rstrip(THIN_SPACE)


@register.filter
def item(mapping: Mapping[Any, Any], key: Any) -> Any:
    """The value of a key that is a variable; a dash where there is none."""
    return mapping.get(key, "–")
