"""The rate card as pure data, and as the price book that pages of lower apps ask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from uuid import UUID

from django.db.models import Q

from billing import models, rates
from infra.models import Cluster
from infra.models.hardware import SharingMode
from infra.pod_devices import mig_profile, mig_resource
from infra.shares import CARD, SLICES, floor_millionths, mig_share
from portal.kernel.clock import Interval, hour_start
from portal.kernel.money import decimal_from
from tenants.ports import HourlyPrice, register_price_book

PRICE_PLACES = 10


def rate_key(rate: models.Rate) -> rates.RateKey:
    """What a stored rate prices."""
    return rates.RateKey(
        rates.Resource(rate.resource), rate.gpu_type.slug if rate.gpu_type else "", rate.sharing, rate.profile
    )


def pure_rate(rate: models.Rate) -> rates.Rate:
    """A stored rate for the pure functions. One whose price comes from OpenCost is hourly, and has none of its own."""
    return rates.Rate(
        id=str(rate.pk),
        key=rate_key(rate),
        price=rate.price,
        valid_from=rate.valid_from,
        valid_to=rate.valid_to,
        margin=rate.margin,
        included_cpu_millicores=rate.included_cpu_millicores,
        included_memory_mib=rate.included_memory_mib,
        hourly=rate.source == models.Rate.Source.OPENCOST,
    )


def stored_rates(issuer: models.Issuer) -> list[rates.Rate]:
    """All rates of the issuer's card."""
    rows: Iterable[models.Rate] = models.Rate.objects.filter(card__issuer=issuer).select_related("gpu_type")
    return [pure_rate(row) for row in rows]


STAND_IN = timedelta(hours=48)
"""How old a unit cost may be that stands in for an hour that OpenCost has not answered for yet."""


def book_of(
    issuer: models.Issuer, rates_: Sequence[rates.Rate], window: Interval, upto: int, *, stand_in: bool = False
) -> rates.RateBook:
    """The issuer's rates with the unit costs that its hourly ones need in the window.

    An hour of a closed period has the unit cost that its close knew, or the first one after: what was billed stays
    billed at that price, and what comes late is priced like it. Other hours have the latest one.

    Args:
        upto: only unit costs with a sequence number up to this.
        stand_in: see :class:`billing.rates.UnitCosts`.
    """
    hourly = {rate.key.resource.value for rate in rates_ if rate.hourly}
    if not hourly:
        return rates.RateBook(rates_, rates.UnitCosts(currency=issuer.currency))
    since = hour_start(window.start) - (STAND_IN if stand_in else timedelta())
    rows = models.UnitCost.objects.filter(
        resource__in=hourly, hour__gte=since, hour__lt=window.end, seq__lte=upto
    ).order_by("seq")
    closed = list(
        models.BillingPeriod.objects.filter(
            issuer=issuer, state=models.BillingPeriod.State.CLOSED, ends_at__gt=since, starts_at__lt=window.end
        ).values_list("starts_at", "ends_at", "seq_upto")
    )
    costs: dict[rates.CostKey, rates.UnitCost] = {}
    for pk, resource, slug, cluster, hour, price, currency, seq in rows.values_list(
        "pk", "resource", "gpu_type__slug", "cluster_id", "hour", "price", "currency", "seq"
    ):
        key = (rates.Resource(resource), slug or "", str(cluster), hour)
        known_at_close = next((end for first, last, end in closed if first <= hour < last), None)
        if key in costs and known_at_close is not None and seq > known_at_close:
            continue
        costs[key] = rates.UnitCost(str(pk), price, currency)
    answers = models.OpenCostAnswer.objects.filter(
        accepted=True, hour__gte=since, hour__lt=window.end, seq__lte=upto
    ).values_list("cluster_id", "hour")
    return rates.RateBook(
        rates_,
        rates.UnitCosts(
            costs=costs,
            names={str(pk): slug for pk, slug in Cluster.objects.values_list("pk", "slug")},
            answered=frozenset((str(pk), hour) for pk, hour in answers),
            currency=issuer.currency,
            stand_in=stand_in,
        ),
    )


class StoredPrices:
    """The default issuer's rate card as a price book (:class:`tenants.ports.PriceBook`)."""

    def price_per_hour(self, gpu_type_id: UUID, sharing: str, profile: str, at: datetime) -> HourlyPrice | None:
        """The price with its margin; None where no rate is in force at ``at``, or its price is not known.

        Of a rate of OpenCost's unit cost: the dearest cluster's latest one, of a MIG instance its part of the card.
        """
        if sharing == SharingMode.MIG:
            profile = mig_profile(mig_resource(profile))  # as rates spell it
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
        price = None
        if row is not None:
            price = _latest(row, at) if row.source == models.Rate.Source.OPENCOST else pure_rate(row).unit_price
        if row is None or price is None:
            return None
        return HourlyPrice(decimal_from(price, PRICE_PLACES), row.card.issuer.currency)


def _latest(row: models.Rate, at: datetime) -> Fraction | None:
    """The highest of the clusters' latest unit costs in the issuer's currency, with the rate's margin."""
    recent = models.UnitCost.objects.filter(
        resource=row.resource, gpu_type_id=row.gpu_type_id, hour__lt=at, hour__gte=at - STAND_IN,
        currency=row.card.issuer.currency,
    )  # fmt: skip
    latest = dict(recent.order_by("hour", "seq").values_list("cluster_id", "price"))
    if not latest:
        return None
    card = rates.with_margin(max(latest.values()), row.margin)
    if row.sharing != SharingMode.MIG or row.gpu_type is None:
        return card
    return card * Fraction(floor_millionths(mig_share(row.profile, row.gpu_type.compute_slices or SLICES)), CARD)


def register() -> None:
    """Have lower apps ask the stored rates."""
    register_price_book(StoredPrices())


def segments_of(edges: Iterable[datetime], window: Interval) -> list[Interval]:
    """The window cut at the edges inside it."""
    points = [window.start, *sorted({edge for edge in edges if window.start < edge < window.end}), window.end]
    return [Interval(start, end) for start, end in pairwise(points)]
