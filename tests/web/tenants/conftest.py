"""A team with two clusters, cards, a quota, and people of every role with a browser each."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from portal.accounts.models import User
from portal.kernel.actors import PLATFORM_VIEWER
from portal.kernel.scoping import system_scope
from tenants.models import Member, ModelDeployment, Tenant
from tenants.services.deployments import deployment_apply
from tests.support.fleet import make_cluster, make_node, make_pool, make_type
from tests.support.tenants import TESTER, give_quota, make_tenant
from tests.unit.tenants.manifests import manifest_data

PRODUCT = "NVIDIA H100 80GB HBM3"
ROLES = ("owner", "developer", "viewer", "finance")


@pytest.fixture
def tenant() -> Tenant:
    """`ml-team`, alone in its zone, 4 cards of quota, two clusters with a node of 2 cards each."""
    tenant = make_tenant()
    gpu_type = make_type()
    gpu_type.attributes |= {"productName": {"string": PRODUCT}}
    gpu_type.name = PRODUCT
    gpu_type.save()
    for slug in ("alpha", "beta"):
        make_node(make_pool(cluster=make_cluster(slug)), cards=2, name=f"{slug}-0")
    give_quota(tenant, gpu_type, 4)
    return tenant


@pytest.fixture
def people(tenant: Tenant) -> dict[str, User]:
    """One user for each role, an outsider (owner of another team), and a platform-viewer."""
    out = {}
    for role in ROLES:
        out[role] = User.objects.create_user(f"{role}-1")
        Member.objects.create(tenant=tenant, user=out[role], role=role)
    out["outsider"] = User.objects.create_user("outsider")
    Member.objects.create(tenant=make_tenant("team-vision"), user=out["outsider"], role="owner")
    out["platform-viewer"] = User.objects.create_user("watcher", platform_role=PLATFORM_VIEWER)
    return out


@pytest.fixture
def browser(people: dict[str, User]) -> Callable[[str], Client]:
    """A browser in which the person of that role is signed in."""

    def of(role: str) -> Client:
        client = Client()
        client.force_login(people[role])
        return client

    return of


@pytest.fixture
def owner(browser: Callable[[str], Client]) -> Client:
    """The owner's browser."""
    return browser("owner")


@pytest.fixture
def deployment(tenant: Tenant) -> ModelDeployment:
    """`qwen3-8b`, one replica wanted, nothing placed yet."""
    return apply(tenant)


def apply(tenant: Tenant, **manifest: Any) -> ModelDeployment:
    """A deployment by its service."""
    return deployment_apply(tenant=tenant, manifest=manifest_data(**manifest), actor=TESTER).deployment


def stored(name: str = "qwen3-8b") -> ModelDeployment:
    """The row as it is now."""
    with system_scope("test"):
        return ModelDeployment.objects.select_related("tenant").get(name=name, deleted_at__isnull=True)


def count(model: type[Any] = ModelDeployment, **filters: Any) -> int:
    """How many rows there are, in all tenants."""
    with system_scope("test"):
        return int(model.objects.filter(**filters).count())


def text_of(response: Any) -> str:
    """The page as text."""
    return str(response.content.decode())


def form_data(client: Client, path: str, **values: Any) -> dict[str, Any]:
    """What a browser sends: the hidden fields of the form at ``path``, and ``values``."""
    page = text_of(client.get(path))
    hidden = dict(re.findall(r'<input type="hidden" name="([a-z_]+)"[^>]*? value="([^"]*)"', page))
    hidden.pop("csrfmiddlewaretoken", None)
    return {name: value.replace("&quot;", '"') for name, value in hidden.items()} | values
