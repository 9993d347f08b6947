"""dcgm-exporter's series of all label shapes → what each card did, and which pod held it. Pure: no Django, no HTTP."""

from infra.dcgm.counters import EnergyStep, XidEdge, energy_steps, xid_edges
from infra.dcgm.reading import CardFacts, CardSample, CardSeries, HeldCard, Reading, latest, read_cards
from infra.dcgm.unmapped import unmapped_nodes
from infra.dcgm.workload import UNMAPPED, Workload

__all__ = [
    "UNMAPPED",
    "CardFacts",
    "CardSample",
    "CardSeries",
    "EnergyStep",
    "HeldCard",
    "Reading",
    "Workload",
    "XidEdge",
    "energy_steps",
    "latest",
    "read_cards",
    "unmapped_nodes",
    "xid_edges",
]
