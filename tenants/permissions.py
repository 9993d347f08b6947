"""Who may do what. Roles and permissions are a table in code; every service and page asks here.

An outsider gets the same 404 for a tenant that exists and one that doesn't. A member who lacks a permission gets a
403 that names it, and the refusal is audited at the edge, after the rollback.
"""

from __future__ import annotations

from enum import StrEnum

from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_FINANCE, PLATFORM_VIEWER, Actor
from portal.kernel.problems import Forbidden, NotFound
from tenants.models import Member, Tenant


class Perm(StrEnum):
    """A permission. Those of the first block are held in a tenant, those of the second on the platform."""

    TENANT_READ = "tenant.read"
    DEPLOYMENT_WRITE = "deployment.write"
    CLUSTER_USE = "cluster.use"
    CLUSTER_MANAGE = "cluster.manage"
    QUOTA_REQUEST = "quota.request"
    MEMBER_MANAGE = "member.manage"
    BILL_READ = "bill.read"
    AUDIT_READ = "audit.read"

    FLEET_READ = "fleet.read"
    FLEET_WRITE = "fleet.write"
    TENANT_MANAGE = "tenant.manage"
    RATE_MANAGE = "rate.manage"
    BILL_CLOSE = "bill.close"
    PLATFORM_BILL_READ = "platform.bill.read"
    PLATFORM_AUDIT_READ = "platform.audit.read"


_READ = frozenset({Perm.TENANT_READ})

TENANT_ROLES: dict[str, frozenset[Perm]] = {
    Member.Role.OWNER: _READ
    | {Perm.CLUSTER_USE, Perm.CLUSTER_MANAGE, Perm.QUOTA_REQUEST}
    | {Perm.DEPLOYMENT_WRITE, Perm.MEMBER_MANAGE, Perm.BILL_READ, Perm.AUDIT_READ},
    Member.Role.DEVELOPER: _READ | {Perm.DEPLOYMENT_WRITE, Perm.BILL_READ, Perm.CLUSTER_USE},
    Member.Role.VIEWER: _READ | {Perm.CLUSTER_USE},
    Member.Role.FINANCE: _READ | {Perm.BILL_READ},
}

PLATFORM_ROLES: dict[str, frozenset[Perm]] = {
    PLATFORM_ADMIN: frozenset(Perm),
    PLATFORM_VIEWER: frozenset(
        {
            Perm.TENANT_READ,
            Perm.BILL_READ,
            Perm.AUDIT_READ,
            Perm.FLEET_READ,
            Perm.PLATFORM_BILL_READ,
            Perm.PLATFORM_AUDIT_READ,
        }
    ),
    PLATFORM_FINANCE: frozenset(
        {
            Perm.TENANT_READ,
            Perm.BILL_READ,
            Perm.FLEET_READ,
            Perm.RATE_MANAGE,
            Perm.BILL_CLOSE,
            Perm.PLATFORM_BILL_READ,
        }
    ),
}

PLATFORM_ONLY = frozenset(
    {
        Perm.FLEET_READ,
        Perm.FLEET_WRITE,
        Perm.TENANT_MANAGE,
        Perm.RATE_MANAGE,
        Perm.BILL_CLOSE,
        Perm.PLATFORM_BILL_READ,
        Perm.PLATFORM_AUDIT_READ,
    }
)
READING = frozenset(
    {
        Perm.TENANT_READ,
        Perm.BILL_READ,
        Perm.AUDIT_READ,
        Perm.FLEET_READ,
        Perm.PLATFORM_BILL_READ,
        Perm.PLATFORM_AUDIT_READ,
    }
)
"""What a token with the scope ``read`` alone may do; anything else needs ``write``."""


def role_in(actor: Actor, tenant: Tenant) -> str:
    """The actor's role in a tenant (``Member.Role``); an empty text for an outsider."""
    if actor.user_id is None or not actor.may_enter(tenant.pk):
        return ""
    member = Member.objects.filter(tenant=tenant, user_id=actor.user_id).values_list("role", flat=True).first()
    return member or ""


def permissions_of(actor: Actor, tenant: Tenant | None) -> frozenset[Perm]:
    """What the actor may do in a tenant, or on the platform (``tenant=None``)."""
    if actor.is_system:
        return frozenset(Perm)
    if tenant is not None and not actor.may_enter(tenant.pk):
        return frozenset()
    held = PLATFORM_ROLES.get(actor.platform_role, frozenset())
    if tenant is not None:
        held |= TENANT_ROLES.get(role_in(actor, tenant), frozenset())
        if tenant.state != Tenant.State.ACTIVE:
            held &= READING | PLATFORM_ROLES.get(actor.platform_role, frozenset())
    if actor.kind == "token" and "write" not in actor.scopes:
        held &= READING if "read" in actor.scopes else frozenset()
    return held


def may(actor: Actor, perm: Perm, tenant: Tenant | None = None) -> bool:
    """Whether the actor has the permission (pages use it to leave out what would be refused)."""
    return perm in permissions_of(actor, None if perm in PLATFORM_ONLY else tenant)


def require(actor: Actor, perm: Perm, tenant: Tenant | None = None) -> None:
    """Let the actor pass, or raise.

    Raises:
        NotFound: the actor can't even read the tenant; it must not learn that it exists.
        Forbidden: it can, but lacks the permission.
    """
    where = None if perm in PLATFORM_ONLY else tenant
    held = permissions_of(actor, where)
    if perm in held:
        return
    if where is not None and Perm.TENANT_READ not in held:
        raise NotFound("There is no such tenant, or you are not a member of it.")
    place = f"in tenant {where.slug}" if where is not None else "on the platform"
    problem = Forbidden(f"{actor.label} lacks the permission {perm} {place}. Ask an owner or a platform-admin for it.")
    problem.refusal = {
        "verb": str(perm),
        "actor": actor,
        "tenant_id": None if where is None else where.pk,
        "object_kind": "platform" if where is None else "tenant",
        "object_id": None if where is None else where.pk,
        "object_name": "" if where is None else where.slug,
        "reason": problem.detail,
    }
    raise problem


def tenant_for(actor: Actor, slug: str, perm: Perm = Perm.TENANT_READ) -> Tenant:
    """The tenant of that slug, if the actor may enter it with that permission.

    Raises:
        NotFound: no such tenant, or the actor is an outsider (the same answer).
        Forbidden: a member without the permission.
    """
    tenant = Tenant.objects.select_related("zone").filter(slug=slug).first()
    if tenant is None:
        raise NotFound("There is no such tenant, or you are not a member of it.")
    require(actor, perm, tenant)
    return tenant


def tenants_of(actor: Actor) -> list[Tenant]:
    """The tenants that the actor is a member of, by slug (platform roles: see the platform's pages)."""
    if actor.user_id is None:
        return []
    rows = Tenant.objects.filter(members__user_id=actor.user_id).select_related("zone").order_by("slug")
    return [tenant for tenant in rows if actor.may_enter(tenant.pk)]
