"""The people of a tenant. A tenant keeps at least one owner."""

from __future__ import annotations

from uuid import UUID

from portal.accounts.models import User
from portal.kernel import audit
from portal.kernel.actors import Actor
from portal.kernel.problems import Conflict, Invalid, NotFound
from portal.kernel.scoping import tenant_scope
from tenants.models import Member, Tenant
from tenants.permissions import Perm, require
from tenants.services.tenantclusters import access_changed


def member_set(*, tenant: Tenant, username: str, role: str, actor: Actor, source: str = Member.Source.MANUAL) -> Member:
    """Give a user a role in the tenant, or change it.

    Raises:
        Invalid: no such role, or no such user. Conflict: it would leave the tenant without an owner.
    """
    require(actor, Perm.MEMBER_MANAGE, tenant)
    if role not in Member.Role.values:
        raise Invalid.field("/role", f"Use one of: {', '.join(Member.Role.values)}.")
    user = User.objects.filter(username=username, is_active=True).first()
    if user is None:
        raise Invalid.field("/username", f"There is no active user {username}. They must have signed in once.")
    with tenant_scope(tenant.pk):
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        member = Member.objects.filter(tenant=tenant, user=user).first()
        before = member.role if member else None
        if member is not None and before == role:
            return member
        if before == Member.Role.OWNER:
            _keep_an_owner(tenant, user.pk)
        member, _ = Member.objects.update_or_create(tenant=tenant, user=user, defaults={"role": role, "source": source})
        audit.record(
            "member_set",
            actor=actor,
            tenant_id=tenant.pk,
            object_kind="member",
            object_id=member.pk,
            object_name=username,
            before={"role": before},
            after={"role": role},
        )
        access_changed(tenant)
        return member


def member_remove(*, tenant: Tenant, username: str, actor: Actor) -> None:
    """Take a user out of the tenant. Open sessions lose the tenant with the next request.

    Raises:
        NotFound: not a member. Conflict: the last owner.
    """
    require(actor, Perm.MEMBER_MANAGE, tenant)
    with tenant_scope(tenant.pk):
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        member = Member.objects.filter(tenant=tenant, user__username=username).first()
        if member is None:
            raise NotFound(f"{username} is not a member of {tenant.slug}.")
        if member.role == Member.Role.OWNER:
            _keep_an_owner(tenant, member.user_id)
        audit.record(
            "member_remove",
            actor=actor,
            tenant_id=tenant.pk,
            object_kind="member",
            object_id=member.pk,
            object_name=username,
            before={"role": member.role},
        )
        member.delete()
        access_changed(tenant)


def _keep_an_owner(tenant: Tenant, leaving: UUID) -> None:
    others = Member.objects.filter(tenant=tenant, role=Member.Role.OWNER).exclude(user_id=leaving)
    if not others.exists():
        raise Conflict(f"Tenant {tenant.slug} needs an owner. Make someone else an owner first.")
