"""From groups to roles: added, changed, removed; by hand stays; absent is not empty; each change is audited."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction

from portal.accounts.models import User
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_VIEWER, Actor
from portal.kernel.models import AuditEvent
from portal.kernel.problems import Conflict, Forbidden, Invalid, NotFound
from portal.kernel.scoping import system_scope
from tenants.models import GroupGrant, GroupMapping, Member, Tenant
from tenants.selectors.mappings import claim_lines, mapping_lines
from tenants.services.group_roles import roles_sync
from tenants.services.mappings import mapping_add, mapping_remove
from tests.support.tenants import make_tenant

pytestmark = pytest.mark.django_db
ADMIN = Actor(kind="user", name="admin", platform_role=PLATFORM_ADMIN)
SIGN_IN = Actor.system("sign-in")


@pytest.fixture
def team() -> Tenant:
    return make_tenant("ml-team")


@pytest.fixture
def user() -> User:
    return User.objects.create_user("mia")


def rule(value: str, tenant: Tenant | None, role: str, **more: Any) -> GroupMapping:
    return mapping_add(claim=more.pop("claim", "groups"), value=value, tenant=tenant, role=role, actor=ADMIN, **more)


def sync(user: User, **claims: Any) -> dict[str, tuple[str, str]]:
    with transaction.atomic():
        roles_sync(user=User.objects.select_for_update().get(pk=user.pk), claims=claims, actor=SIGN_IN)
    return {
        slug: (role, source)
        for slug, role, source in Member.objects.filter(user=user).values_list("tenant__slug", "role", "source")
    }


def audited(verb: str) -> list[tuple[Any, Any, str]]:
    with system_scope("test"):
        rows = AuditEvent.objects.filter(verb=verb).order_by("id")
        return [(row.before, row.after, row.reason) for row in rows]


def test_the_best_of_several_rules_counts(user: User, team: Tenant) -> None:
    for value, role in (("/v", "viewer"), ("/f", "finance"), ("/d", "developer"), ("/o", "owner")):
        rule(value, team, role)
    seen = [
        sync(user, groups=list(groups))["ml-team"][0]
        for groups in (["/v"], ["/v", "/f"], ["/f", "/d"], ["/o", "/v"], ["/v"])
    ]
    assert seen == ["viewer", "finance", "developer", "owner", "viewer"]
    assert sync(user, groups=[]) == {}
    assert not GroupGrant.objects.exists()
    assert len(audited("member_set")) == 5
    assert audited("member_remove")[0][0] == {"role": "viewer"}


def test_absent_removes_nothing_and_empty_does(user: User, team: Tenant) -> None:
    rule("/o", team, "owner")
    assert sync(user, groups=["/o"]) == {"ml-team": ("owner", "idp")}
    assert sync(user) == {"ml-team": ("owner", "idp")}
    assert sync(user, groups=None) == {"ml-team": ("owner", "idp")}
    assert sync(user, groups={"odd": 1, "map": 2}) == {}, "a map is read by its keys"
    sync(user, groups=["/o"])
    assert sync(user, groups=7) == {"ml-team": ("owner", "idp")}
    assert sync(user, complete_claims=["groups"]) == {}, "the provider says that absent means none"


def test_an_absent_claim_keeps_what_it_gave_beside_one_that_is_there(user: User, team: Tenant) -> None:
    rule("/v", team, "viewer")
    rule("acme", team, "owner", claim="organization")
    assert sync(user, groups=["/v"], organization=["acme"])["ml-team"][0] == "owner"
    assert sync(user, groups=["/v"])["ml-team"][0] == "owner", "organization was left out"
    assert sync(user, groups=["/v"], organization=[])["ml-team"][0] == "viewer"


def test_two_organizations_are_two_memberships(user: User, team: Tenant) -> None:
    """keycloak#43635, #33556: the claim was dropped with two, came back as a list of maps."""
    other = make_tenant("team-vision")
    rule("acme", team, "developer", claim="organization")
    rule("umbrella", other, "viewer", claim="organization")
    both = {"ml-team": ("developer", "idp"), "team-vision": ("viewer", "idp")}
    assert sync(user, organization={"acme": {"id": "1"}, "umbrella": {"id": "2"}}) == both
    assert sync(user, organization=[{"acme": {}}, {"umbrella": {}}]) == both
    assert sync(user) == both
    assert sync(user, organization=["umbrella"]) == {"team-vision": ("viewer", "idp")}


def test_by_hand_stays(user: User, team: Tenant) -> None:
    rule("/o", team, "owner")
    Member.objects.create(tenant=team, user=user, role="viewer")
    assert sync(user, groups=["/o"]) == {"ml-team": ("viewer", "manual")}
    assert not GroupGrant.objects.get().in_force
    assert claim_lines(user.pk)[0].by_hand == "viewer"
    assert sync(user, groups=[]) == {"ml-team": ("viewer", "manual")}
    Member.objects.all().delete()
    assert sync(user, groups=["/o"]) == {"ml-team": ("owner", "idp")}
    assert GroupGrant.objects.get().in_force


def test_nothing_happens_twice(user: User, team: Tenant, django_assert_max_num_queries: Any) -> None:
    rule("/o", team, "owner")
    sync(user, groups=["/o"])
    with django_assert_max_num_queries(30):
        sync(user, groups=["/o"])
    assert len(audited("member_set")) == 1


def test_a_platform_role_by_hand_stays_and_one_of_a_claim_goes(user: User) -> None:
    mapping_add(claim="realm_access.roles", value="viewer", platform_role=PLATFORM_VIEWER, actor=ADMIN)
    by_hand = User.objects.create_user("root", platform_role=PLATFORM_ADMIN)
    for each in (user, by_hand):
        sync(each, realm_access={"roles": ["viewer"]})
    user.refresh_from_db()
    by_hand.refresh_from_db()
    assert (user.platform_role, by_hand.platform_role) == (PLATFORM_VIEWER, PLATFORM_ADMIN)
    for each in (user, by_hand):
        sync(each, realm_access={"roles": ["other"]})
    user.refresh_from_db()
    by_hand.refresh_from_db()
    assert (user.platform_role, by_hand.platform_role) == ("", PLATFORM_ADMIN)
    assert [row[:2] for row in audited("platform_role_set")] == [
        ({"platform_role": ""}, {"platform_role": PLATFORM_VIEWER}),
        ({"platform_role": PLATFORM_VIEWER}, {"platform_role": ""}),
    ]


def test_the_same_platform_role_by_hand_outlives_the_claim(user: User) -> None:
    mapping_add(claim="realm_access.roles", value="viewer", platform_role=PLATFORM_VIEWER, actor=ADMIN)
    User.objects.filter(pk=user.pk).update(platform_role=PLATFORM_VIEWER)
    sync(user, realm_access={"roles": ["viewer"]})
    sync(user, realm_access={"roles": []})
    user.refresh_from_db()
    assert user.platform_role == PLATFORM_VIEWER


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"platform_role": PLATFORM_ADMIN, "claim": "groups", "value": "/admins"}, "/claim"),
        ({"platform_role": PLATFORM_ADMIN, "claim": "organization", "value": "acme"}, "/claim"),
        ({"platform_role": PLATFORM_ADMIN, "claim": "realm_access.roles", "match": "prefix"}, "/claim"),
        ({"platform_role": "root", "claim": "realm_access.roles"}, "/platform_role"),
        ({"claim": "groups", "value": "owners", "role": "owner"}, "/value"),
        ({"claim": "groups", "value": "/", "match": "prefix", "role": "owner"}, "/value"),
        ({"claim": "", "role": "owner"}, "/claim"),
        ({"claim": "groups", "value": "", "role": "owner"}, "/value"),
        ({"claim": "groups", "value": "/a", "role": "king"}, "/role"),
        ({"claim": "groups", "value": "/a", "match": "like", "role": "owner"}, "/match"),
        ({"claim": "groups", "value": "/a"}, "/role"),
    ],
)
def test_rules_that_are_refused(team: Tenant, given: dict[str, Any], pointer: str) -> None:
    tenant = None if "platform_role" in given else team
    with pytest.raises(Invalid) as caught:
        mapping_add(**{"claim": "groups", "value": "x", **given}, tenant=tenant, actor=ADMIN)
    assert pointer in [error["pointer"] for error in caught.value.errors]


def test_a_rule_is_one_and_an_admins(team: Tenant) -> None:
    rule("/o", team, "owner")
    with pytest.raises(Conflict, match="owner in ml-team"):
        rule("/o", team, "viewer")
    rule("/o", team, "viewer", match="prefix")
    for actor in (Actor(kind="user", name="x"), Actor(kind="user", name="v", platform_role=PLATFORM_VIEWER)):
        with pytest.raises(Forbidden):
            mapping_add(claim="groups", value="/x", tenant=team, role="owner", actor=actor)
        with pytest.raises(Forbidden):
            mapping_remove(mapping_id=GroupMapping.objects.earliest("id").pk, actor=actor)


def test_removing_a_rule_takes_at_once_what_only_it_gave(user: User, team: Tenant) -> None:
    owner, viewer = rule("/o", team, "owner"), rule("/v", team, "viewer")
    sync(user, groups=["/o", "/v"])
    mapping_remove(mapping_id=owner.pk, actor=ADMIN)
    assert Member.objects.get().role == "viewer"
    mapping_remove(mapping_id=viewer.pk, actor=ADMIN)
    assert not Member.objects.exists()
    assert not GroupGrant.objects.exists()
    with pytest.raises(NotFound):
        mapping_remove(mapping_id=viewer.pk, actor=ADMIN)
    assert len(audited("group_mapping_remove")) == 2


def test_the_database_holds_a_rule_to_one_role(team: Tenant) -> None:
    from django.db import IntegrityError

    for wrong in (
        {"tenant": team, "role": "owner", "platform_role": PLATFORM_ADMIN},
        {"tenant": team},
        {"role": "owner"},
        {},
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            GroupMapping.objects.create(claim="groups", value="/x", created_by="test", **wrong)
    assert not connection.needs_rollback


def test_who_matches_is_told(user: User, team: Tenant) -> None:
    from portal.accounts.models import Identity

    rule("/o", team, "owner")
    Identity.objects.create(user=user, iss="i", sub="s", claims={"groups": ["/o"]})
    assert [(line.mapping.value, line.people) for line in mapping_lines()] == [("/o", ["mia"])]
