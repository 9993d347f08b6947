"""Quotas: how many cards of a type a tenant may hold. Set by platform-admins."""

from __future__ import annotations

from dataclasses import dataclass

from infra.models import GPUType
from portal.kernel import audit
from portal.kernel.actors import Actor
from portal.kernel.problems import Invalid
from portal.kernel.scoping import system_scope
from tenants.models import GPUQuota, Tenant
from tenants.permissions import Perm, require
from tenants.services.allotments import admitted, cards, quota_locked
from tenants.services.waking import deployments_wake

LARGEST = 1_000_000 * 1_000_000
"""A million cards, in millionths: beyond that a figure is a typing error."""


@dataclass(frozen=True)
class QuotaSet:
    """The quota as set, and by how much the tenant is over it now (millionths; nothing is evicted)."""

    quota: GPUQuota
    over_by: int

    @property
    def sentence(self) -> str:
        """What a page says after the change."""
        if not self.over_by:
            return f"Limit of {self.quota.gpu_type.slug}: {cards(self.quota.limit)} cards."
        return (
            f"Limit of {self.quota.gpu_type.slug}: {cards(self.quota.limit)} cards. The tenant is over by "
            f"{cards(self.over_by)}: what runs goes on, nothing new is admitted until it is below."
        )


def quota_set(*, tenant: Tenant, gpu_type: GPUType, limit: int, guaranteed: int = 0, actor: Actor) -> QuotaSet:
    """Set a tenant's quota on a GPU type, both figures in millionths of a card. Zero allows nothing.

    Lowering evicts nothing. Deployments that wait are looked at again.

    Raises:
        Invalid: a negative or absurd figure, or more guaranteed than allowed at most.
    """
    require(actor, Perm.TENANT_MANAGE)
    errors = [
        {"pointer": pointer, "detail": "Give a number of cards from 0 to 1,000,000."}
        for pointer, value in (("/limit", limit), ("/guaranteed", guaranteed))
        if not 0 <= value <= LARGEST
    ]
    if not errors and guaranteed > limit:
        errors.append({"pointer": "/guaranteed", "detail": "Guaranteed can't be more than the limit."})
    if errors:
        raise Invalid(errors=errors)
    with system_scope("quota_set"):
        GPUQuota.objects.get_or_create(tenant=tenant, gpu_type=gpu_type)
        quota = quota_locked(tenant.pk, [gpu_type.pk])[gpu_type.pk]
        before = {"limit": quota.limit, "guaranteed": quota.guaranteed}
        after = {"limit": limit, "guaranteed": guaranteed}
        if before != after:
            quota.limit, quota.guaranteed = limit, guaranteed
            quota.generation += 1
            quota.save(update_fields=["limit", "guaranteed", "generation"])
            audit.record(
                "quota_set",
                actor=actor,
                tenant_id=tenant.pk,
                object_kind="quota",
                object_id=quota.pk,
                object_name=gpu_type.slug,
                before=before,
                after=after,
            )
            deployments_wake(tenant_id=tenant.pk)
        return QuotaSet(quota, max(0, admitted(tenant.pk, gpu_type.pk) - limit))
