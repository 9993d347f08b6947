"""A running simulator, official clients for it, and waiting."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from kubernetes import client, config, dynamic

from tests.support.simulator import SimulatedCluster, SimulatorProcess, fresh_simulator, simulated_fleet

__all__ = ["fresh_simulator", "simulated_fleet"]

RECORDED = Path(__file__).parents[2] / "data" / "recorded"


def recorded(name: str) -> Any:
    """A recorded answer of a real API server."""
    return json.loads((RECORDED / name).read_text(encoding="utf-8"))


T = TypeVar("T")


def wait_for(look: Callable[[], T], what: str, seconds: float = 20.0) -> T:
    """Look until something true comes back; fails naming what was waited for and what was seen last."""
    until = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > until:
            pytest.fail(f"waited {seconds} s in vain for {what}; last seen: {seen!r}")
        time.sleep(0.03)


class Client:
    """The official DynamicClient on one cluster, with what the tests ask of it all the time."""

    def __init__(self, cluster: SimulatedCluster, folder: Path, *, observe: bool = False) -> None:
        self.cluster = cluster
        path = cluster.observe_kubeconfig if observe else cluster.kubeconfig
        self.api = config.new_client_from_config(str(path))
        self.dynamic = dynamic.DynamicClient(self.api, cache_file=str(folder / f"{uuid.uuid4()}.json"))
        self.core = client.CoreV1Api(self.api)
        token = yaml.safe_load(path.read_text(encoding="utf-8"))["users"][0]["user"]["token"]
        self.authorization = f"Bearer {token}"

    def kind(self, kind: str, api_version: str = "v1") -> Any:
        """The resource of a kind."""
        return self.dynamic.resources.get(api_version=api_version, kind=kind)

    @property
    def pods(self) -> Any:
        return self.kind("Pod")

    @property
    def deployments(self) -> Any:
        return self.kind("Deployment", "apps/v1")

    def namespace(self, labels: dict[str, str] | None = None) -> str:
        """A namespace of one's own."""
        name = f"t-{uuid.uuid4().hex[:10]}"
        self.kind("Namespace").create(body={"metadata": {"name": name, "labels": labels or {}}})
        return name

    def apply(self, body: dict[str, Any], manager: str = "portal", **more: Any) -> Any:
        """Server-side apply."""
        resource = self.kind(body["kind"], body["apiVersion"])
        return self.dynamic.server_side_apply(resource, body=body, field_manager=manager, **more)

    def pod(self, namespace: str, name: str) -> Any:
        """The pod as a dictionary, or None."""
        code, body = self.cluster.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        return body if code == 200 else None

    def pods_in(self, namespace: str) -> list[Any]:
        """The namespace's pods as dictionaries."""
        return list(self.cluster.call("GET", f"/api/v1/namespaces/{namespace}/pods")[1]["items"])


def pod(name: str, gpus: int = 0, *, image: str = "example.invalid/x:1", **more: Any) -> dict[str, Any]:
    """A pod with one container `main`; `annotations`, `limits` and everything of a pod spec may be given."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    limits |= more.pop("limits", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}, "annotations": more.pop("annotations", {})},
        "spec": {"containers": [{"name": "main", "image": image, "resources": {"limits": limits}}], **more},
    }


def deployment(name: str, namespace: str, replicas: int = 1, image: str = "example.invalid/web:1", **more: Any) -> Any:
    """A Deployment with one container `main`; everything of its spec may be given."""
    limits = more.pop("limits", None)
    container: dict[str, Any] = {"name": "main", "image": image}
    if limits:
        container["resources"] = {"limits": limits}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
            **more,
        },
    }


def bare(value: Any, drop: tuple[str, ...] = ()) -> Any:
    """A copy without what differs from run to run: uids, versions, times."""
    gone = {"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "time", "lastTransitionTime",
            "lastUpdateTime", *drop}  # fmt: skip
    if isinstance(value, dict):
        return {key: bare(item, drop) for key, item in value.items() if key not in gone}
    if isinstance(value, list):
        return [bare(item, drop) for item in value]
    return value


@pytest.fixture
def whole(simulated_fleet: SimulatorProcess, tmp_path: Path) -> Client:
    """The cluster with whole cards."""
    return Client(simulated_fleet["gpu-fra-1"], tmp_path)


@pytest.fixture
def shared(simulated_fleet: SimulatorProcess, tmp_path: Path) -> Client:
    """The cluster with cards shared by HAMi."""
    return Client(simulated_fleet["gpu-fra-2"], tmp_path)


@pytest.fixture
def sliced(simulated_fleet: SimulatorProcess, tmp_path: Path) -> Client:
    """The cluster with MIG instances."""
    return Client(simulated_fleet["gpu-hel-1"], tmp_path)
