"""Real control planes with many cards, for benches: a fleet file of plain nodes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.support.controlplane import ControlPlanes, control_planes

CARDS = 8
GPU = {"product": "NVIDIA-H100-80GB-HBM3", "model": "NVIDIA H100 80GB HBM3", "count": CARDS, "memory": 81559,
       "family": "hopper"}  # fmt: skip


@contextmanager
def bench_planes(*, clusters: int, nodes: int) -> Iterator[ControlPlanes]:
    """So many clusters (``bench-0`` …) of so many nodes with eight cards each, and nothing on them. What is asked is
    logged without the answers, as on a production server."""
    rows = [
        {"name": f"bench-{number}", "pools": [{"name": "h100", "nodes": nodes, "mode": "whole", "gpu": GPU}]}
        for number in range(clusters)
    ]
    with tempfile.TemporaryDirectory(prefix="aif-bench-") as folder:
        fleet = Path(folder) / "fleet.yaml"
        fleet.write_text(yaml.safe_dump({"seed": "bench", "clusters": rows}))
        with control_planes(Path(folder) / "state", fleet=fleet, audit="metadata") as planes:
            yield planes
