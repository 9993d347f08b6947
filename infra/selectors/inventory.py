"""What we applied, read."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from infra.models import AppliedObject


def applied_by(owner_kind: str, owner_id: UUID, cluster_id: UUID | None = None) -> QuerySet[AppliedObject]:
    """The objects that are, or may be, there for an owner; on one cluster if it is named."""
    rows = AppliedObject.objects.filter(owner_kind=owner_kind, owner_id=owner_id, deleted_at__isnull=True)
    return rows if cluster_id is None else rows.filter(cluster_id=cluster_id)


def left_on(cluster_id: UUID) -> QuerySet[AppliedObject]:
    """All objects of ours on a cluster, by namespace and name."""
    rows = AppliedObject.objects.filter(cluster_id=cluster_id, deleted_at__isnull=True)
    return rows.order_by("namespace", "kind", "name")


def differences(
    cluster_id: UUID, api_version: str, kind: str, listed: Iterable[Mapping[str, Any]]
) -> list[AppliedObject]:
    """Objects of ours whose version in a whole LIST of the kind is not the one that our last apply recorded.

    An object that the list lacks is one of them. What was never known to be there is left to its owner's run.

    Args:
        listed: the items, all namespaces; metadata is enough.
    """
    versions = {
        (item["metadata"].get("namespace", ""), item["metadata"]["name"]): item["metadata"]["resourceVersion"]
        for item in listed
    }
    rows = AppliedObject.objects.filter(
        cluster_id=cluster_id, api_version=api_version, kind=kind, deleted_at__isnull=True
    ).exclude(uid="")
    return [row for row in rows if versions.get((row.namespace, row.name)) != row.resource_version]
