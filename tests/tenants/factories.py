"""Rows for tests of tenants: people, tenants, quotas."""

from __future__ import annotations

from uuid import uuid4

from infra.models import GPUType, Site
from portal.accounts.models import User
from portal.kernel.actors import PLATFORM_ADMIN, Actor
from tenants.models import Member, Tenant, TenantSite, Zone

ADMIN = Actor(kind="user", name="platform-admin", user_id=uuid4(), platform_role=PLATFORM_ADMIN)
CARD = 1_000_000


def make_site(slug: str = "frankfurt") -> Site:
    return Site.objects.get_or_create(slug=slug, defaults={"name": slug})[0]


def make_tenant(slug: str = "ml-team", zone: str = "research", sites: tuple[str, ...] = ("frankfurt",)) -> Tenant:
    row = Zone.objects.get_or_create(slug=zone, defaults={"name": zone})[0]
    tenant = Tenant.objects.create(slug=slug, name=slug, zone=row)
    for site in sites:
        TenantSite.objects.create(tenant=tenant, site=make_site(site))
    return tenant


def make_user(name: str, platform_role: str = "") -> User:
    return User.objects.create(username=name, platform_role=platform_role)


def make_member(tenant: Tenant, name: str, role: str = Member.Role.DEVELOPER) -> Actor:
    user = make_user(name)
    Member.objects.create(tenant=tenant, user=user, role=role)
    return Actor(kind="user", name=name, user_id=user.pk)


def make_gpu_type(slug: str = "h100-80gb", memory_mib: int = 81_559) -> GPUType:
    return GPUType.objects.get_or_create(slug=slug, defaults={"name": slug, "memory_mib": memory_mib})[0]
