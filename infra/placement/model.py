"""The data that goes into the scheduler and comes out of it, in one place to import from.

Names identify things: a cluster by its name, a pool and a node by their name inside the cluster, a GPU type by
its name. Units: memory of cards in MiB, compute of a card in percent (100 = the whole card), shares in millionths
of a card, CPU in millicores, memory of nodes in bytes. `None` means unknown or not set, never zero or unlimited.

The snapshot holds one *free vector* per node (see `infra.placement.free` for how it is computed). Equal vectors of
a pool are grouped, so that the scheduler's work grows with distinct shapes, not with nodes.
"""

from infra.cel import Device, Version
from infra.placement.answer import (
    DeviceGrant,
    EnginePlacement,
    Explanation,
    Placement,
    Plan,
    PodPlacement,
    Removal,
    Role,
    Rule,
)
from infra.placement.fleet import (
    Card,
    ClaimKind,
    Cluster,
    DeviceEntry,
    Effect,
    FreeVector,
    Mode,
    Node,
    Pool,
    PoolShape,
    Sharing,
    Snapshot,
    Taint,
)
from infra.placement.request import (
    DeviceRequest,
    EngineSpec,
    ExistingReplica,
    HamiShare,
    MemberSpec,
    MigShare,
    PriceCheck,
    Request,
    Toleration,
)

__all__ = [
    "Card",
    "ClaimKind",
    "Cluster",
    "Device",
    "DeviceEntry",
    "DeviceGrant",
    "DeviceRequest",
    "Effect",
    "EnginePlacement",
    "EngineSpec",
    "ExistingReplica",
    "Explanation",
    "FreeVector",
    "HamiShare",
    "MemberSpec",
    "MigShare",
    "Mode",
    "Node",
    "Placement",
    "Plan",
    "PodPlacement",
    "Pool",
    "PoolShape",
    "PriceCheck",
    "Removal",
    "Request",
    "Role",
    "Rule",
    "Sharing",
    "Snapshot",
    "Taint",
    "Toleration",
    "Version",
]
