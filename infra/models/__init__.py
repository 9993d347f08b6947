"""The fleet as rows. Nothing here knows a tenant but by its UUID (``tenant_id`` without a foreign key)."""

from infra.models.adoption import ClaimRule, NamespaceSight, OwnerSight
from infra.models.clusters import Cluster, Site
from infra.models.endpoints import ClusterEndpoint
from infra.models.evidence import ChangeCounter, NamespaceClaim, PodObservation, WatchSpan, WatchTarget
from infra.models.hardware import CapacitySpan, Device, GPUType, InferenceClass, Node, NodePool
from infra.models.health import HealthEvent, XidGauge
from infra.models.ledger import AppliedObject, Reservation
from infra.models.operations import WriteStop
from infra.models.retroactive import Rebuild
from infra.models.telemetry import DeviceSighting, TelemetryGap, TelemetryHour, TelemetrySource

__all__ = [
    "AppliedObject",
    "CapacitySpan",
    "ChangeCounter",
    "ClaimRule",
    "Cluster",
    "ClusterEndpoint",
    "Device",
    "DeviceSighting",
    "GPUType",
    "HealthEvent",
    "InferenceClass",
    "NamespaceClaim",
    "NamespaceSight",
    "Node",
    "NodePool",
    "OwnerSight",
    "PodObservation",
    "Rebuild",
    "Reservation",
    "Site",
    "TelemetryGap",
    "TelemetryHour",
    "TelemetrySource",
    "WatchSpan",
    "WatchTarget",
    "WriteStop",
    "XidGauge",
]
