"""How a team's pages write cards and states."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from tenants.services.allotments import cards as written

register = template.Library()

_STATES = {
    "Ready": "ok",
    "active": "ok",
    "True": "ok",
    "done": "ok",
    "Degraded": "bad",
    "Failed": "bad",
    "False": "bad",
    "refused": "bad",
    "Stopped": "off",
    "Deleting": "off",
    "Deleted": "off",
    "suspended": "off",
}


@register.filter
def cards(millionths: int | None) -> str:
    """Millionths of a card as cards: ``8``, ``0.25``; a dash for none."""
    return "–" if millionths is None else written(millionths)


@register.filter
def in_cards(millionths: int | None) -> str:
    """With the unit: ``1 card``, ``8 cards``, ``0.25 cards``."""
    figure = cards(millionths)
    return f"{figure} {'card' if figure == '1' else 'cards'}"


@register.filter
def state(phase: str) -> SafeString:
    """A phase or status as a word with its sign; the word is always there, so colour says nothing of its own."""
    return format_html('<span class="state state-{} nowrap">{}</span>', _STATES.get(phase, "wait"), phase)
