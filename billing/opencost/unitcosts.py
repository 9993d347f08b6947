"""What a unit cost in one cluster and hour, from OpenCost's answers. Pure: no Django.

A unit cost is the quotient of a cost and a quantity that OpenCost both rounded (allocations to five decimals, assets to
six). What it was before is only known to lie in an interval; the *shortest* decimal number in it is taken, so a price
that was entered as 2.5 comes back as 2.5 and not as 2.500000037. Where the interval is wider than a hundredth of the
price, the hour is too thin to tell, and there is no unit cost: unknown is not zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from billing.opencost.answers import Allocation, Assets
from portal.kernel.money import decimal_from

GIB = 1024**3
PRICE_PLACES = 10
COARSE = Fraction(1, 100)


class Priced(StrEnum):
    """What a unit cost is for: a card, a core, a GiB of memory, each for an hour."""

    GPU = "gpu"
    CPU = "cpu"
    MEMORY = "memory"


class Basis(StrEnum):
    """Which answer it was computed from."""

    ASSETS = "assets"
    ALLOCATION = "allocation"


@dataclass(frozen=True, slots=True)
class Unit:
    """The price of one unit for an hour; ``gpu_type`` is the slug of a type of card (only of cards)."""

    resource: Priced
    gpu_type: str
    price: Decimal
    quantity: Decimal
    basis: Basis


def quotient(cost: Decimal, quantity: Decimal, places: int) -> Decimal | None:
    """The shortest price that rounds to these figures; None where they say too little, or there was no quantity.

    A cost of 0 for something that was there is no price of 0: it is what OpenCost answers where it knows no price.

    Args:
        places: decimals to which both were rounded.
    """
    half = Fraction(1, 2 * 10**places)
    low, high = Fraction(quantity) - half, Fraction(quantity) + half
    if low <= 0:
        return None
    least, most = max(Fraction(0), Fraction(cost) - half) / high, (Fraction(cost) + half) / low
    if not cost or most - least > COARSE * Fraction(cost) / Fraction(quantity):
        return None
    return shortest(least, most, Fraction(cost) / Fraction(quantity))


def shortest(least: Fraction, most: Fraction, near: Fraction) -> Decimal:
    """The decimal number in [least, most] with the fewest places, the nearest to ``near`` among those."""
    for places in range(PRICE_PLACES):
        found = decimal_from(near, places)
        if least <= Fraction(found) <= most:
            return found
    return decimal_from(near, PRICE_PLACES)


def unit_costs(allocation: Allocation, assets: Assets | None, types: Mapping[str, str]) -> list[Unit]:
    """All unit costs of a window, sorted.

    Cards by type, over the nodes of that type; cores and GiB over all nodes. A cluster whose assets don't tell, and
    that has one type of card alone, has the price of its allocations.

    Args:
        types: name of a node → slug of its type of card, of nodes with cards.
    """
    found = [*_of_nodes(assets, types)] if assets is not None else []
    rows = [row for row in allocation.rows if not row.special]
    known = {(unit.resource, unit.gpu_type) for unit in found}
    kinds = set(types.values())
    if len(kinds) == 1 and (Priced.GPU, min(kinds)) not in known:
        found += _unit(Priced.GPU, min(kinds), ((row.gpu_cost, row.gpu_hours) for row in rows), Basis.ALLOCATION)
    if (Priced.CPU, "") not in known:
        found += _unit(Priced.CPU, "", ((row.cpu_cost, row.cpu_core_hours) for row in rows), Basis.ALLOCATION)
    if (Priced.MEMORY, "") not in known:
        found += _unit(Priced.MEMORY, "", ((row.ram_cost, row.ram_byte_hours / GIB) for row in rows), Basis.ALLOCATION)
    return sorted(found, key=lambda unit: (unit.resource, unit.gpu_type))


def _of_nodes(assets: Assets, types: Mapping[str, str]) -> Iterable[Unit]:
    for gpu_type in sorted(set(types.values())):
        pairs = ((n.gpu_cost, n.gpu_hours) for n in assets.nodes if types.get(n.name) == gpu_type and n.gpu_hours)
        yield from _unit(Priced.GPU, gpu_type, pairs, Basis.ASSETS)
    yield from _unit(Priced.CPU, "", ((n.cpu_cost, n.cpu_core_hours) for n in assets.nodes), Basis.ASSETS)
    yield from _unit(Priced.MEMORY, "", ((n.ram_cost, n.ram_byte_hours / GIB) for n in assets.nodes), Basis.ASSETS)


def _unit(resource: Priced, gpu_type: str, pairs: Iterable[tuple[Decimal, Decimal]], basis: Basis) -> list[Unit]:
    """One unit cost over all pairs of cost and quantity, or none."""
    both = list(pairs)
    cost, quantity = (sum(column, Decimal(0)) for column in zip(*both, strict=True)) if both else (Decimal(0),) * 2
    # n roundings may add up to n halves; their price is looked for in the interval of them all.
    places = (6 if basis is Basis.ASSETS else 5) - (len(str(len(both))) if len(both) > 1 else 0)
    price = quotient(cost, quantity, places)
    return [] if price is None else [Unit(resource, gpu_type, price, quantity, basis)]
