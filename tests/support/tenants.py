"""Tenants, quotas and people as rows, for tests."""

from __future__ import annotations

from uuid import UUID

from infra.models import GPUType, Site
from portal.kernel.actors import Actor
from portal.kernel.scoping import system_scope
from tenants.models import GPUQuota, Tenant, TenantSite, Zone

CARD = 1_000_000
TESTER = Actor.system("tester")


def make_tenant(slug: str = "ml-team", *, zone: str = "", sites: tuple[str, ...] = ("site-a",)) -> Tenant:
    """A tenant, alone in its zone unless one is named, that may use these sites."""
    row, _ = Zone.objects.get_or_create(slug=zone or f"zone-{slug}", defaults={"name": zone or slug})
    tenant = Tenant.objects.create(slug=slug, name=slug, zone=row)
    for name in sites:
        site, _ = Site.objects.get_or_create(slug=name, defaults={"name": name})
        TenantSite.objects.create(tenant=tenant, site=site)
    return tenant


def give_quota(tenant: Tenant, gpu_type: GPUType, cards: int) -> UUID:
    """A limit of so many whole cards."""
    with system_scope("test"):
        row, _ = GPUQuota.objects.update_or_create(
            tenant=tenant, gpu_type=gpu_type, defaults={"limit": cards * CARD, "guaranteed": 0}
        )
        return row.pk
