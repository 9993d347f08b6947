"""Answers that a higher app gives: declared here, registered by that app when it starts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class HourlyPrice:
    """The price of one whole card (or of one MIG slice of ``profile``) for an hour."""

    amount: Decimal
    currency: str


class PriceBook(Protocol):
    """Knows what a card costs; ``billing`` registers it."""

    def price_per_hour(self, gpu_type_id: UUID, sharing: str, profile: str, at: datetime) -> HourlyPrice | None:
        """The rate in force at ``at``; None: there is no rate (unpriced, not free)."""
        ...


_price_book: PriceBook | None = None


def register_price_book(book: PriceBook | None) -> None:
    """Make ``book`` the one that is asked (None: nobody is)."""
    global _price_book  # noqa: PLW0603  # set once, when the app is ready
    _price_book = book


def price_book() -> PriceBook | None:
    """The registered price book; None where there is none, which means: the price is unknown."""
    return _price_book
