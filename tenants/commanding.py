"""For management commands: the tenant and the actor that an option names."""

from __future__ import annotations

from django.core.management.base import CommandError

from portal.accounts.models import User
from portal.kernel.actors import Actor
from tenants.models import Tenant


def tenant_named(slug: str) -> Tenant:
    """The tenant of that slug.

    Raises:
        CommandError: none was named, or there is no such tenant; it lists those that there are.
    """
    if not slug:
        raise CommandError("name the tenant: --tenant SLUG, or metadata.namespace in the manifest")
    tenant = Tenant.objects.select_related("zone").filter(slug=slug).first()
    if tenant is None:
        known = ", ".join(Tenant.objects.order_by("slug").values_list("slug", flat=True)[:20]) or "none yet"
        raise CommandError(f"there is no tenant {slug}; there are: {known}")
    return tenant


def actor_named(username: str | None) -> Actor:
    """The person of that name, or the command line itself (whoever may run it holds the database's credentials).

    Raises:
        CommandError: no such user, or one that is switched off.
    """
    if not username:
        return Actor.system("command line")
    user = User.objects.filter(username=username, is_active=True).first()
    if user is None:
        raise CommandError(f"there is no active user {username}")
    return Actor(kind="user", name=user.username, user_id=user.pk, platform_role=user.platform_role)
