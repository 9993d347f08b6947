"""Tenants: made and changed by platform-admins. Their zones: :mod:`tenants.services.zones`."""

from __future__ import annotations

from collections.abc import Collection

from django.core.exceptions import ValidationError
from django.core.validators import validate_slug

from infra.models import Site
from portal.kernel import audit
from portal.kernel.actors import Actor
from portal.kernel.problems import Conflict, Invalid
from portal.kernel.scoping import system_scope
from tenants.models import Tenant, TenantSite, Zone
from tenants.permissions import Perm, require
from tenants.services.tenantclusters import access_changed
from tenants.services.waking import deployments_wake

RESERVED_SLUGS = frozenset({"new", "idle", "unallocated", "unmounted", "shared", "external", "system", "platform"})
"""Words of our URLs and of OpenCost's special rows (``__idle__`` …), which a report could confuse with a tenant."""

SLUG_LIMIT = 40


def checked_slug(value: str, pointer: str = "/slug") -> str:
    """``value`` if it can name a tenant or zone.

    Raises:
        Invalid: not lower-case letters, digits and dashes starting with a letter, too long, or reserved.
    """
    try:
        validate_slug(value)
    except ValidationError:
        value = ""
    if not value or value != value.lower() or not value[0].isalpha() or "_" in value or value.endswith("-"):
        raise Invalid.field(pointer, "Use lower-case letters, digits and dashes; start with a letter.")
    if len(value) > SLUG_LIMIT:
        raise Invalid.field(pointer, f"Use at most {SLUG_LIMIT} characters: it becomes part of a namespace.")
    if value in RESERVED_SLUGS:
        raise Invalid.field(pointer, f"The name {value} is reserved. Choose another one.")
    return value


def tenant_create(
    *,
    slug: str,
    name: str,
    zone: Zone,
    sites: Collection[Site],
    cost_code: str = "",
    cost_code_required: bool = False,
    actor: Actor,
) -> Tenant:
    """Make a tenant. Without a site it may use none: nothing of it is placed anywhere.

    Raises:
        Invalid: the slug can't be used, or a cost code is required and missing. Conflict: the slug is taken.
    """
    require(actor, Perm.TENANT_MANAGE)
    slug = checked_slug(slug)
    if cost_code_required and not cost_code:
        raise Invalid.field("/cost_code", "Give a default cost code, or don't require one.")
    with system_scope("tenant_create"):
        if Tenant.objects.filter(slug=slug).exists():
            raise Conflict(f"There is a tenant {slug} already.")
        tenant = Tenant.objects.create(
            slug=slug,
            name=name or slug,
            zone=zone,
            cost_code=cost_code,
            cost_code_required=cost_code_required,
        )
        TenantSite.objects.bulk_create([TenantSite(tenant=tenant, site=site) for site in sites])
        audit.record(
            "tenant_create",
            actor=actor,
            tenant_id=tenant.pk,
            object_kind="tenant",
            object_id=tenant.pk,
            object_name=tenant.slug,
            after={"name": tenant.name, "zone": zone.slug, "sites": sorted(site.slug for site in sites)},
        )
        return tenant


def tenant_update(
    *,
    tenant: Tenant,
    actor: Actor,
    name: str | None = None,
    sites: Collection[Site] | None = None,
    cost_code: str | None = None,
    cost_code_required: bool | None = None,
) -> Tenant:
    """Change what is given. Taking a site away moves nothing that runs there: it stops new placements.

    Raises:
        Invalid: a cost code would be required and missing.
    """
    require(actor, Perm.TENANT_MANAGE)
    with system_scope("tenant_update"):
        row = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        before = _facts(row)
        row.name = row.name if name is None else name or row.slug
        row.cost_code = row.cost_code if cost_code is None else cost_code
        if cost_code_required is not None:
            row.cost_code_required = cost_code_required
        if row.cost_code_required and not row.cost_code:
            raise Invalid.field("/cost_code", "Give a default cost code, or don't require one.")
        if sites is not None:
            TenantSite.objects.filter(tenant=row).exclude(site__in=sites).delete()
            for site in sites:
                TenantSite.objects.get_or_create(tenant=row, site=site)
        row.generation += 1
        row.save()
        after = _facts(row)
        if after != before:
            audit.record(
                "tenant_update",
                actor=actor,
                tenant_id=row.pk,
                object_kind="tenant",
                object_id=row.pk,
                object_name=row.slug,
                before=before,
                after=after,
            )
            deployments_wake(tenant_id=row.pk)
        return row


def tenant_set_state(*, tenant: Tenant, state: str, actor: Actor) -> Tenant:
    """Suspend a tenant (its members may only read, nothing new is placed) or make it active again.

    Raises:
        Invalid: no such state.
    """
    require(actor, Perm.TENANT_MANAGE)
    if state not in Tenant.State.values:
        raise Invalid.field("/state", f"Use one of: {', '.join(Tenant.State.values)}.")
    with system_scope("tenant_set_state"):
        row = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        if row.state == state:
            return row
        before, row.state = row.state, state
        row.generation += 1
        row.save(update_fields=["state", "generation"])
        audit.record(
            "tenant_set_state",
            actor=actor,
            tenant_id=row.pk,
            object_kind="tenant",
            object_id=row.pk,
            object_name=row.slug,
            before={"state": before},
            after={"state": state},
        )
        access_changed(row)
        deployments_wake(tenant_id=row.pk)
        return row


def _facts(tenant: Tenant) -> dict[str, object]:
    sites = TenantSite.objects.filter(tenant=tenant).order_by("site__slug").values_list("site__slug", flat=True)
    return {
        "name": tenant.name,
        "sites": list(sites),
        "cost_code": tenant.cost_code,
        "cost_code_required": tenant.cost_code_required,
    }
