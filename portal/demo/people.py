"""Sites, teams, people and quotas of the demonstration."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from infra.models import GPUType, Site
from infra.services.clusters import site_create
from infra.shares import CARD
from portal.accounts.models import User
from portal.accounts.services import user_create
from portal.demo.parallel import side_by_side
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_FINANCE, PLATFORM_VIEWER, Actor
from tenants.models import Member, Tenant, Zone
from tenants.services.members import member_set
from tenants.services.quotas import quota_set
from tenants.services.tenants import tenant_create
from tenants.services.zones import zone_create

SITES = {"frankfurt": "Frankfurt", "helsinki": "Helsinki"}
TENANTS = {
    "ml-team": ("ML team", ("frankfurt", "helsinki"), "CC-4711"),
    "team-vision": ("Vision team", ("frankfurt",), "CC-4712"),
}
PEOPLE = {
    "platform-admin": (PLATFORM_ADMIN, None, "connects clusters, sets quotas and prices"),
    "platform-finance": (PLATFORM_FINANCE, None, "rates and bills"),
    "platform-viewer": (PLATFORM_VIEWER, None, "reads the platform's pages"),
    "ml-owner": ("", ("ml-team", Member.Role.OWNER), "owner of the ML team"),
    "ml-developer": ("", ("ml-team", Member.Role.DEVELOPER), "deploys models of the ML team"),
    "vision-owner": ("", ("team-vision", Member.Role.OWNER), "owner of the vision team"),
}
QUOTAS = {
    "ml-team": {"H100": 8, "L4": 4, "A100": 4},
    "team-vision": {"H100": 16, "L4": 2},
}
"""Cards by a word of the GPU type's name."""


def admin() -> Actor:
    """The demonstration's platform-admin, in whose name the seed acts."""
    user = User.objects.get(username="platform-admin")
    return Actor(kind="user", name=user.username, user_id=user.pk, platform_role=user.platform_role)


def people_ensure(logins: Path | None, *, roles: bool = True) -> list[dict[str, str]]:
    """The users, with passwords made at random and kept in ``logins`` (readable by us alone) to be told again.

    Without a file the passwords are told this once.

    Args:
        roles: False: nobody but the platform-admin, who makes all this, gets a platform role by hand.
    """
    known: dict[str, str] = json.loads(logins.read_text()) if logins is not None and logins.exists() else {}
    users = {user.username: user for user in User.objects.filter(username__in=PEOPLE)}
    untold = [name for name in PEOPLE if name not in users or name not in known]
    # What is known already may have been told to Keycloak meanwhile.
    known |= {name: secrets.token_urlsafe(12) for name in untold if name not in known}

    def give_password(name: str) -> None:
        user = users.get(name)
        if user is None:
            role = PEOPLE[name][0] if roles or name == "platform-admin" else ""
            user_create(username=name, password=known[name], platform_role=role, actor=Actor.system("demonstration"))
        else:
            user.set_password(known[name])
            user.save(update_fields=["password"])

    side_by_side(give_password, untold)
    if logins is not None:
        handle = os.open(logins, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(known, file)
    return [{"username": name, "password": known[name], "about": about} for name, (_, _, about) in PEOPLE.items()]


def teams_ensure(actor: Actor, *, members: bool = True) -> dict[str, Tenant]:
    """Sites, zone, tenants, and (unless groups make them) members."""
    for slug, name in SITES.items():
        if not Site.objects.filter(slug=slug).exists():
            site_create(slug=slug, name=name, actor=actor)
    zone = Zone.objects.filter(slug="research").first() or zone_create(slug="research", name="Research", actor=actor)
    found: dict[str, Tenant] = {}
    for slug, (name, sites, cost_code) in TENANTS.items():
        found[slug] = Tenant.objects.filter(slug=slug).first() or tenant_create(
            slug=slug,
            name=name,
            zone=zone,
            sites=list(Site.objects.filter(slug__in=sites)),
            cost_code=cost_code,
            actor=actor,
        )
    for username, (_, membership, _) in PEOPLE.items():
        if members and membership is not None:
            member_set(tenant=found[membership[0]], username=username, role=membership[1], actor=actor)
    return found


def quotas_ensure(tenants: dict[str, Tenant], actor: Actor) -> None:
    """Quotas on the GPU types that the fleet was found to have."""
    for slug, quotas in QUOTAS.items():
        for word, cards in quotas.items():
            for gpu_type in GPUType.objects.filter(name__contains=word):
                quota_set(
                    tenant=tenants[slug],
                    gpu_type=gpu_type,
                    limit=cards * CARD,
                    guaranteed=cards * CARD // 2,
                    actor=actor,
                )
