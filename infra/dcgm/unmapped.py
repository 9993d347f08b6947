"""Nodes whose exporter could not ask the kubelet who holds the cards.

The exporter then goes on without pod labels and only warns (NVIDIA/dcgm-exporter, internal/pkg/transformation): every
card looks free. Where pods are known to hold cards on such a node, its rows say nothing about holding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from infra.dcgm.reading import CardSeries, HeldCard
from infra.dcgm.workload import UNMAPPED


def unmapped_nodes(series: Iterable[CardSeries], held: Iterable[HeldCard], holding: Collection[str]) -> frozenset[str]:
    """The nodes that have rows but name no pod, though pods hold whole cards or MIG slices there.

    Args:
        holding: nodes on which such pods ran all the time that the rows are of. Cards shared by HAMi do not count:
            the exporter never names their pods.
    """
    seen = {one.node for one in series if one.node}
    named = {one.node for one in held if one.node}
    return frozenset((seen - named) & frozenset(holding))


def marked(series: Iterable[CardSeries], nodes: Collection[str]) -> list[CardSeries]:
    """The series with :data:`UNMAPPED` in the place of "nobody" on those nodes."""
    return [replace(one, workload=UNMAPPED) if one.workload is None and one.node in nodes else one for one in series]
