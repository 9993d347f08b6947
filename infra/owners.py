"""Whose replica a pod is. The label says it, the namespace must confirm it.

A label is anybody's to write: a pod that carries the label of another tenant's replica would count as that replica's.
So ``infra`` asks whoever knows the namespaces (``tenants`` registers itself at start-up); unanswered means foreign.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Owned:
    """The replica is of that deployment and tenant."""

    tenant_id: UUID
    deployment_id: UUID


class ReplicaOwners(Protocol):
    """Set-based: one call for a batch of pods."""

    def __call__(self, cluster_id: UUID, claims: Collection[tuple[str, UUID]]) -> Mapping[tuple[str, UUID], Owned]:
        """Of (namespace, replica id) pairs, those where the replica exists, runs on that cluster, and the namespace
        is its tenant's own; replicas that were deleted since count too. It runs inside a system scope, within the
        watcher's transaction."""
        ...


class ZoneOfTenants(Protocol):
    """Trust zones of tenants."""

    def __call__(self, tenant_ids: Collection[UUID]) -> Mapping[UUID, UUID]:
        """Tenant → zone, for those that exist."""
        ...


class TenantsBySlug(Protocol):
    """Tenants by their short names, for rules that read them from a label."""

    def __call__(self, slugs: Collection[str]) -> Mapping[str, UUID]:
        """Slug → tenant, for those that exist."""
        ...


def _no_slugs(slugs: Collection[str]) -> Mapping[str, UUID]:
    return {}


def _nobody(cluster_id: UUID, claims: Collection[tuple[str, UUID]]) -> Mapping[tuple[str, UUID], Owned]:
    return {}


def _no_zones(tenant_ids: Collection[UUID]) -> Mapping[UUID, UUID]:
    return {}


class _Registered:
    owners: ReplicaOwners = staticmethod(_nobody)
    zones: ZoneOfTenants = staticmethod(_no_zones)
    slugs: TenantsBySlug = staticmethod(_no_slugs)


def register_replica_owners(owners: ReplicaOwners) -> None:
    """Have ``owners`` asked from now on (called once, when the app is ready)."""
    _Registered.owners = staticmethod(owners)


def register_zones(zones: ZoneOfTenants) -> None:
    """Have ``zones`` asked from now on (called once, when the app is ready)."""
    _Registered.zones = staticmethod(zones)


def register_tenant_slugs(slugs: TenantsBySlug) -> None:
    """Have ``slugs`` asked from now on (called once, when the app is ready)."""
    _Registered.slugs = staticmethod(slugs)


def tenants_by_slug(slugs: Collection[str]) -> Mapping[str, UUID]:
    """Slug → tenant; a slug that is not in the answer is no tenant's."""
    return _Registered.slugs(slugs) if slugs else {}


def replica_owners(cluster_id: UUID, claims: Collection[tuple[str, UUID]]) -> Mapping[tuple[str, UUID], Owned]:
    """The confirmed ones of ``claims``; see :class:`ReplicaOwners`."""
    return _Registered.owners(cluster_id, claims) if claims else {}


def zones_of(tenant_ids: Collection[UUID]) -> Mapping[UUID, UUID]:
    """Tenant → trust zone; a tenant that is not in the answer has none that is known."""
    return _Registered.zones(tenant_ids) if tenant_ids else {}
