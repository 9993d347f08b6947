"""An OpenCost of our own making, behind the client that endpoints are asked with."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from infra.models import Cluster, ClusterEndpoint
from infra.outbound import EndpointClient, EndpointError, Reply
from portal.kernel.clock import HOUR, format_rfc3339, parse_rfc3339


def endpoint(cluster: Cluster, **more: Any) -> ClusterEndpoint:
    """The cluster's OpenCost, as if it had been connected."""
    return ClusterEndpoint.objects.create(
        cluster=cluster, role=ClusterEndpoint.Role.OPENCOST, url="http://127.0.0.1:9", product="opencost", **more
    )


@dataclass
class Price:
    """What the fake's cards, cores and GiB cost an hour."""

    gpu: str = "2.5"
    cpu: str = "0.02"
    ram: str = "0.003"


@dataclass
class FakeOpenCost(EndpointClient):
    """Answers for any whole hour: pods (namespace, pod) → cards, all over the hour; nodes → cards."""

    pods: dict[tuple[str, str], int] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=lambda: {"node-0": 8})
    prices: dict[datetime, Price] = field(default_factory=dict)
    storage: dict[str, str] = field(default_factory=dict)
    network: dict[str, str] = field(default_factory=dict)
    price: Price = field(default_factory=Price)
    broken: dict[datetime, tuple[int, bytes]] = field(default_factory=dict)
    down: bool = False
    asked: list[datetime] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__("OpenCost of the test")

    @contextmanager
    def open(self, _: ClusterEndpoint) -> Generator[EndpointClient]:
        """As ``open_endpoint``."""
        yield self

    def get(
        self, path: str, params: Sequence[tuple[str, str]] = (), *, timeout: float = 30, max_bytes: int = 0
    ) -> Reply:
        if self.down:
            raise EndpointError("OpenCost of the test did not answer: no connection could be made.", "refused")
        if path == "/installInfo":
            return Reply(200, {}, b'{"code":200,"data":{"version":"1.118.0"}}')
        start, end = (parse_rfc3339(text) for text in dict(params)["window"].split(","))
        assert end - start == timedelta(hours=1)
        if path == "/assets":
            return self._answer(self._assets(start))
        assert path == "/allocation/compute"
        assert dict(params)["aggregate"] == "namespace,pod"
        self.asked.append(start)
        if start in self.broken:
            status, body = self.broken[start]
            return Reply(status, {}, body)
        return self._answer([self._rows(start)])

    @staticmethod
    def _answer(data: Any) -> Reply:
        return Reply(200, {"content-type": "application/json"}, json.dumps({"code": 200, "data": data}).encode())

    def _window(self, start: datetime) -> dict[str, Any]:
        edges = {"start": format_rfc3339(start), "end": format_rfc3339(start + HOUR)}
        return {"window": edges, **edges, "minutes": 60}

    def _rows(self, start: datetime) -> dict[str, Any]:
        price = self.prices.get(start, self.price)
        rows: dict[str, Any] = {}
        names = (
            dict.fromkeys([*self.pods, *((name, "files") for name in {*self.storage, *self.network})], 0) | self.pods
        )
        first: dict[Any, Any] = {}
        for namespace, pod in names:
            first.setdefault(namespace, pod)
        for (namespace, pod), cards in names.items():
            own = first[namespace] == pod
            rows[f"{namespace}/{pod}"] = {
                "name": f"{namespace}/{pod}", "properties": {"namespace": namespace, "pod": pod},
                **self._window(start), "gpuHours": cards, "gpuCost": float(cards * Decimal(price.gpu)),
                "cpuCoreHours": 4, "cpuCost": float(4 * Decimal(price.cpu)), "ramByteHours": 2**30, "ramCost":
                float(price.ram), "pvByteHours": 0, "pvCost": float(self.storage.get(namespace, 0)) if own else 0,
                "networkCost": float(self.network.get(namespace, 0)) if own else 0, "loadBalancerCost": 0,
            }  # fmt: skip
        return rows

    def _assets(self, start: datetime) -> dict[str, Any]:
        price = self.prices.get(start, self.price)
        return {
            f"custom/{name}": {
                "type": "Node", "properties": {"name": name}, **self._window(start), "GPUHours": cards,
                "gpuCost": float(cards * Decimal(price.gpu)), "cpuCoreHours": 100, "cpuCost":
                float(100 * Decimal(price.cpu)), "ramByteHours": 100 * 2**30, "ramCost":
                float(100 * Decimal(price.ram)),
            }
            for name, cards in self.nodes.items()
        }  # fmt: skip
