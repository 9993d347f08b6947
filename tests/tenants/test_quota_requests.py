"""Asking for another quota, and cards handed over and moved: the changes, their refusals, their audit."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from infra.models import Cluster, GPUType, NamespaceClaim
from infra.pod_devices import GPU
from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.clock import utcnow
from portal.kernel.models import AuditEvent
from portal.kernel.problems import Conflict, Forbidden, Invalid, NotFound
from portal.kernel.scoping import system_scope
from tenants.models import (
    AllotmentMove,
    GPUQuota,
    Member,
    QuotaAllotment,
    QuotaComment,
    QuotaRequest,
    Tenant,
    TenantNamespace,
)
from tenants.selectors.quota import quota_lines
from tenants.services.allotments import (
    QuotaExceeded,
    allotment_fix,
    allotment_require,
    allotments_confirmed,
    allotments_given_up,
    allotments_settle,
    quota_locked,
)
from tenants.services.moves import Spot, allotment_move
from tenants.services.profile_quotas import quota_profiles_set
from tenants.services.quota_requests import (
    quota_request_approve,
    quota_request_change,
    quota_request_comment,
    quota_request_create,
    quota_request_deny,
    quota_request_submit,
    quota_request_withdraw,
    quota_requests_tick,
)
from tenants.services.quotas import quota_set
from tests.support.fleet import make_node, make_pod, make_pool, make_type
from tests.tenants.factories import ADMIN, CARD, make_gpu_type, make_member, make_site, make_tenant, make_user

pytestmark = pytest.mark.django_db
State = QuotaRequest.State


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


@pytest.fixture
def owner(tenant: Tenant) -> Actor:
    return make_member(tenant, "ml-owner", Member.Role.OWNER)


def asked(tenant: Tenant, owner: Actor, limit: int = 8, *, submit: bool = True, **more: object) -> QuotaRequest:
    return quota_request_create(
        tenant=tenant, gpu_type=make_gpu_type(), limit=limit * CARD, reason="A larger model.", submit=submit,
        actor=owner, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def limit_of(tenant: Tenant) -> int | None:
    with system_scope("test"):
        return GPUQuota.objects.filter(tenant=tenant).values_list("limit", flat=True).first()


def state_of(row: QuotaRequest) -> str:
    with system_scope("test"):
        return QuotaRequest.objects.get(pk=row.pk).state


def verbs() -> list[str]:
    with system_scope("test"):
        return list(
            AuditEvent.objects.filter(object_kind="quota-request").order_by("id").values_list("verb", flat=True)
        )


def comments(row: QuotaRequest) -> list[str]:
    with system_scope("test"):
        return list(QuotaComment.objects.filter(request=row).order_by("id").values_list("text", flat=True))


# --- requests ------------------------------------------------------------------------------------------------------


def test_from_draft_to_a_quota_that_holds(tenant, owner):
    row = asked(tenant, owner, submit=False)
    quota_request_change(tenant=tenant, request_id=row.pk, limit=6 * CARD, guaranteed=2 * CARD, actor=owner)
    quota_request_submit(tenant=tenant, request_id=row.pk, actor=owner)
    quota_request_comment(tenant=tenant, request_id=row.pk, text="Six will do.", actor=owner)
    assert limit_of(tenant) is None
    quota_request_approve(tenant=tenant, request_id=row.pk, comment="From today on.", actor=ADMIN)
    with system_scope("test"):
        quota = GPUQuota.objects.get()
        assert (quota.limit, quota.guaranteed) == (6 * CARD, 2 * CARD)
    assert state_of(row) == State.APPROVED
    assert comments(row) == ["Six will do.", "From today on."]
    assert verbs() == [f"quota_request_{verb}" for verb in ("create", "change", "submit", "approve")]


def test_a_draft_is_not_decided_and_what_is_decided_stays(tenant, owner):
    row = asked(tenant, owner, submit=False)
    with pytest.raises(Conflict, match="draft"):
        quota_request_approve(tenant=tenant, request_id=row.pk, actor=ADMIN)
    quota_request_submit(tenant=tenant, request_id=row.pk, actor=owner)
    with pytest.raises(Conflict, match="submitted"):
        quota_request_change(tenant=tenant, request_id=row.pk, limit=0, actor=owner)
    quota_request_deny(tenant=tenant, request_id=row.pk, comment="Not this year.", actor=ADMIN)
    for change in (quota_request_approve, quota_request_withdraw):
        with pytest.raises(Conflict, match="denied"):
            change(tenant=tenant, request_id=row.pk, actor=ADMIN)
    assert limit_of(tenant) is None


def test_a_denial_says_why(tenant, owner):
    row = asked(tenant, owner)
    with pytest.raises(Invalid):
        quota_request_deny(tenant=tenant, request_id=row.pk, comment=" ", actor=ADMIN)
    assert state_of(row) == State.SUBMITTED


def test_nobody_decides_what_they_had_a_hand_in_whatever_their_roles(tenant):
    user = make_user("both", PLATFORM_ADMIN)
    Member.objects.create(tenant=tenant, user=user, role=Member.Role.OWNER)
    as_owner = Actor(kind="user", name="both", user_id=user.pk)
    as_admin = replace(as_owner, platform_role=PLATFORM_ADMIN)
    as_token = replace(
        as_admin,
        kind="token",
        name="both (token ci)",
        token_id=uuid4(),
        scopes=frozenset({"read", "write", "platform"}),
    )
    written = asked(tenant, as_owner)
    other = make_member(tenant, "second-owner", Member.Role.OWNER)
    submitted = asked(tenant, other, submit=False)
    quota_request_submit(tenant=tenant, request_id=submitted.pk, actor=as_owner)
    changed = asked(tenant, other, submit=False)
    quota_request_change(tenant=tenant, request_id=changed.pk, limit=CARD, actor=as_token)
    quota_request_submit(tenant=tenant, request_id=changed.pk, actor=other)
    for row in (written, submitted, changed):
        for actor in (as_admin, as_token):
            with pytest.raises(Forbidden, match="another platform-admin"):
                quota_request_approve(tenant=tenant, request_id=row.pk, actor=actor)
            with pytest.raises(Forbidden, match="another platform-admin"):
                quota_request_deny(tenant=tenant, request_id=row.pk, comment="No.", actor=actor)
    assert limit_of(tenant) is None
    with pytest.raises(Forbidden, match="person"):
        quota_request_approve(tenant=tenant, request_id=written.pk, actor=Actor.system("anything"))
    quota_request_approve(tenant=tenant, request_id=written.pk, actor=ADMIN)


@pytest.mark.parametrize("role", [Member.Role.DEVELOPER, Member.Role.VIEWER, Member.Role.FINANCE])
def test_only_owners_ask_and_only_platform_admins_decide(tenant, owner, role):
    member = make_member(tenant, f"a-{role}", role)
    with pytest.raises(Forbidden, match=r"quota\.request"):
        asked(tenant, member)
    row = asked(tenant, owner)
    for actor in (member, owner):
        with pytest.raises(Forbidden):
            quota_request_approve(tenant=tenant, request_id=row.pk, actor=actor)
    with pytest.raises(Forbidden):
        quota_request_withdraw(tenant=tenant, request_id=row.pk, actor=member)


def test_another_tenants_request_is_not_there(tenant, owner):
    other = make_tenant("team-vision")
    row = asked(other, make_member(other, "v-owner", Member.Role.OWNER))
    for change in (quota_request_submit, quota_request_withdraw):
        with pytest.raises(NotFound):
            change(tenant=tenant, request_id=row.pk, actor=owner)
    with pytest.raises(NotFound):
        quota_request_comment(tenant=tenant, request_id=row.pk, text="Hm.", actor=owner)


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"limit": -1}, "/limit"),
        ({"limit": CARD, "guaranteed": 2 * CARD}, "/guaranteed"),
        ({"limit": CARD, "reason": " "}, "/reason"),
        ({"limit": CARD, "until": utcnow() - timedelta(days=1)}, "/until"),
        ({"limit": CARD, "starts_at": utcnow() + timedelta(days=2), "until": utcnow() + timedelta(days=1)}, "/until"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_a_pointer(tenant, owner, values, pointer):
    with pytest.raises(Invalid) as caught:
        quota_request_create(
            tenant=tenant, gpu_type=make_gpu_type(), actor=owner, **{"reason": "A larger model.", **values}
        )
    assert [error["pointer"] for error in caught.value.errors] == [pointer]


def test_a_time_box_begins_and_the_former_quota_comes_back(tenant, owner):
    quota_set(tenant=tenant, gpu_type=make_gpu_type(), limit=4 * CARD, guaranteed=CARD, actor=ADMIN)
    now = utcnow()
    row = asked(tenant, owner, 8, starts_at=now + timedelta(hours=1), until=now + timedelta(hours=3))
    quota_request_approve(tenant=tenant, request_id=row.pk, actor=ADMIN)
    assert limit_of(tenant) == 4 * CARD
    assert quota_requests_tick(now + timedelta(minutes=59)) == 0
    assert quota_requests_tick(now + timedelta(hours=1)) == 1
    assert limit_of(tenant) == 8 * CARD
    assert quota_requests_tick(now + timedelta(hours=2)) == 0
    assert quota_requests_tick(now + timedelta(hours=3)) == 1
    with system_scope("test"):
        quota = GPUQuota.objects.get()
        assert (quota.limit, quota.guaranteed) == (4 * CARD, CARD)
    assert state_of(row) == State.EXPIRED
    assert "former quota is back: limit 4" in comments(row)[-1]
    assert quota_requests_tick(now + timedelta(hours=4)) == 0


def test_a_quota_that_was_changed_meanwhile_is_left_alone(tenant, owner):
    now = utcnow()
    row = asked(tenant, owner, 8, until=now + timedelta(hours=1))
    quota_request_approve(tenant=tenant, request_id=row.pk, actor=ADMIN)
    quota_set(tenant=tenant, gpu_type=make_gpu_type(), limit=5 * CARD, actor=ADMIN)
    quota_requests_tick(now + timedelta(hours=1))
    assert (limit_of(tenant), state_of(row)) == (5 * CARD, State.EXPIRED)
    assert "that stays" in comments(row)[-1]


def test_a_time_box_ends_though_the_slices_were_limited_meanwhile(tenant, owner):
    """A quota on MIG profiles is another figure: it stays, and the limit goes back all the same."""
    quota_set(tenant=tenant, gpu_type=make_gpu_type(), limit=2 * CARD, actor=ADMIN)
    GPUType.objects.update(compute_slices=7)
    row = asked(tenant, owner, 8, until=utcnow() + timedelta(hours=1))
    quota_request_approve(tenant=tenant, request_id=row.pk, actor=ADMIN)
    quota_profiles_set(tenant=tenant, gpu_type=make_gpu_type(), profiles={"1g.10gb": 3}, actor=ADMIN)
    quota_requests_tick(utcnow() + timedelta(hours=2))
    assert (limit_of(tenant), state_of(row)) == (2 * CARD, State.EXPIRED)
    with system_scope("test"):
        assert GPUQuota.objects.get().profiles == {"1g.10gb": 3}


def test_what_nobody_decided_expires_and_is_not_granted_late(tenant, owner):
    now = utcnow()
    row = asked(tenant, owner, until=now + timedelta(hours=1))
    quota_requests_tick(now + timedelta(hours=1))
    assert state_of(row) == State.EXPIRED
    with pytest.raises(Conflict, match="expired"):
        quota_request_approve(tenant=tenant, request_id=row.pk, actor=ADMIN)


def test_a_second_grant_waits_for_the_end_of_a_time_box(tenant, owner):
    first = asked(tenant, owner, 8, until=utcnow() + timedelta(hours=1))
    quota_request_approve(tenant=tenant, request_id=first.pk, actor=ADMIN)
    second = asked(tenant, owner, 9)
    with pytest.raises(Conflict, match="holds until"):
        quota_request_approve(tenant=tenant, request_id=second.pk, actor=ADMIN)
    assert (state_of(second), limit_of(tenant)) == (State.SUBMITTED, 8 * CARD)


# --- parts that are handed over, and moves ---------------------------------------------------------------------------


VC = "vc-ml-team"


def cluster_of(slug: str) -> Cluster:
    return Cluster.objects.create(
        slug=slug, name=slug, site=make_site(), mode=Cluster.Mode.MANAGE, api_server="https://127.0.0.1:1",
        kubeconfig_ciphertext=b"none", identity=f"identity-{slug}",
    )  # fmt: skip


@pytest.fixture
def east() -> Cluster:
    return cluster_of("east")


@pytest.fixture
def west() -> Cluster:
    return cluster_of("west")


@pytest.fixture
def eight(tenant: Tenant, east: Cluster, west: Cluster) -> GPUQuota:
    """A quota of 8 and a namespace on each of two clusters."""
    quota = quota_set(tenant=tenant, gpu_type=make_gpu_type(), limit=8 * CARD, actor=ADMIN).quota
    with system_scope("test"):
        for cluster in (east, west):
            TenantNamespace.objects.create(tenant=tenant, cluster=cluster, name=VC)
    return quota


def fix(quota: GPUQuota, cluster: Cluster, amount: int) -> QuotaAllotment:
    with system_scope("test"):
        locked = quota_locked(quota.tenant_id, [quota.gpu_type_id])[quota.gpu_type_id]
        return allotment_fix(quota=locked, cluster=cluster, namespace=VC, amount=amount * CARD)


def part_of(cluster: Cluster) -> QuotaAllotment:
    with system_scope("test"):
        return QuotaAllotment.objects.get(cluster=cluster, namespace=VC)


def confirm(quota: GPUQuota, cluster: Cluster) -> bool:
    with system_scope("test"):
        part = QuotaAllotment.objects.get(cluster=cluster, namespace=VC)
        return allotments_confirmed(
            tenant_id=quota.tenant_id, cluster_id=cluster.pk, namespace=VC, targets={part.pk: part.target}
        )


def move(tenant: Tenant, actor: Actor, source: Cluster | None, goal: Cluster | None, amount: int) -> AllotmentMove:
    return allotment_move(
        tenant=tenant, gpu_type=make_gpu_type(), source=Spot(source, VC) if source else None,
        goal=Spot(goal, VC) if goal else None, amount=amount * CARD, actor=actor,
    )  # fmt: skip


def line(tenant: Tenant) -> tuple[int, int]:
    with system_scope("test"):
        (one,) = quota_lines(tenant)
        return one.admitted // CARD, one.left // CARD


def test_what_was_handed_over_counts_used_or_not_and_stays_when_parts_settle(tenant, eight, east):
    fix(eight, east, 3)
    assert line(tenant) == (3, 5)
    with system_scope("test"):
        allotments_settle(tenant_id=tenant.pk, cluster_id=east.pk)
    assert (part_of(east).target, part_of(east).fixed) == (3 * CARD, True)


def test_more_than_the_limit_is_not_handed_over(eight, east, west):
    fix(eight, east, 6)
    with pytest.raises(QuotaExceeded, match=r"6 of 8 cards are taken, 3 more"):
        fix(eight, west, 3)
    fix(eight, west, 2)


def test_what_is_given_back_can_be_had_once_the_cluster_has_confirmed_it(eight, east, west):
    fix(eight, east, 8)
    fix(eight, east, 0)
    with pytest.raises(QuotaExceeded):
        fix(eight, west, 1)
    assert confirm(eight, east)
    fix(eight, west, 8)
    assert not part_of(east).fixed


def test_a_deployments_part_and_a_handed_over_one_share_the_limit(eight, east, west):
    fix(eight, east, 5)
    with system_scope("test"):
        quota = quota_locked(eight.tenant_id, [eight.gpu_type_id])[eight.gpu_type_id]
        with pytest.raises(QuotaExceeded):
            allotment_require(quota=quota, cluster=west, namespace="t-ml-team", needed=4 * CARD)
        allotment_require(quota=quota, cluster=west, namespace="t-ml-team", needed=3 * CARD)


def test_a_move_shrinks_waits_and_grows(tenant, owner, eight, east, west):
    move(tenant, owner, None, east, 8)
    moved = move(tenant, owner, east, west, 3)
    assert (moved.state, part_of(east).target, part_of(east).amount) == ("pending", 5 * CARD, 8 * CARD)
    with system_scope("test"):
        assert QuotaAllotment.objects.get(cluster=west).amount == 0
    assert line(tenant) == (8, 0)
    confirm(eight, east)
    assert (part_of(east).amount, part_of(west).amount, part_of(west).handed) == (5 * CARD, 3 * CARD, 3 * CARD)
    with system_scope("test"):
        assert AllotmentMove.objects.get(pk=moved.pk).state == "done"
    assert line(tenant) == (8, 0)


def test_pods_of_whose_end_the_watch_has_not_told_yet_hold_up_no_move(tenant, owner, eight, east, west):
    """The cluster itself said that no more is used there."""
    node = make_node(make_pool(cluster=east, gpu_type=eight.gpu_type), cards=8)
    NamespaceClaim.objects.create(
        cluster=east, namespace=VC, tenant_id=tenant.pk, valid_from=utcnow() - timedelta(days=1), created_by="test"
    )
    move(tenant, owner, None, east, 8)
    for _ in range(8):
        make_pod(node, namespace=VC, requests={GPU: "1"})
    moved = move(tenant, owner, east, west, 3)
    confirm(eight, east)
    with system_scope("test"):
        assert AllotmentMove.objects.get(pk=moved.pk).state == "done"
    assert (part_of(east).amount, part_of(west).amount) == (5 * CARD, 3 * CARD)


def test_a_stale_confirmation_finishes_no_move(tenant, owner, eight, east, west):
    move(tenant, owner, None, east, 8)
    before = part_of(east)
    moved = move(tenant, owner, east, west, 3)
    with system_scope("test"):
        allotments_confirmed(tenant_id=tenant.pk, cluster_id=east.pk, namespace=VC, targets={before.pk: before.target})
        assert AllotmentMove.objects.get(pk=moved.pk).state == "pending"
    assert part_of(west).amount == 0


def test_a_move_of_more_than_there_is_is_refused_with_the_numbers(tenant, owner, eight, east, west):
    move(tenant, owner, None, east, 4)
    move(tenant, owner, east, west, 3)
    with pytest.raises(Conflict, match="1 cards of h100-80gb were handed over"):
        move(tenant, owner, east, west, 2)
    with pytest.raises(Conflict, match="4 of 8 cards are taken"):
        move(tenant, owner, None, west, 5)


def test_cards_go_only_where_there_are_such_cards(tenant, owner, eight, east):
    make_pool(cluster=east, gpu_type=make_type("nvidia-l40s"))
    with pytest.raises(Invalid, match="has no h100-80gb, only nvidia-l40s"):
        move(tenant, owner, None, east, 1)
    with system_scope("test"):
        assert [part.amount for part in QuotaAllotment.objects.all()] in ([], [0])


def test_a_lowered_limit_lets_the_source_go_and_the_goal_not_grow(tenant, owner, eight, east, west):
    move(tenant, owner, None, east, 8)
    moved = move(tenant, owner, east, west, 3)
    quota_set(tenant=tenant, gpu_type=make_gpu_type(), limit=6 * CARD, actor=ADMIN)
    confirm(eight, east)
    with system_scope("test"):
        failed = AllotmentMove.objects.get(pk=moved.pk)
    assert failed.state == "failed"
    assert "stays free" in failed.message
    assert (part_of(east).amount, part_of(west).amount) == (5 * CARD, 0)
    assert line(tenant) == (5, 1)


def test_moves_are_for_owners_in_whole_cards_between_namespaces_that_exist(tenant, owner, eight, east, west):
    with pytest.raises(Forbidden):
        move(tenant, make_member(tenant, "dev"), None, east, 1)
    for amount in (0, -CARD, CARD // 2):
        with pytest.raises(Invalid, match="whole number"):
            allotment_move(
                tenant=tenant, gpu_type=make_gpu_type(), source=None, goal=Spot(east, VC), amount=amount, actor=owner
            )
    with pytest.raises(Invalid, match="has no namespace t-other on east"):
        allotment_move(
            tenant=tenant, gpu_type=make_gpu_type(), source=None, goal=Spot(east, "t-other"), amount=CARD, actor=owner
        )
    for both in (None, east):
        with pytest.raises(Invalid):
            move(tenant, owner, both, both, 1)


def test_of_an_abandoned_cluster_what_was_handed_over_is_free_and_what_was_leaving_arrives(
    tenant, owner, eight, east, west
):
    move(tenant, owner, None, east, 8)
    move(tenant, owner, east, west, 3)
    with system_scope("test"):
        allotments_given_up(tenant_id=tenant.pk, cluster_id=east.pk, namespace=VC)
    assert (part_of(east).amount, part_of(east).handed, part_of(west).amount) == (0, 0, 3 * CARD)
    assert line(tenant) == (3, 5)


@pytest.mark.parametrize("gone", ["deleted", "deleting", "abandoned", "observed"])
def test_what_leaves_for_a_namespace_that_is_gone_meanwhile_stays_free(tenant, owner, eight, east, west, gone):
    """A tenant cluster is deleted while cards are on their way to it: nobody could ever take them back from there."""
    fix(eight, east, 6)
    moved = move(tenant, owner, east, west, 4)
    with system_scope("test"):
        space = TenantNamespace.objects.filter(tenant=tenant, cluster=west)
        if gone == "deleted":
            allotments_given_up(tenant_id=tenant.pk, cluster_id=west.pk, namespace=VC)
            space.delete()
        elif gone == "deleting":
            space.update(deleting_at=utcnow())
        elif gone == "abandoned":
            Cluster.objects.filter(pk=west.pk).update(abandoned_at=utcnow())
        else:
            Cluster.objects.filter(pk=west.pk).update(mode=Cluster.Mode.OBSERVE)
    confirm(eight, east)
    with system_scope("test"):
        moved.refresh_from_db()
        assert (moved.state, part_of(west).handed) == (AllotmentMove.State.FAILED, 0)
    assert "stays free" in moved.message
    assert line(tenant) == (2, 6)


def test_a_part_of_another_type_that_comes_meanwhile_is_left_to_who_locks_its_quota(tenant, owner, eight, east):
    """Which quotas to lock is asked before they are locked."""
    fix(eight, east, 1)
    other = quota_set(tenant=tenant, gpu_type=make_gpu_type("l40s"), limit=CARD, actor=ADMIN).quota
    with system_scope("test"):
        QuotaAllotment.objects.create(tenant=tenant, quota=other, cluster=east, namespace=VC)
        found = quota_locked(tenant.pk, [eight.gpu_type_id])

    def only_the_first(*_: object) -> dict[object, GPUQuota]:
        return dict(found)

    with pytest.MonkeyPatch.context() as patch, system_scope("test"):
        patch.setattr("tenants.services.allotments.quota_locked", only_the_first)
        allotments_confirmed(tenant_id=tenant.pk, cluster_id=east.pk, namespace=VC, targets={})
