"""What placed replicas cost per hour, from the registered price book."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from infra.models import GPUType
from infra.placement import EnginePlacement, Placement, Sharing
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
    for placement in placements:
        for engine in placement.engines:
            for gpu_type, profile, quantity in _quantities(engine):
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
