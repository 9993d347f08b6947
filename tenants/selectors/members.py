"""The people of a tenant."""

from __future__ import annotations

from uuid import UUID

from tenants.models import Member, Tenant


def members_of(tenant: Tenant) -> list[Member]:
    """The members with their users, by user name. One query."""
    return list(Member.objects.filter(tenant=tenant).select_related("user").order_by("user__username"))


def is_member(user_id: UUID, tenant_id: UUID) -> bool:
    """Whether the person has any role in the tenant (see :mod:`portal.accounts.ports`)."""
    return Member.objects.filter(user_id=user_id, tenant_id=tenant_id).exists()
