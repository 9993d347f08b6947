"""The fleet as rows. Nothing here knows a tenant but by its UUID (``tenant_id`` without a foreign key)."""

from infra.models.clusters import Cluster, Site
from infra.models.endpoints import ClusterEndpoint
from infra.models.evidence import ChangeCounter, NamespaceClaim, PodObservation, WatchSpan, WatchTarget
from infra.models.hardware import CapacitySpan, Device, GPUType, InferenceClass, Node, NodePool
from infra.models.ledger import AppliedObject, Reservation

__all__ = [
    "AppliedObject",
    "CapacitySpan",
    "ChangeCounter",
    "Cluster",
    "ClusterEndpoint",
    "Device",
    "GPUType",
    "InferenceClass",
    "NamespaceClaim",
    "Node",
    "NodePool",
    "PodObservation",
    "Reservation",
    "Site",
    "WatchSpan",
    "WatchTarget",
]
