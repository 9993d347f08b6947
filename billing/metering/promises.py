"""What was reserved and not yet taken up by a pod. Pure: no Django. Unit: millionths of a card; times in ms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from billing.metering.idle import Promise


@dataclass(frozen=True, slots=True)
class Kept:
    """A reservation, or what a pod of its replica holds: from ``start`` to ``end`` (ms), on a node or on its card."""

    node: Hashable
    replica: Hashable
    start: int
    end: int
    amount: int
    uuid: str = ""
    profile: str = ""
    memory_mib: int = 0
    cores: int = 0


def promises_of(reserved: Iterable[Kept], held: Iterable[Kept]) -> list[Promise]:
    """What was reserved beyond what pods of the same replica held, on the same node (HAMi: card), moment by moment."""
    groups: dict[tuple[Hashable, Hashable, str], tuple[list[Kept], list[Kept]]] = defaultdict(lambda: ([], []))
    for one in reserved:
        groups[one.node, one.replica, one.uuid][0].append(one)
    for one in held:
        found = groups.get((one.node, one.replica, one.uuid)) or groups.get((one.node, one.replica, ""))
        if found is not None:
            found[1].append(one)
    promises = []
    for (node, _, uuid), (ours, theirs) in groups.items():
        edges = sorted({edge for one in (*ours, *theirs) for edge in (one.start, one.end)})
        for start, end in pairwise(edges):
            mine = [one for one in ours if one.start <= start < one.end]
            used = [one for one in theirs if one.start <= start < one.end]
            left = _sum(mine, "amount") - _sum(used, "amount")
            if left > 0:
                promises.append(
                    Promise(
                        node, start, end, left, uuid, mine[0].profile,
                        max(0, _sum(mine, "memory_mib") - _sum(used, "memory_mib")),
                        max(0, _sum(mine, "cores") - _sum(used, "cores")),
                    )
                )  # fmt: skip
    return promises


def _sum(rows: Iterable[Kept], name: str) -> int:
    return sum(getattr(row, name) for row in rows)
