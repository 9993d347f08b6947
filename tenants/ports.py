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


@dataclass(frozen=True, slots=True)
class MonthCost:
    """What a tenant's open month costs so far. ``amount`` is rounded to the currency and holds what is priced only.

    ``final`` is the part of hours that are settled; ``unpriced`` says that some of the usage has no rate yet.
    """

    amount: Decimal
    final: Decimal
    currency: str
    start: datetime
    end: datetime
    unpriced: bool


class CostBook(Protocol):
    """Knows what a tenant has spent; ``billing`` registers it."""

    def month_to_date(self, tenant_id: UUID) -> MonthCost | None:
        """The open month so far, within a scope of the tenant; None: nobody bills this tenant yet."""
        ...


class PriceBook(Protocol):
    """Knows what a card costs; ``billing`` registers it."""

    def price_per_hour(self, gpu_type_id: UUID, sharing: str, profile: str, at: datetime) -> HourlyPrice | None:
        """The rate in force at ``at``; None: there is no rate (unpriced, not free)."""
        ...


_price_book: PriceBook | None = None
_cost_book: CostBook | None = None


def register_cost_book(book: CostBook | None) -> None:
    """Make ``book`` the one that is asked for costs (None: nobody is)."""
    global _cost_book  # noqa: PLW0603  # set once, when the app is ready
    _cost_book = book


def cost_book() -> CostBook | None:
    """The registered cost book; None where there is none, which means: the cost is not known."""
    return _cost_book


def register_price_book(book: PriceBook | None) -> None:
    """Make ``book`` the one that is asked (None: nobody is)."""
    global _price_book  # noqa: PLW0603  # set once, when the app is ready
    _price_book = book


def price_book() -> PriceBook | None:
    """The registered price book; None where there is none, which means: the price is unknown."""
    return _price_book
