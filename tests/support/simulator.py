"""The simulated fleet as a pytest fixture: a process of its own, started with short delays, ended with the tests.

Use it in a conftest with `pytest_plugins = ["tests.support.simulator"]`, or import the fixtures:

    def test_something(simulated_fleet):
        cluster = simulated_fleet["gpu-fra-1"]
        cluster.kubeconfig            # path of the administrator's kubeconfig
        cluster.observe_kubeconfig    # path of the one that only reads
        cluster.sim("POST", "faults", {"verb": "create", "status": 500})
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import selectors
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60


@dataclass
class SimulatedCluster:
    """One cluster of a running simulator."""

    name: str
    server: str
    kubeconfig: Path
    observe_kubeconfig: Path

    def sim(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """A call to the control endpoint `/sim/PATH` (see simulator/control.py); raises on an error answer."""
        code, answer = self.call(method, f"/sim/{path}", body)
        assert code == 200, f"{method} /sim/{path} answered {code}: {answer}"
        return dict(answer)

    def call(
        self, method: str, path: str, body: Any = None, *, observe: bool = False, media: str = "application/json"
    ) -> tuple[int, Any]:
        """Any call, as (HTTP status, answer); the answer is text where it is no JSON."""
        config = yaml.safe_load((self.observe_kubeconfig if observe else self.kubeconfig).read_text())
        token = config["users"][0]["user"]["token"]
        answer = self.pool.request(
            method,
            self.server + path,
            body=json.dumps(body).encode() if body is not None else None,
            headers={"Authorization": f"Bearer {token}", "Content-Type": media, "User-Agent": "tests/1"},
            timeout=30,
            retries=False,
        )
        raw = answer.data.decode()
        try:
            return answer.status, json.loads(raw)
        except ValueError:
            return answer.status, raw

    @cached_property
    def pool(self) -> urllib3.PoolManager:
        """Connections to this cluster."""
        return urllib3.PoolManager(ssl_context=self.context())

    def context(self) -> ssl.SSLContext:
        """A TLS context that trusts this cluster alone."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        ca = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        return ssl.create_default_context(cadata=ca)


@dataclass
class SimulatorProcess(Mapping[str, SimulatedCluster]):
    """A running simulator: its clusters by name."""

    process: subprocess.Popen[str]
    clusters: dict[str, SimulatedCluster] = field(default_factory=dict)

    def __getitem__(self, name: str) -> SimulatedCluster:
        return self.clusters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.clusters)

    def __len__(self) -> int:
        return len(self.clusters)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End the process and wait for it; returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(15)
        if self.process.stdout:
            self.process.stdout.close()
        return self.process.returncode


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
    process = subprocess.Popen([*command, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    line = _first_line(process, START_SECONDS)
    if not line:
        process.kill()
        process.wait()
        raise RuntimeError(f"the simulator did not get ready (exit status {process.returncode}); see its error output")
    rows = json.loads(line)["clusters"]
    running = SimulatorProcess(process)
    for name, row in rows.items():
        running.clusters[name] = SimulatedCluster(
            name, row["server"], Path(row["kubeconfig"]), Path(row["observe_kubeconfig"])
        )
    return running


def _first_line(process: subprocess.Popen[str], seconds: float) -> str:
    assert process.stdout
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        until = time.monotonic() + seconds
        while time.monotonic() < until and process.poll() is None:
            if waiting.select(0.5):
                return process.stdout.readline()
    return ""


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
