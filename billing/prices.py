"""The rate card as pure data, and as the price book that pages of lower apps ask."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise
from uuid import UUID

from django.db.models import Q

from billing import models, rates
from portal.kernel.clock import Interval
from portal.kernel.money import decimal_from
from tenants.ports import HourlyPrice, register_price_book

PRICE_PLACES = 10


def rate_key(rate: models.Rate) -> rates.RateKey:
    """What a stored rate prices."""
    return rates.RateKey(
        rates.Resource(rate.resource), rate.gpu_type.slug if rate.gpu_type else "", rate.sharing, rate.profile
    )


def pure_rate(rate: models.Rate) -> rates.Rate:
    """A stored rate for the pure functions. One whose price comes from OpenCost has none of its own."""
    return rates.Rate(
        id=str(rate.pk),
        key=rate_key(rate),
        price=rate.price,
        valid_from=rate.valid_from,
        valid_to=rate.valid_to,
        margin=rate.margin,
        included_cpu_millicores=rate.included_cpu_millicores,
        included_memory_mib=rate.included_memory_mib,
    )


def stored_rates(issuer: models.Issuer) -> list[rates.Rate]:
    """All rates of the issuer's card."""
    rows: Iterable[models.Rate] = models.Rate.objects.filter(card__issuer=issuer).select_related("gpu_type")
    return [pure_rate(row) for row in rows]


class StoredPrices:
    """The default issuer's rate card as a price book (:class:`tenants.ports.PriceBook`)."""

    def price_per_hour(self, gpu_type_id: UUID, sharing: str, profile: str, at: datetime) -> HourlyPrice | None:
        """The price with its margin; None where no rate is in force at ``at``, or its price is not known."""
        row = (
            models.Rate.objects.filter(
                Q(valid_to__isnull=True) | Q(valid_to__gt=at),
                card__issuer__is_default=True,
                resource=models.Rate.Resource.GPU,
                gpu_type_id=gpu_type_id,
                sharing=sharing,
                profile=profile,
                valid_from__lte=at,
            )
            .select_related("gpu_type", "card__issuer")
            .first()
        )
        price = pure_rate(row).unit_price if row else None
        if row is None or price is None:
            return None
        return HourlyPrice(decimal_from(price, PRICE_PLACES), row.card.issuer.currency)


def register() -> None:
    """Have lower apps ask the stored rates."""
    register_price_book(StoredPrices())


def segments_of(edges: Iterable[datetime], window: Interval) -> list[Interval]:
    """The window cut at the edges inside it."""
    points = [window.start, *sorted({edge for edge in edges if window.start < edge < window.end}), window.end]
    return [Interval(start, end) for start, end in pairwise(points)]
