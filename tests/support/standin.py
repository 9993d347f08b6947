"""The stand-in for Flux and vCluster, with API servers that stand in for tenant clusters.

    def test_something(standin):              # on the session's real control plane gpu-fra-1
        standin.host                          # tests.support.controlplane.RealCluster
        standin.tenants["pool-1"].server      # address of an API server in the role of a tenant cluster
        standin.tenants["pool-1"].call(…)     # as its administrator
        standin.restart()                     # the stand-in's process ends and is started again

    def test_something(simulated_standin):    # the same upon a simulator of its own

A release gets the server whose address its values name (`exportKubeConfig.server`), else any that is free.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.controlplane import ControlPlanes, RealCluster
from tests.support.served import ServedCluster, ServingProcess, start

START_SECONDS = 180
LATE_SECONDS = 120
POOL = ("pool-1", "pool-2")
RELEASES = "/apis/helm.toolkit.fluxcd.io/v2/namespaces/{}/helmreleases"


@dataclass
class TenantServer(ServedCluster):
    """An API server in the role of a tenant cluster; `kubeconfig` is its administrator's."""

    secret_kubeconfig: Path
    """What the stand-in puts into the Secret `vc-NAME`."""
    authentication: Path | None = None
    """The authentication configuration that it reads again whenever it changes (real ones alone)."""

    @property
    def argument(self) -> str:
        """For the stand-in's option `--tenant`."""
        more = f",authentication={self.authentication}" if self.authentication else ""
        return f"{self.name}={self.kubeconfig},secret={self.secret_kubeconfig}{more}"


def tenant_servers_of(facts: Mapping[str, Any]) -> dict[str, TenantServer]:
    """From a ready line's `tenants`."""
    return {
        name: TenantServer(
            name,
            row["server"],
            Path(row["kubeconfig"]),
            Path(row["kubeconfig"]),
            Path(row["secret_kubeconfig"]),
            Path(row["authentication"]) if row["authentication"] else None,
        )
        for name, row in facts.items()
    }


@dataclass
class StandIn:
    """The running program, its host and its pool."""

    host: ServedCluster
    kubeconfig: Path
    tenants: Mapping[str, TenantServer]
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the program; it ends with this process."""
        command = [sys.executable, "-m", "controlplane.standin", "--host", f"{self.host.name}={self.kubeconfig}"]
        for tenant in self.tenants.values():
            command += ["--tenant", tenant.argument]
        self.process, _ = start([*command, "--interval", "0.2", "--parent-pid", str(os.getpid())], START_SECONDS)

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            ServingProcess[ServedCluster](self.process).stop()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """It does nothing as long as the block lasts: so that a fault is ordered before it takes a release up."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """End it and start it again."""
        self.stop()
        self.start()

    # -- what tests do behind the product's back ---------------------------------------------------------------
    def release(self, name: str, namespace: str = "aifactory-tenants") -> dict[str, Any] | None:
        """A HelmRelease; None where there is none."""
        code, found = self.host.call("GET", f"{RELEASES.format(namespace)}/{name}")
        return found if code == 200 else None

    def order(self, name: str, fault: str, namespace: str = "aifactory-tenants") -> None:
        """Order a fault (`artifact`, `install`, `stuck-delete`), or none with an empty text."""
        patch = {"metadata": {"annotations": {"standin.aifactory.dev/fail": fault or None}}}
        path = f"{RELEASES.format(namespace)}/{name}"
        code, answer = self.host.call("PATCH", path, patch, media="application/merge-patch+json")
        assert code == 200, answer

    def get(self, path: str) -> dict[str, Any] | None:
        """An object of the host; None where there is none."""
        code, found = self.host.call("GET", path)
        assert code in (200, 404), (code, found)
        return found if code == 200 else None


def eventually(look: Callable[[], Any], complaint: str, seconds: float = LATE_SECONDS) -> Any:
    """Look until there is an answer that counts as true; return it."""
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until, complaint
        time.sleep(0.1)
    return found


def release_state(release: Mapping[str, Any] | None) -> tuple[str, str]:
    """Status and reason of the condition Ready; empty where there is none."""
    for row in ((release or {}).get("status") or {}).get("conditions") or []:
        if row["type"] == "Ready":
            return row["status"], row["reason"]
    return "", ""


@pytest.fixture(scope="session")
def tenant_servers(
    real_planes: ControlPlanes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, TenantServer]]:
    """Two real API servers in the role of tenant clusters, on the session's etcd; one pair for the whole session."""
    host: RealCluster = real_planes["gpu-fra-1"]
    state = tmp_path_factory.mktemp("tenants")
    command = [sys.executable, "-m", "controlplane", "up", "--state-dir", str(state), "--etcd", host.etcd]
    command += ["--tenants", ",".join(POOL), "--parent-pid", str(os.getpid())]
    process, facts = start(command, START_SECONDS)
    yield tenant_servers_of(facts["tenants"])
    ServingProcess[ServedCluster](process).stop(patience=40)


@pytest.fixture(scope="module")
def standin(real_planes: ControlPlanes, tenant_servers: dict[str, TenantServer]) -> Iterator[StandIn]:
    """The stand-in on the real control plane gpu-fra-1, for one module."""
    host = real_planes["gpu-fra-1"]
    running = StandIn(host, host.exporter_kubeconfig, tenant_servers)
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def simulated_standin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    """The stand-in upon a simulator of its own (cluster gpu-fra-1, and two in the role of tenant clusters)."""
    state = tmp_path_factory.mktemp("simulated-tenants")
    command = [sys.executable, "-m", "simulator", "--state-dir", str(state), "--clusters", "gpu-fra-1", "--fast"]
    command += ["--tenants", ",".join(POOL), "--parent-pid", str(os.getpid())]
    process, facts = start(command, START_SECONDS)
    row = facts["clusters"]["gpu-fra-1"]
    kubeconfig = Path(row["kubeconfig"])
    host = ServedCluster("gpu-fra-1", row["server"], kubeconfig, Path(row["observe_kubeconfig"]))
    running = StandIn(host, kubeconfig, tenant_servers_of(facts["tenants"]))
    running.start()
    yield running
    running.stop()
    ServingProcess[ServedCluster](process).stop()
