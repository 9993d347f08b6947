"""The simulated fleet as a pytest fixture: a process of its own, started with short delays, ended with the tests.

Use it in a conftest with `pytest_plugins = ["tests.support.simulator"]`, or import the fixtures:

    def test_something(simulated_fleet):
        cluster = simulated_fleet["gpu-fra-1"]
        cluster.kubeconfig            # path of the administrator's kubeconfig
        cluster.observe_kubeconfig    # path of the one that only reads
        cluster.sim("POST", "faults", {"verb": "create", "status": 500})
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.served import ServedCluster, ServingProcess, start

START_SECONDS = 60


@dataclass
class SimulatedCluster(ServedCluster):
    """One cluster of a running simulator."""

    def sim(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """A call to the control endpoint `/sim/PATH` (see simulator/control.py); raises on an error answer."""
        code, answer = self.call(method, f"/sim/{path}", body)
        assert code == 200, f"{method} /sim/{path} answered {code}: {answer}"
        return dict(answer)


class SimulatorProcess(ServingProcess[SimulatedCluster]):
    """A running simulator: its clusters by name."""


def start_simulator(
    state_dir: Path,
    *,
    clusters: tuple[str, ...] = (),
    fleet: Path | None = None,
    fast: bool = True,
    port_base: int = 0,
    arguments: tuple[str, ...] = (),
) -> SimulatorProcess:
    """Start a simulator and wait until it is ready. The caller stops it; it also ends with this process."""
    command = [sys.executable, "-m", "simulator", "--state-dir", str(state_dir), "--parent-pid", str(os.getpid())]
    if fleet is not None:
        command += ["--fleet", str(fleet)]
    if clusters:
        command += ["--clusters", ",".join(clusters)]
    if port_base:
        command += ["--port-base", str(port_base)]
    if fast:
        command.append("--fast")
    process, facts = start([*command, *arguments], START_SECONDS)
    running = SimulatorProcess(process)
    for name, row in facts["clusters"].items():
        running.clusters[name] = SimulatedCluster(
            name, row["server"], Path(row["kubeconfig"]), Path(row["observe_kubeconfig"])
        )
    return running


@contextlib.contextmanager
def simulator(state_dir: Path, **options: Any) -> Iterator[SimulatorProcess]:
    """`start_simulator` for a with block."""
    running = start_simulator(state_dir, **options)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def simulated_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatorProcess]:
    """The demo's three clusters with short delays, one for the whole session: use namespaces of your own."""
    with simulator(tmp_path_factory.mktemp("simulator")) as running:
        yield running


@pytest.fixture
def fresh_simulator(tmp_path: Path) -> Iterator[SimulatorProcess]:
    """A simulator of one's own for one test that breaks things (cluster gpu-fra-1 alone)."""
    with simulator(tmp_path / "simulator", clusters=("gpu-fra-1",)) as running:
        yield running
