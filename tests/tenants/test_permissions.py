"""Roles by permissions, and what an outsider is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from portal.kernel.actors import PLATFORM_FINANCE, PLATFORM_VIEWER, Actor
from portal.kernel.problems import Forbidden, NotFound
from tenants.models import Member, Tenant
from tenants.permissions import PLATFORM_ONLY, Perm, may, permissions_of, require, tenant_for, tenants_of
from tests.tenants.factories import ADMIN, make_member, make_tenant, make_user

pytestmark = pytest.mark.django_db

IN_TENANT = [perm for perm in Perm if perm not in PLATFORM_ONLY]
EXPECTED = {
    Member.Role.OWNER: set(IN_TENANT),
    Member.Role.DEVELOPER: {Perm.TENANT_READ, Perm.DEPLOYMENT_WRITE, Perm.BILL_READ, Perm.CLUSTER_USE},
    Member.Role.VIEWER: {Perm.TENANT_READ, Perm.CLUSTER_USE},
    Member.Role.FINANCE: {Perm.TENANT_READ, Perm.BILL_READ},
}


@pytest.mark.parametrize("role", list(Member.Role))
def test_each_role_holds_exactly_its_permissions(role):
    tenant = make_tenant()
    actor = make_member(tenant, f"a-{role}", role)
    assert set(permissions_of(actor, tenant)) == EXPECTED[role]
    assert not any(may(actor, perm) for perm in PLATFORM_ONLY)


def test_an_outsider_is_told_the_same_as_for_a_tenant_that_does_not_exist():
    make_tenant("ml-team")
    outsider = make_member(make_tenant("team-vision"), "outsider")
    answers = []
    for slug in ("ml-team", "no-such-team"):
        with pytest.raises(NotFound) as caught:
            tenant_for(outsider, slug)
        answers.append(caught.value.detail)
    assert answers[0] == answers[1]


def test_a_member_without_the_permission_is_refused_by_name_and_the_refusal_can_be_audited():
    tenant = make_tenant()
    viewer = make_member(tenant, "viewer", Member.Role.VIEWER)
    with pytest.raises(Forbidden, match=r"deployment\.write in tenant ml-team") as caught:
        require(viewer, Perm.DEPLOYMENT_WRITE, tenant)
    assert caught.value.refusal is not None
    assert caught.value.refusal["tenant_id"] == tenant.pk


@pytest.mark.parametrize("role", [PLATFORM_VIEWER, PLATFORM_FINANCE])
def test_reading_platform_roles_can_change_nothing_of_a_tenant(role):
    tenant = make_tenant()
    user = make_user(role, role)
    actor = Actor(kind="user", name=role, user_id=user.pk, platform_role=role)
    held = permissions_of(actor, tenant) | permissions_of(actor, None)
    writes = {Perm.DEPLOYMENT_WRITE, Perm.MEMBER_MANAGE, Perm.FLEET_WRITE, Perm.TENANT_MANAGE}
    assert not held & writes


def test_a_token_can_do_what_its_person_can_within_its_scopes_and_tenant():
    tenant, other = make_tenant("ml-team"), make_tenant("team-vision")
    owner = make_member(tenant, "owner", Member.Role.OWNER)
    Member.objects.create(tenant=other, user_id=owner.user_id, role=Member.Role.OWNER)
    token = replace(owner, kind="token", tenant_id=tenant.pk, scopes=frozenset({"read"}))
    assert may(token, Perm.BILL_READ, tenant)
    assert not may(token, Perm.DEPLOYMENT_WRITE, tenant)
    assert may(replace(token, scopes=frozenset({"read", "write"})), Perm.DEPLOYMENT_WRITE, tenant)
    assert not may(replace(token, scopes=frozenset()), Perm.TENANT_READ, tenant)
    with pytest.raises(NotFound):
        tenant_for(token, "team-vision")
    assert [each.slug for each in tenants_of(token)] == ["ml-team"]


def test_a_suspended_tenant_is_read_only_for_its_members():
    tenant = make_tenant()
    owner = make_member(tenant, "owner", Member.Role.OWNER)
    Tenant.objects.filter(pk=tenant.pk).update(state=Tenant.State.SUSPENDED)
    tenant.refresh_from_db()
    assert may(owner, Perm.BILL_READ, tenant)
    assert not may(owner, Perm.DEPLOYMENT_WRITE, tenant)
    assert may(ADMIN, Perm.DEPLOYMENT_WRITE, tenant)
