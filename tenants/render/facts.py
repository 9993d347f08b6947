"""What a replica is rendered from, and the names and labels of what is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from infra.names import LABEL_DEPLOYMENT, LABEL_PREFIX, LABEL_REPLICA, owner_labels, workload_name
from infra.placement.model import Placement
from tenants.manifest import Manifest

OWNER_KIND = "replica"
LABEL_ENGINE = LABEL_PREFIX + "engine"
LABEL_ROLE = LABEL_PREFIX + "role"
LABEL_GROUP = LABEL_PREFIX + "group"
PORT = 8000


@dataclass(frozen=True)
class ReplicaFacts:
    """One replica of a deployment with its place. ``manifest`` is what this replica shall show (during a rollout
    another one than its neighbour's).

    ``plain_slices``: nodes whose MIG slices are called ``nvidia.com/gpu`` (the device plugin's strategy "single").
    ``queue``: the Kueue LocalQueue that its pods go through; ``queue_selectors``: pool → node labels of its flavor.
    """

    tenant_id: UUID
    namespace: str
    deployment_id: UUID
    deployment_name: str
    replica_id: UUID
    index: int
    manifest: Manifest
    placement: Placement
    plain_slices: frozenset[str] = frozenset()
    queue: str = ""
    queue_selectors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        """On every object and pod of the replica."""
        return owner_labels(OWNER_KIND, self.replica_id, self.tenant_id) | {
            LABEL_DEPLOYMENT: str(self.deployment_id),
            LABEL_REPLICA: str(self.replica_id),
        }

    @property
    def has_slices(self) -> bool:
        """Whether it holds MIG slices, whose name depends on the node."""
        pods = (pod for engine in self.placement.engines for pod in engine.pods)
        return any(grant.profile for pod in pods for grant in pod.grants)

    @property
    def pod_selector(self) -> dict[str, str]:
        """Finds every pod of the replica."""
        return {LABEL_REPLICA: str(self.replica_id)}

    def workload(self, engine: str, group: int = 0) -> str:
        """The name of an engine's workload. The replica's id is in it: a later replica with the same index, made
        while the former is still being deleted, must not meet the former's objects."""
        return workload_name(self.deployment_name, str(self.index), engine, str(group), str(self.replica_id))


def service_name(facts: ReplicaFacts, engine: str) -> str:
    """The name of an engine's Service."""
    return workload_name(facts.deployment_name, str(facts.index), engine, "service", str(facts.replica_id))


def engine_url(facts: ReplicaFacts, engine: str) -> str:
    """The address of an engine inside its cluster."""
    return f"http://{service_name(facts, engine)}.{facts.namespace}.svc:{PORT}"
