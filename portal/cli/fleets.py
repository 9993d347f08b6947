"""The programs that stand in for a fleet in the demonstration: the simulator, or real control planes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PORTS_ABOVE = 100
"""The fleet's first port is so far above that of the pages."""
TENANTS = ("pool-1", "pool-2")
"""API servers that stand in for tenant clusters."""


@dataclass(frozen=True)
class FleetProgram:
    """A program that prints one JSON line with ``clusters`` when they are ready; it ends on SIGTERM.

    Attributes:
        before: a command line to be run first, and to its end (it may take minutes).
        ready_seconds: for which the line is waited for.
        patience: seconds from SIGTERM to its end.
    """

    name: str
    command: list[str]
    state: Path
    before: tuple[str, ...] = ()
    ready_seconds: int = 60
    patience: float = 10.0


def fleet_program(kind: str, data: Path, port: int) -> FleetProgram | None:
    """The program for ``simulator`` or ``real``; ``None`` for ``none``."""
    base = ["--port-base", str(port + PORTS_ABOVE), "--tenants", ",".join(TENANTS)]
    if kind == "simulator":
        state = data / "simulator"
        command = [sys.executable, "-m", "simulator", "--state-dir", str(state), *base]
        return FleetProgram("simulator", command, state)
    if kind == "real":
        state = data / "controlplane"
        command = [sys.executable, "-m", "controlplane", "up", "--state-dir", str(state), "--prometheus", *base]
        before = (sys.executable, "-m", "controlplane", "build")
        return FleetProgram("clusters", command, state, before, ready_seconds=300, patience=40)
    return None


def stand_in_command(facts: Mapping[str, Any]) -> list[str]:
    """The command line of what plays Flux and vCluster on a fleet that told its ``facts``; empty: not to be started."""
    command = [sys.executable, "-m", "controlplane.standin"]
    for name, row in facts["clusters"].items():
        command += ["--host", f"{name}={row.get('exporter_kubeconfig') or row['kubeconfig']}"]
    tenants: Mapping[str, Any] = facts.get("tenants") or {}
    for name, row in tenants.items():
        more = f",authentication={row['authentication']}" if row["authentication"] else ""
        command += ["--tenant", f"{name}={row['kubeconfig']},secret={row['secret_kubeconfig']}{more}"]
    return command if tenants else []
