"""A replica's placement as stored JSON, and back. What is stored is the planner's answer, never recomputed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from infra.placement.model import (
    ClaimKind,
    DeviceGrant,
    EnginePlacement,
    Placement,
    PodPlacement,
    Role,
    Sharing,
)


def placement_to_json(placement: Placement) -> dict[str, Any]:
    """``{index, cluster, engines: [{engine, pool, sharing, pods: [{role, copy, ordinal, node, grants: […]}]}]}``."""
    return asdict(placement)


def placement_from_json(data: Mapping[str, Any]) -> Placement:
    """The inverse of :func:`placement_to_json`."""
    return Placement(
        index=data["index"],
        cluster=data["cluster"],
        engines=tuple(
            EnginePlacement(
                engine=engine["engine"],
                pool=engine["pool"],
                sharing=Sharing(engine["sharing"]),
                pods=tuple(_pod(pod) for pod in engine["pods"]),
            )
            for engine in data["engines"]
        ),
    )


def _pod(data: Mapping[str, Any]) -> PodPlacement:
    return PodPlacement(
        role=Role(data["role"]),
        copy=data["copy"],
        ordinal=data["ordinal"],
        node=data["node"],
        grants=tuple(
            DeviceGrant(
                request=grant["request"],
                entry=grant["entry"],
                gpu_type=grant["gpu_type"],
                count=grant["count"],
                millionths=grant["millionths"],
                claim=ClaimKind(grant["claim"]),
                cards=tuple(grant["cards"]),
                memory_mib=grant["memory_mib"],
                cores=grant["cores"],
                profile=grant["profile"],
                device_class=grant["device_class"],
            )
            for grant in data["grants"]
        ),
        cpu_millis=data["cpu_millis"],
        memory_bytes=data["memory_bytes"],
    )
