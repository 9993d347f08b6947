"""The menu: what the signed-in person may open, in two groups (their teams, the platform)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from portal.kernel.actors import PLATFORM_VIEWER, Actor
from tenants.models import Tenant
from tenants.permissions import Perm, permissions_of, tenants_of


@dataclass(frozen=True)
class Link:
    """An entry of the menu."""

    title: str
    url: str
    current: bool


@dataclass(frozen=True)
class Section:
    """A titled group of entries."""

    title: str
    links: list[Link]


TEAM = [
    ("Home", "tenants:home", Perm.TENANT_READ),
    ("Deployments", "tenants:deployments", Perm.TENANT_READ),
    ("Tenant clusters", "tenants:clusters", Perm.TENANT_READ),
    ("Usage", "billing:usage", Perm.BILL_READ),
    ("Bills", "billing:bills", Perm.BILL_READ),
    ("Quota", "tenants:quota", Perm.TENANT_READ),
    ("Members", "tenants:members", Perm.TENANT_READ),
    ("Audit", "tenants:audit", Perm.AUDIT_READ),
]
PLATFORM: list[tuple[str, str, tuple[str, ...]]] = [
    ("Overview", "home:platform", ()),
    ("Clusters", "infra:clusters", ()),
    ("Tenants and quotas", "tenants:platform-tenants", ()),
    ("Tenant clusters", "tenants:platform-clusters", ()),
    ("Zones", "tenants:platform-zones", ()),
    ("Quotas and cards", "tenants:platform-quotas", ()),
    ("Quota requests", "tenants:platform-quota-requests", ()),
    ("Groups and roles", "tenants:mappings", ()),
    ("Rate card", "billing:rates", ()),
    ("Bills", "billing:platform-bills", ()),
    ("Where the hours go", "billing:hours", ()),
    ("Beside OpenCost", "billing:opencost", ()),
    ("Health", "infra:health", ()),
    ("Namespaces", "tenants:namespaces", ()),
    ("Namespaces by cost", "billing:namespaces", ()),
    ("Work queue", "home:work", ()),
    ("Operations", "infra:operations", ()),
    ("Audit", "home:audit", (PLATFORM_VIEWER,)),
]


def navigation(request: HttpRequest) -> dict[str, Any]:
    """Context processor: ``nav_sections``; empty for somebody who is not signed in.

    The team whose page is open (else the first of the person's) has its pages listed, the others are one link each: as
    many queries for fifty teams as for one.
    """
    actor: Actor | None = getattr(request, "actor", None)
    if actor is None:
        return {"nav_sections": []}
    sections = []
    here: Tenant | None = getattr(request, "tenant", None)
    teams = tenants_of(actor)
    open_team = here or (teams[0] if teams else None)
    if open_team is not None:
        held = permissions_of(actor, open_team)
        links = [_link(request, title, name, tenant=open_team.slug) for title, name, perm in TEAM if perm in held]
        sections.append(Section(open_team.name, [link for link in links if link is not None]))
    others = [_link(request, team.name, "tenants:home", tenant=team.slug) for team in teams if team != open_team]
    if others:
        sections.append(Section("Other teams", [link for link in others if link is not None]))
    if actor.is_platform():
        links = [_link(request, title, name) for title, name, roles in PLATFORM if actor.is_platform(*roles)]
        sections.append(Section("Platform", _one_current(links)))
    account = [_link(request, "Your roles", "accounts:roles"), _link(request, "API tokens", "accounts:tokens")]
    sections.append(Section("Account", [link for link in account if link is not None]))
    return {"nav_sections": sections}


def _link(request: HttpRequest, title: str, name: str, **kwargs: str) -> Link | None:
    try:
        url = reverse(name, kwargs=kwargs or None)
    except NoReverseMatch:
        return None
    root = name in ("tenants:home", "home:platform")
    current = request.path == url if root else request.path.startswith(url)
    return Link(title, url, current)


def _one_current(links: list[Link | None]) -> list[Link]:
    """Where one is, once: of entries that lie below each other the nearest."""
    there = [link for link in links if link is not None]
    nearest = max((link.url for link in there if link.current), key=len, default="")
    return [replace(link, current=link.url == nearest) for link in there]
