"""Which clusters of a fleet file are meant. The file's format, nodes and cards are the simulator's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from simulator.fleet import Fleet, FleetError

DEFAULT_FLEET = Path(__file__).resolve().parents[1] / "simulator" / "fleets" / "demo.yaml"


def chosen(fleet: Fleet, names: tuple[str, ...]) -> Fleet:
    """The fleet's clusters of these names, in this order; all of them where none is named. Raises FleetError."""
    known = {spec.name: spec for spec in fleet.clusters}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise FleetError(f"the fleet has no cluster {', '.join(unknown)}; it has {', '.join(known)}")
    return replace(fleet, clusters=tuple(known[name] for name in names)) if names else fleet
