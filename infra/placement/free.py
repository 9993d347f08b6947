"""The arithmetic of what is free, in one place (the ledger's rule)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def free_vector(
    allocatable: Mapping[K, int],
    reserved: Mapping[K, int],
    observed_ours: Mapping[K, int],
    observed_foreign: Mapping[K, int],
) -> dict[K, int]:
    """allocatable − max(our reservations, our observed) − foreign observed, for each kind of `allocatable`.

    The kinds are the caller's: cards, slices of a profile, MiB of one card, cores. Ours counts once whether it is only
    promised, only seen, or both. A figure below zero (a node that shrank under what it holds) stays negative: it
    takes nothing new, and the page can say by how much. Kinds that are not allocatable are not free either, and are
    left out. Raises ValueError for a negative input, which would be capacity out of nothing.
    """
    for what, amounts in (
        ("allocatable", allocatable),
        ("reserved", reserved),
        ("observed_ours", observed_ours),
        ("observed_foreign", observed_foreign),
    ):
        for key, amount in amounts.items():
            if amount < 0:
                raise ValueError(f"{what}[{key!r}] is {amount}: an amount cannot be negative")
    return {
        key: amount - max(reserved.get(key, 0), observed_ours.get(key, 0)) - observed_foreign.get(key, 0)
        for key, amount in allocatable.items()
    }
