"""Whose an hour's storage and network cost was: a namespace's cost shared out by its claims. Pure: no Django."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from portal.kernel.clock import Interval, clip
from portal.kernel.money import split_exact

PLACES = 12


@dataclass(frozen=True, slots=True)
class Claim:
    """A namespace was a tenant's from ``start`` until ``end`` (None: still is)."""

    tenant_id: UUID
    cost_code: str
    start: datetime
    end: datetime | None


@dataclass(frozen=True, slots=True)
class Part:
    """A tenant's part of a namespace's cost in an hour; ``tenant_id`` is None for time that nobody claimed."""

    tenant_id: UUID | None
    cost_code: str
    amount: Decimal


def share_out(cost: Decimal, hour: Interval, claims: Iterable[Claim]) -> list[Part]:
    """The cost by claimed milliseconds; Σ of the parts is the cost, to the last digit.

    Claims of one namespace don't overlap. OpenCost says what the hour cost, not when in it: so time decides.
    """
    weights: dict[tuple[UUID | None, str], int] = {}
    rest = hour.ms
    for claim in claims:
        part = clip(Interval(claim.start, max(claim.start, claim.end or hour.end)), hour)
        if part is not None and not part.is_empty:
            key = (claim.tenant_id, claim.cost_code)
            weights[key] = weights.get(key, 0) + part.ms
            rest -= part.ms
    if rest:
        weights[None, ""] = rest
    ordered = sorted(weights.items(), key=lambda item: (item[0][0] is None, str(item[0][0]), item[0][1]))
    amounts = split_exact(cost, [weight for _, weight in ordered], PLACES)
    return [Part(tenant, code, amount) for ((tenant, code), _), amount in zip(ordered, amounts, strict=True) if amount]
