"""The pages and the API of groups and roles."""

from __future__ import annotations

import pytest
from django.test import Client

from portal.accounts.models import Identity, User
from tenants.models import GroupMapping, Member
from tenants.services.mappings import mapping_add
from tests.support.estate import ADMIN
from tests.support.tenants import make_tenant

pytestmark = pytest.mark.django_db


def browser(role: str, name: str = "") -> Client:
    client = Client()
    user = User.objects.create_user(name or f"a-{role or 'person'}", platform_role=role)
    client.force_login(user, backend="portal.accounts.backends.LocalBackend")
    return client


def test_an_admin_adds_and_removes_a_rule() -> None:
    make_tenant("ml-team")
    mia = User.objects.create_user("mia")
    Identity.objects.create(user=mia, iss="i", sub="s", claims={"groups": ["/ml-team/owners"]})
    admin = browser("platform-admin")
    assert "There is no rule yet" in admin.get("/platform/groups/").content.decode()
    form = {"claim": "groups", "match": "exact", "value": "ml-team", "tenant": "ml-team", "role": "owner"}
    wrong = admin.post("/platform/groups/", form)
    assert wrong.status_code == 422
    assert "Give the group with its path" in wrong.content.decode()
    assert admin.post("/platform/groups/", form | {"value": "/ml-team", "match": "prefix"}).status_code == 303
    page = admin.get("/platform/groups/").content.decode()
    assert "/platform/people/mia/" in page
    again = admin.post("/platform/groups/", form | {"value": "/ml-team", "match": "prefix"})
    assert "There is a rule for this value already" in again.content.decode()
    person = admin.get("/platform/people/mia/").content.decode()
    assert "at the next sign-in" in person
    assert admin.get("/platform/people/nobody/").status_code == 404
    mapping = GroupMapping.objects.get()
    assert admin.post(f"/platform/groups/{mapping.pk}/remove").status_code == 303
    assert not GroupMapping.objects.exists()


def test_others_read_or_find_nothing() -> None:
    mapping = mapping_add(claim="groups", value="/x", tenant=make_tenant(), role="owner", actor=ADMIN)
    viewer, nobody = browser("platform-viewer"), browser("")
    page = viewer.get("/platform/groups/").content.decode()
    assert "A new rule" not in page
    assert viewer.post("/platform/groups/", {"claim": "groups", "match": "exact", "value": "/y"}).status_code in (
        403,
        422,
    )
    assert viewer.post(f"/platform/groups/{mapping.pk}/remove").status_code == 403
    assert viewer.get("/platform/people/a-platform-viewer/").status_code == 403
    for address in ("/platform/groups/", "/platform/people/a-person/", "/api/v1/group-mappings"):
        assert nobody.get(address).status_code == 404
    assert GroupMapping.objects.count() == 1


def test_ones_own_page_tells_nothing_of_other_teams_rules() -> None:
    mapping_add(claim="groups", value="/secret-project", tenant=make_tenant("secret"), role="owner", actor=ADMIN)
    client = browser("", "mia")
    Member.objects.create(tenant=make_tenant("ml-team"), user=User.objects.get(username="mia"), role="viewer")
    page = client.get("/account/roles/").content.decode()
    assert "secret" not in page
    assert "ml-team" in page
    assert "added in the portal" in page


def test_the_api() -> None:
    make_tenant("ml-team")
    admin = browser("platform-admin")
    json = {"content_type": "application/json"}
    made = admin.post(
        "/api/v1/group-mappings", {"claim": "groups", "value": "/ml", "tenant": "ml-team", "role": "owner"}, **json
    )
    assert made.status_code == 201, made.content
    assert admin.get("/api/v1/group-mappings").json()["results"] == [made.json()]
    platform = {"claim": "realm_access.roles", "value": "admins", "platform_role": "platform-admin"}
    assert admin.post("/api/v1/group-mappings", platform, **json).status_code == 201
    for body, status in (
        (platform | {"claim": "organization", "value": "acme"}, 422),
        ({"claim": "groups", "value": "/ml", "tenant": "nope", "role": "owner"}, 422),
        ({"claim": "groups", "value": "/ml", "tenant": "ml-team", "role": "owner"}, 409),
        ({"claim": "groups"}, 422),
    ):
        assert admin.post("/api/v1/group-mappings", body, **json).status_code == status, body
    assert admin.delete(made["Location"]).status_code == 204
    assert admin.delete(made["Location"]).status_code == 404
    viewer = browser("platform-viewer")
    assert viewer.get("/api/v1/group-mappings").status_code == 200
    assert viewer.post("/api/v1/group-mappings", platform, **json).status_code == 403
