"""What a tenant may ask of shared cards, and what else its namespaces are limited to. Set by platform-admins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import F

from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.problems import Invalid
from portal.kernel.scoping import system_scope
from tenants.bundle import CLOSED_KEYS
from tenants.models import Tenant, TenantNamespace
from tenants.permissions import Perm, require
from tenants.quota_keys import given_faults


def tenant_sharing_set(
    *,
    tenant: Tenant,
    free_shares: bool | None = None,
    namespace_limits: Mapping[str, str | int] | None = None,
    actor: Actor,
) -> Tenant:
    """Change what is given.

    Args:
        free_shares: whether a share may state memory and cores of its own, beside the named parts. What is placed
            stays; a manifest that is applied again is held against the new rule.
        namespace_limits: more keys of the ResourceQuota in each of its namespaces, such as ``{"pods": "200"}``; they
            take the place of those before. They are written again on each cluster.

    Raises:
        Forbidden: not a platform-admin.
        Invalid: a key would not be enforced as it reads, is set by the portal itself, or has no quantity.
    """
    require(actor, Perm.TENANT_MANAGE)
    if namespace_limits is not None:
        faults = given_faults(namespace_limits, reserved=CLOSED_KEYS)
        if faults:
            raise Invalid(
                errors=[
                    {"pointer": f"/namespace_limits/{_escaped(key)}", "detail": fault} for key, fault in faults.items()
                ]
            )
    with system_scope("tenant_sharing_set"):
        row = Tenant.objects.select_for_update(of=("self",), no_key=True).select_related("zone").get(pk=tenant.pk)
        before = _facts(row)
        if free_shares is not None:
            row.free_shares = free_shares
        if namespace_limits is not None:
            row.namespace_limits = {key: str(value) for key, value in sorted(namespace_limits.items())}
        after = _facts(row)
        if after == before:
            return row
        row.generation += 1
        row.save(update_fields=["free_shares", "namespace_limits", "generation"])
        audit.record(
            "tenant_sharing_set",
            actor=actor,
            tenant_id=row.pk,
            object_kind="tenant",
            object_id=row.pk,
            object_name=row.slug,
            before=before,
            after=after,
        )
        if after["namespace_limits"] != before["namespace_limits"]:
            namespaces = TenantNamespace.objects.filter(tenant=row)
            namespaces.update(generation=F("generation") + 1)
            workqueue.mark_many(
                workqueue.Mark("namespace", pk, cluster_id, row.pk)
                for pk, cluster_id in namespaces.values_list("pk", "cluster_id")
            )
        return row


def _facts(row: Tenant) -> dict[str, Any]:
    return {"free_shares": row.free_shares, "namespace_limits": row.namespace_limits}


def _escaped(key: str) -> str:
    """A key inside a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
