"""From claims to roles. Rules that match are noted as grants; roles follow from the grants.

An absent claim changes no grant; an empty one takes them away. Roles that were given by hand are left alone: a person
has one role in a tenant, and where it was given by hand it stays, whatever the groups say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import transaction

from portal.accounts.models import User
from portal.kernel import audit
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_FINANCE, PLATFORM_VIEWER, Actor
from portal.kernel.scoping import tenant_scope
from tenants.claims import matching, read_claim
from tenants.models import GroupGrant, GroupMapping, Member, Tenant

# The first that a person has counts. Each tenant role may do all that the ones behind it may.
RANK = (Member.Role.OWNER, Member.Role.DEVELOPER, Member.Role.FINANCE, Member.Role.VIEWER)
PLATFORM_RANK = (PLATFORM_ADMIN, PLATFORM_FINANCE, PLATFORM_VIEWER)


def roles_sync(*, user: User, claims: Mapping[str, Any], actor: Actor) -> None:
    """Bring a person's roles in line with the claims. The caller's transaction; the user's row must be locked.

    ``user.platform_role`` of the object given is what it is afterwards.
    """
    had = {grant.mapping_id: grant for grant in GroupGrant.objects.filter(user=user)}
    for mapping in GroupMapping.objects.all():
        values = read_claim(claims, mapping.claim).values
        if values is None:
            continue
        value, grant = matching(values, mapping), had.get(mapping.pk)
        if value is None and grant is not None:
            # Not deleted yet: what it gave is taken back first, by settling.
            grant.value = ""
            grant.save(update_fields=["value"])
        elif value is not None and grant is None:
            GroupGrant.objects.create(user=user, mapping=mapping, value=value)
        elif value is not None and grant is not None and grant.value != value:
            grant.value = value
            grant.save(update_fields=["value"])
    roles_settle(user=user, actor=actor)


def roles_settle(*, user: User, actor: Actor) -> None:
    """Make the roles follow from the grants; those without a value are over, and removed."""
    grants = list(GroupGrant.objects.filter(user=user).select_related("mapping__tenant"))
    _platform(user, [grant for grant in grants if grant.mapping.platform_role], actor)
    _tenants(user, [grant for grant in grants if grant.mapping.tenant_id is not None], actor)
    GroupGrant.objects.filter(user=user, value="").delete()


def _platform(user: User, grants: list[GroupGrant], actor: Actor) -> None:
    by_hand = bool(user.platform_role) and not any(grant.in_force for grant in grants)
    best = _best((grant for grant in grants if grant.value), PLATFORM_RANK, lambda one: one.mapping.platform_role)
    if by_hand:
        return
    before, after = user.platform_role, best.mapping.platform_role if best else ""
    _put_in_force(grants, best)
    if before == after:
        return
    user.platform_role = after
    user.save(update_fields=["platform_role"])
    audit.record(
        "platform_role_set",
        actor=actor,
        tenant_id=None,
        object_kind="user",
        object_id=user.pk,
        object_name=user.username,
        before={"platform_role": before},
        after={"platform_role": after},
        reason=_reason(best),
    )


def _tenants(user: User, grants: list[GroupGrant], actor: Actor) -> None:
    idp = Member.objects.filter(user=user, source=Member.Source.IDP).values_list("tenant_id", flat=True)
    concerned = sorted({*idp, *(grant.mapping.tenant_id for grant in grants if grant.mapping.tenant_id)})
    if not concerned:
        return
    with tenant_scope(*concerned):
        # The same lock, in one order, as the services that change members by hand.
        tenants = list(Tenant.objects.select_for_update(no_key=True).filter(pk__in=concerned).order_by("pk"))
        members = {row.tenant_id: row for row in Member.objects.filter(user=user, tenant__in=tenants)}
        for tenant in tenants:
            own = [grant for grant in grants if grant.mapping.tenant_id == tenant.pk]
            best = _best((grant for grant in own if grant.value), RANK, lambda one: one.mapping.role)
            member = members.get(tenant.pk)
            if member is not None and member.source != Member.Source.IDP:
                _put_in_force(own, None)
                continue
            _put_in_force(own, best)
            _member(user, tenant, member, best, actor)


def _member(user: User, tenant: Tenant, member: Member | None, best: GroupGrant | None, actor: Actor) -> None:
    before, after = member.role if member else None, best.mapping.role if best else None
    if before == after:
        return
    if after is None:
        assert member is not None  # else before would be None too
        object_id = member.pk
        # Also the last owner: who left the group must not stay in. A platform-admin can name another.
        member.delete()
    else:
        row, _ = Member.objects.update_or_create(
            tenant=tenant, user=user, defaults={"role": after, "source": Member.Source.IDP}
        )
        object_id = row.pk
    audit.record(
        "member_set" if after else "member_remove",
        actor=actor,
        tenant_id=tenant.pk,
        object_kind="member",
        object_id=object_id,
        object_name=user.username,
        before={"role": before},
        after={"role": after} if after else None,
        reason=_reason(best),
    )


def _best(grants: Iterable[GroupGrant], rank: tuple[str, ...], role_of: Any) -> GroupGrant | None:
    known = [grant for grant in grants if role_of(grant) in rank]
    return min(known, key=lambda grant: rank.index(role_of(grant)), default=None)


def _put_in_force(grants: Iterable[GroupGrant], best: GroupGrant | None) -> None:
    for grant in grants:
        wanted = best is not None and grant.pk == best.pk
        if grant.in_force != wanted:
            grant.in_force = wanted
            grant.save(update_fields=["in_force"])


def _reason(best: GroupGrant | None) -> str:
    if best is None:
        return "no group or role of the identity provider gives it any more"
    return f"claim {best.mapping.claim}: {best.value}"


def settle_people(*, user_ids: Iterable[Any], actor: Actor) -> None:
    """Settle several people, in one order, in the caller's transaction (a rule was removed)."""
    with transaction.atomic():
        for user in User.objects.select_for_update().filter(pk__in=list(user_ids)).order_by("pk"):
            roles_settle(user=user, actor=actor)
