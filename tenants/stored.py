"""Stored rows as the plain data that pure code works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from infra.placement.model import EngineSpec
from tenants.manifest import Manifest, from_spec, to_spec
from tenants.manifest.asking import engine_specs
from tenants.models import ModelDeployment, ModelReplica, Tenant
from tenants.placements import placement_from_json
from tenants.render import ReplicaFacts


def manifest_of(deployment: ModelDeployment) -> Manifest:
    """The wish of a deployment (its ``tenant`` must be loaded, or loadable)."""
    return from_spec(deployment.name, deployment.tenant.slug, deployment.spec, deployment.labels)


def replica_spec(manifest: Manifest) -> dict[str, Any]:
    """The part of a manifest that a replica shows: without how many there are and where they may go."""
    return to_spec(
        replace(
            manifest,
            replicas=1,
            cost_code="",
            cluster_selector=(),
            tolerations=(),
            model_cache="",
        )
    )


def replica_manifest(replica: ModelReplica, name: str, tenant: Tenant) -> Manifest:
    """What a replica shall show."""
    return from_spec(name, tenant.slug, replica.spec)


def replica_facts(
    replica: ModelReplica,
    deployment: ModelDeployment,
    tenant: Tenant,
    *,
    plain_slices: frozenset[str] = frozenset(),
    queue: Mapping[str, Any] | None = None,
) -> ReplicaFacts:
    """What a replica is rendered from (``plain_slices``: see :class:`~tenants.render.ReplicaFacts`; ``queue``: see
    :func:`tenants.selectors.queueing.queue_for`)."""
    return ReplicaFacts(
        tenant_id=tenant.pk,
        namespace=tenant.namespace,
        deployment_id=deployment.pk,
        deployment_name=deployment.name,
        replica_id=replica.pk,
        index=replica.index,
        manifest=replica_manifest(replica, deployment.name, tenant),
        placement=placement_from_json(replica.placement),
        plain_slices=plain_slices,
        queue=queue["name"] if queue else "",
        queue_selectors=queue["selectors"] if queue else {},
    )


def shape(specs: tuple[EngineSpec, ...]) -> tuple[Any, ...]:
    """What of an ask decides which devices and how much of a node a replica holds: not the selectors, which only
    choose among places."""
    return tuple(
        (
            engine.name,
            engine.copies,
            tuple(
                (
                    member.role,
                    member.pods,
                    member.cpu_millis,
                    member.memory_bytes,
                    tuple((device.name, device.count, device.share) for device in member.devices),
                )
                for member in engine.members
            ),
        )
        for engine in specs
    )


def same_shape(one: Manifest, other: Manifest) -> bool:
    """Whether a replica of the one can become the other where it is."""
    return shape(engine_specs(one)) == shape(engine_specs(other))
