"""The programs that stand in for a fleet in the demonstration: the simulator, or real control planes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

PORTS_ABOVE = 100
"""The fleet's first port is so far above that of the pages."""


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
    base = ["--port-base", str(port + PORTS_ABOVE)]
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
