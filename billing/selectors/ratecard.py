"""The rate card as a page shows it, and what has no price. For platform pages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import Q, QuerySet

from billing.models import BillingPeriod, Issuer, Rate
from billing.rates import RateKey, Resource
from billing.selectors.bills import unpriced_usage
from billing.selectors.periods import periods_known
from infra.models import NodePool
from infra.models.hardware import SharingMode
from infra.selectors.overcommit import pools_overcommitted
from infra.shares import OVERCOMMIT
from portal.kernel.clock import utcnow
from portal.kernel.money import exact_sum


def rates_of(issuer: Issuer) -> QuerySet[Rate]:
    """All rates of the issuer's card: by key, the latest first."""
    return (
        Rate.objects.filter(card__issuer=issuer)
        .select_related("gpu_type", "card__issuer")
        .order_by("resource", "gpu_type__slug", "sharing", "profile", "-valid_from")
    )


def rate_state(rate: Rate, now: datetime) -> str:
    """``current``, ``future`` or ``past``."""
    if rate.valid_from > now:
        return "future"
    return "current" if rate.valid_to is None or rate.valid_to > now else "past"


@dataclass(frozen=True, slots=True)
class Unpriced:
    """A kind of card (or CPU, memory) without a rate.

    ``quantity`` in ``unit`` was used in open periods without a price, between ``first`` and ``last`` by so many
    ``tenants``, and blocks the close; 0 where nothing was, yet. ``sharing`` mig without a profile: no MIG profile of
    this type has a rate.
    """

    resource: str
    gpu_type: str
    sharing: str
    profile: str
    unit: str
    quantity: Decimal
    first: datetime | None
    last: datetime | None
    tenants: int

    @property
    def what(self) -> str:
        """The key in words."""
        return str(RateKey(Resource(self.resource), self.gpu_type, self.sharing, self.profile))


def unpriced_keys(issuer: Issuer, *, now: datetime | None = None) -> list[Unpriced]:
    """What was used without a price in open periods, then what is in the fleet and has none now. In a system scope."""
    now = now or utcnow()
    lines = [
        line
        for period in periods_known(issuer, now=now)
        if period.state != BillingPeriod.State.CLOSED
        for line in unpriced_usage(period)
    ]
    found = []
    for key in sorted({line.key for line in lines if line.key is not None}):
        part = [line for line in lines if line.key == key]
        found.append(
            Unpriced(
                key.resource.value,
                key.gpu_type,
                key.sharing,
                key.profile,
                part[0].unit,
                exact_sum([line.quantity for line in part]),
                min(line.segment.start for line in part),
                max(line.segment.end for line in part),
                len({line.subject.tenant for line in part}),
            )
        )
    used = {_kind(one.gpu_type, one.sharing, one.profile) for one in found}
    there = _idle_types(issuer, now)
    return found + [one for one in there if _kind(one.gpu_type, one.sharing, one.profile) not in used]


def _kind(gpu_type: str, sharing: str, profile: str) -> tuple[str, str, str]:
    """What has a rate, as far as pools tell: which MIG profiles are used shows only when they are."""
    return gpu_type, sharing, "" if sharing == SharingMode.MIG else profile


def _idle_types(issuer: Issuer, now: datetime) -> list[Unpriced]:
    """Pools' types and modes without a rate in force."""
    priced = set(
        Rate.objects.filter(
            Q(valid_to__isnull=True) | Q(valid_to__gt=now), card__issuer=issuer, resource=Rate.Resource.GPU,
            valid_from__lte=now,
        ).values_list("gpu_type__slug", "sharing", "profile")
    )  # fmt: skip
    priced = {_kind(*key) for key in priced}
    there = set()
    for pool in pools_overcommitted(NodePool.objects.filter(cluster__abandoned_at__isnull=True)):
        for too_much in pool.both:
            there.add((pool.gpu_type, pool.sharing, OVERCOMMIT if too_much else ""))
    return [
        Unpriced(
            Rate.Resource.GPU.value, slug, sharing, profile,
            "instance-hour" if sharing == SharingMode.MIG else "gpu-hour", Decimal(0), None, None, 0,
        )
        for slug, sharing, profile in sorted(there - priced)
    ]  # fmt: skip
