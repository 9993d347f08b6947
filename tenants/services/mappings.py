"""The rules by which groups of the identity provider give roles. A platform-admin sets them; sign-in applies them."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction

from portal.accounts.models import User
from portal.kernel import audit
from portal.kernel.actors import Actor
from portal.kernel.problems import Conflict, Invalid, NotFound
from portal.kernel.text import storable
from tenants.models import GroupMapping, Member, Tenant
from tenants.permissions import Perm, require
from tenants.services.group_roles import settle_people

PLATFORM_CLAIM = "realm_access.roles"
"""The only claim that may give a platform role: a realm role, which the platform's people alone can assign."""


def mapping_add(
    *,
    claim: str,
    value: str,
    actor: Actor,
    match: str = GroupMapping.Match.EXACT,
    tenant: Tenant | None = None,
    role: str = "",
    platform_role: str = "",
) -> GroupMapping:
    """A new rule. It takes effect at each person's next sign-in or refresh.

    Raises:
        Forbidden: the actor is no platform-admin.
        Invalid: neither a tenant with a role nor a platform role; a platform role from another claim than
            ``realm_access.roles``, or by prefix; a group without its path.
        Conflict: there is such a rule.
    """
    require(actor, Perm.TENANT_MANAGE)
    claim, value = claim.strip(), value.strip()
    errors = _errors(claim, value, match, tenant, role, platform_role)
    if errors:
        raise Invalid(errors=[{"pointer": pointer, "detail": detail} for pointer, detail in errors])
    with transaction.atomic():
        known = GroupMapping.objects.filter(claim=claim, match=match, value=value, tenant=tenant).first()
        if known is not None:
            raise Conflict(f"There is a rule for this value already: it gives {known.gives}. Remove it first.")
        mapping = GroupMapping.objects.create(
            claim=claim, match=match, value=value, tenant=tenant, role=role, platform_role=platform_role,
            created_by=actor.label[:200],
        )  # fmt: skip
        _record("group_mapping_add", mapping, actor, after=True)
    return mapping


def mapping_remove(*, mapping_id: UUID, actor: Actor) -> None:
    """Take a rule away, and at once the roles that only it gave.

    Raises:
        Forbidden: the actor is no platform-admin. NotFound: no such rule.
    """
    require(actor, Perm.TENANT_MANAGE)
    with transaction.atomic():
        mapping = GroupMapping.objects.select_for_update(of=("self",)).select_related("tenant").filter(pk=mapping_id)
        found = mapping.first()
        if found is None:
            raise NotFound("There is no such rule.")
        people = list(found.grants.values_list("user_id", flat=True))
        # The people first: signing in locks a person, then what they hold.
        list(User.objects.select_for_update().filter(pk__in=people).order_by("pk"))
        found.grants.update(value="")
        settle_people(user_ids=people, actor=actor)
        _record("group_mapping_remove", found, actor, after=False)
        found.delete()


def _errors(
    claim: str, value: str, match: str, tenant: Tenant | None, role: str, platform_role: str
) -> list[tuple[str, str]]:
    errors = []
    if not claim or len(claim) > 200 or not storable(claim):
        errors.append(("/claim", "Name the claim, such as groups or realm_access.roles, in at most 200 characters."))
    if not value or len(value) > 400 or not storable(value):
        errors.append(("/value", "Give the value that the claim must hold, in at most 400 characters."))
    elif claim.rpartition(".")[2] == "groups" and not value.startswith("/"):
        errors.append(
            ("/value", f"Give the group with its path, /{value}: without it, groups of one name can't be told apart.")
        )
    if match not in GroupMapping.Match.values:
        errors.append(("/match", f"Use one of: {', '.join(GroupMapping.Match.values)}."))
    elif match == GroupMapping.Match.PREFIX and not value.strip("/"):
        errors.append(("/value", "This prefix would match every group. Name one."))
    if platform_role:
        if tenant is not None or role:
            errors.append(("/platform_role", "A rule gives a role in a tenant or on the platform, not both."))
        if platform_role not in filter(None, User.PlatformRole.values):
            errors.append(("/platform_role", f"Use one of: {', '.join(filter(None, User.PlatformRole.values))}."))
        if claim != PLATFORM_CLAIM or match != GroupMapping.Match.EXACT:
            errors.append(("/claim", f"A platform role comes from {PLATFORM_CLAIM}, exactly, and from nothing else."))
    else:
        if tenant is None:
            errors.append(("/tenant", "Choose the tenant, or a platform role."))
        if role not in Member.Role.values:
            errors.append(("/role", f"Use one of: {', '.join(Member.Role.values)}."))
    return errors


def _record(verb: str, mapping: GroupMapping, actor: Actor, *, after: bool) -> None:
    told = {"claim": mapping.claim, "match": mapping.match, "value": mapping.value, "gives": mapping.gives}
    audit.record(
        verb,
        actor=actor,
        tenant_id=None,
        object_kind="group_mapping",
        object_id=mapping.pk,
        object_name=str(mapping),
        before=None if after else told,
        after=told if after else None,
    )
