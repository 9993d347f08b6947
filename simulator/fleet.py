"""The fleet file: clusters, node pools, and what runs on them from the start."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import yaml

from simulator.kinds import Obj

T = TypeVar("T")

MODES = ("whole", "hami", "mig", "none")


class FleetError(Exception):
    """The fleet file does not hold; the message says where."""


@dataclass(frozen=True)
class Gpu:
    """A kind of card as GPU feature discovery and DCGM name it. Memory in MiB."""

    product: str
    model: str
    count: int
    memory: int
    family: str
    compute: str = "9.0"
    idle_watts: float = 70.0
    max_watts: float = 700.0


@dataclass(frozen=True)
class Mig:
    """The one MIG profile into which a pool's cards are cut."""

    profile: str = "1g.10gb"
    per_card: int = 7
    memory: int = 9984


@dataclass(frozen=True)
class Pool:
    """Nodes of one kind. `mode`: whole cards, shared by HAMi, cut by MIG, or none."""

    name: str
    nodes: int
    mode: str = "none"
    gpu: Gpu | None = None
    split: int = 10
    mig: Mig = field(default_factory=Mig)
    cpu: str = "192"
    memory: str = "2Ti"
    pods: int = 110
    instance_type: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Obj, ...] = ()


@dataclass(frozen=True)
class ClusterSpec:
    """One cluster of the fleet."""

    name: str
    site: str = ""
    version: str = "v1.35.4"
    hami: str = "off"
    history: int = 2000
    absent_groups: frozenset[str] = frozenset()
    bad_tags: frozenset[str] = frozenset({"does-not-exist"})
    pools: tuple[Pool, ...] = ()
    workloads: tuple[Obj, ...] = ()
    prices: dict[str, float] = field(default_factory=dict)
    virtual: bool = False
    """Without scheduler, kubelets and nodes of its own: pods run somewhere else, and somebody tells how they fare."""


@dataclass(frozen=True)
class Fleet:
    """All clusters, the seed of what is to be the same each time, and timing changes."""

    clusters: tuple[ClusterSpec, ...]
    seed: str = "fleet"
    timing: Obj = field(default_factory=dict)


def load(path: Path) -> Fleet:
    """Read a fleet file; raises FleetError naming the place."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise FleetError(f"the fleet file {path} can't be read: {error}") from error
    if not isinstance(given, dict) or not given.get("clusters"):
        raise FleetError(f"the fleet file {path} lists no clusters: it needs `clusters:` with at least one")
    common = given.get("defaults") or {}
    clusters = tuple(_cluster({**common, **row}, f"{path}: clusters[{i}]") for i, row in enumerate(given["clusters"]))
    names = [cluster.name for cluster in clusters]
    if len(set(names)) != len(names):
        raise FleetError(f"{path}: two clusters have the same name: {', '.join(sorted(names))}")
    return Fleet(clusters, str(given.get("seed", "fleet")), given.get("timing") or {})


def _cluster(row: Obj, where: str) -> ClusterSpec:
    if not row.get("name"):
        raise FleetError(f"{where}: a cluster needs a name")
    row = dict(row)
    if row.get("hami", "off") not in ("off", "shares", "all"):
        raise FleetError(f"{where}.hami: is {row['hami']!r}, but may be off, shares or all")
    pools = tuple(_pool(pool, f"{where}.pools[{i}]") for i, pool in enumerate(row.pop("pools", None) or []))
    workloads = tuple(row.pop("workloads", None) or ())
    for key in ("absent_groups", "bad_tags"):
        if key in row:
            row[key] = frozenset(str(item) for item in row[key])
    return _made(ClusterSpec, {**row, "pools": pools, "workloads": workloads}, where)


def _pool(row: Obj, where: str) -> Pool:
    row = dict(row)
    mode = row.get("mode", "none")
    if mode not in MODES:
        raise FleetError(f"{where}.mode: is {mode!r}, but may be {', '.join(MODES)}")
    if (mode == "none") != ("gpu" not in row):
        raise FleetError(f"{where}: mode {mode} {'takes no' if mode == 'none' else 'needs a'} `gpu`")
    if "gpu" in row:
        row["gpu"] = _made(Gpu, row["gpu"], f"{where}.gpu")
    if "mig" in row:
        row["mig"] = _made(Mig, row["mig"], f"{where}.mig")
    row["taints"] = tuple(row.get("taints") or ())
    return _made(Pool, row, where)


def _made(of: Callable[..., T], values: Obj, where: str) -> T:
    try:
        return of(**values)
    except TypeError as error:
        raise FleetError(f"{where}: {str(error).replace('__init__()', '').strip()}") from error


def uuid_from(*parts: str) -> str:
    """A UUID that follows from its parts (version 4 in form), so that cards keep theirs."""
    digest = hashlib.sha256("/".join(parts).encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
