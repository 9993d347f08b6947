"""What placed replicas cost per hour, from the registered price book."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from infra.models import GPUType, NodePool
from infra.placement import EnginePlacement, Placement, Sharing
from infra.selectors.overcommit import pools_overcommitted
from infra.shares import OVERCOMMIT
from tenants.ports import HourlyPrice, price_book

MILLION = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Cost:
    """Per hour for all placed replicas. ``amount`` None: something has no rate, ``unpriced`` says what."""

    amount: Decimal | None
    currency: str = ""
    unpriced: tuple[str, ...] = ()


def cost_per_hour(placements: Iterable[Placement], at: datetime) -> Cost:
    """The price of what these placements hold, at the rates in force at ``at``. One question for each kind of card."""
    book = price_book()
    if book is None:
        return Cost(None, unpriced=("no rate card is in force",))
    asked: dict[tuple[str, str, str], HourlyPrice | None] = {}
    types = {row.slug: row.pk for row in GPUType.objects.only("slug")}
    total, currency, unpriced = Decimal(0), "", set[str]()
    placements = list(placements)
    too_much = _overcommitted(placements)
    for placement in placements:
        for engine in placement.engines:
            scaled = (placement.cluster, engine.pool) in too_much
            for gpu_type, mig_profile, quantity in _quantities(engine):
                profile = OVERCOMMIT if scaled else mig_profile
                key = (gpu_type, engine.sharing.value, profile)
                if key not in asked:
                    known = types.get(gpu_type)
                    asked[key] = book.price_per_hour(known, engine.sharing.value, profile, at) if known else None
                price = asked[key]
                if price is None:
                    what = f" {profile}" if profile else ""
                    unpriced.add(f"{gpu_type}{what} ({engine.sharing.value}) has no rate")
                    continue
                total += price.amount * quantity
                currency = price.currency
    if unpriced:
        return Cost(None, currency, tuple(sorted(unpriced)))
    return Cost(total, currency)


def _overcommitted(placements: Iterable[Placement]) -> set[tuple[str, str]]:
    """(cluster, pool) of the HAMi pools among them that hand out more memory than there is: a rate of its own holds."""
    names = {
        (placement.cluster, engine.pool)
        for placement in placements
        for engine in placement.engines
        if engine.sharing is Sharing.HAMI
    }
    if not names:
        return set()
    pools = NodePool.objects.filter(cluster__slug__in={slug for slug, _ in names}, name__in={name for _, name in names})
    return {(one.cluster, one.name) for one in pools_overcommitted(pools) if one.percent > 100} & names


def _quantities(engine: EnginePlacement) -> list[tuple[str, str, Decimal]]:
    """(GPU type, MIG profile, how many cards or slices) of each grant."""
    out = []
    for pod in engine.pods:
        for grant in pod.grants:
            if not grant.gpu_type:
                continue
            slices = engine.sharing is Sharing.MIG and grant.profile
            quantity = Decimal(grant.count) if slices else Decimal(grant.millionths) / MILLION
            out.append((grant.gpu_type, grant.profile, quantity))
    return out
