"""Fixtures of the suite that runs against control planes."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from infra.kube.client import KubeClient
from infra.kube.errors import KubeError, NotFound
from infra.models import Cluster
from tests.cluster.backends import Backend, RealBackend, SimulatorBackend
from tests.support.controlplane import ControlPlanes, real_planes
from tests.support.simulator import SimulatorProcess, simulated_fleet
from tests.support.standin import standin, tenant_servers

__all__ = ["real_planes", "simulated_fleet", "standin", "tenant_servers"]  # fixtures, found by their names

REAL = pytest.param("real", marks=pytest.mark.cluster)

PATIENCE = 120.0

_numbers = itertools.count(1)


@dataclass
class Plane:
    """A connected control plane and a namespace in it that is this test's own."""

    backend: Backend
    cluster: Cluster
    client: KubeClient
    namespace: str

    def config_map(self, name: str, /, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
        """A manifest of a ConfigMap in the test's namespace."""
        metadata: dict[str, Any] = {"name": name, "namespace": self.namespace}
        if labels:
            metadata["labels"] = labels
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def until_pods_are_taken(client: KubeClient, namespace: str) -> None:
    """A real server refuses pods until a controller has made the new namespace's service account."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            client.get("v1", "ServiceAccount", "default", namespace)
        except NotFound:
            assert time.monotonic() < end, f"{namespace} gets no service account"
            time.sleep(0.05)
        else:
            return


@pytest.fixture(params=["simulator", REAL])
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each control plane in turn."""
    if request.param == "real":
        planes: ControlPlanes = request.getfixturevalue("real_planes")
        return RealBackend(next(iter(planes.values())))
    fleet: SimulatorProcess = request.getfixturevalue("simulated_fleet")
    return SimulatorBackend(next(iter(fleet.values())))


@pytest.fixture
def plane(backend: Backend, db: None) -> Iterator[Plane]:
    """The control plane, connected in manage mode, with an empty namespace."""
    cluster = backend.connect()
    client = KubeClient.for_cluster(cluster)
    namespace = f"contract-{os.getpid()}-{next(_numbers)}"
    client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    yield Plane(backend, cluster, client, namespace)
    with contextlib.suppress(KubeError):
        client.delete("v1", "Namespace", namespace, uid=client.get("v1", "Namespace", namespace)["metadata"]["uid"])
