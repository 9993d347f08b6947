"""What an idle card costs: the default issuer's rate for a whole card, or a share of it, in force at an hour."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from fractions import Fraction

from django.db.models import Q

from billing.models import Issuer, Rate
from billing.prices import pure_rate
from billing.rates import Rate as PureRate
from infra.models.hardware import SharingMode
from portal.kernel.clock import Interval


@dataclass(frozen=True, slots=True)
class IdlePrices:
    """Rates by (type, mode). ``change``: one begins or ends within the window, so an hour must be looked at by itself;
    else a day has one price. ``currency`` is empty where nobody bills."""

    window: Interval
    currency: str
    change: bool
    rates: dict[tuple[str, str], list[PureRate]] = field(default_factory=dict)

    def at(self, gpu_type: str, sharing: str, step: datetime | date) -> Fraction | None:
        """The price of a card-hour at an hour, or on a day of the window; None where there is none for a whole card
        (MIG is priced by instance, a rate of OpenCost's by its hour)."""
        if not isinstance(step, datetime):
            step = max(datetime(step.year, step.month, step.day, tzinfo=UTC), self.window.start)
        for rate in self.rates.get((gpu_type, sharing), ()):
            if rate.valid_from <= step and (rate.valid_to is None or step < rate.valid_to):
                price = rate.unit_price
                return None if price is None else Fraction(price)
        return None


def idle_prices(window: Interval, issuer: Issuer | None = None) -> IdlePrices:
    """The issuer's rates (default: the default issuer's) that concern a window. Two queries."""
    issuer = issuer or Issuer.objects.filter(is_default=True).first()
    if issuer is None:
        return IdlePrices(window, "", change=False)
    stored = Rate.objects.filter(
        Q(valid_to__isnull=True) | Q(valid_to__gt=window.start), card__issuer=issuer,
        resource=Rate.Resource.GPU, valid_from__lt=window.end,
    ).exclude(sharing=SharingMode.MIG)  # fmt: skip
    found: dict[tuple[str, str], list[PureRate]] = {}
    change = False
    for row in stored.select_related("gpu_type"):
        one = pure_rate(row)
        found.setdefault((one.key.gpu_type, one.key.sharing), []).append(one)
        change = change or any(edge is not None and edge in window for edge in (one.valid_from, one.valid_to))
    return IdlePrices(window, issuer.currency, change, found)
