"""Tenant clusters: asking, handing cards over, versions, who may what, ways in, and the rows after a deletion."""

from __future__ import annotations

from typing import Any, cast
from uuid import uuid4

import pytest
import yaml

from infra.models import Cluster, GPUType, NamespaceClaim, NodePool
from portal.accounts.models import Identity, User
from portal.kernel import workqueue
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow
from portal.kernel.models import AuditEvent, WorkItem
from portal.kernel.problems import Conflict, Forbidden, Invalid, NotFound, TooManyRequests
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.models import GroupMapping, Member, QuotaAllotment, Robot, Tenant, TenantCluster, TenantNamespace
from tenants.reconcilers import tenantcluster as reconciler
from tenants.selectors.quota import quota_lines
from tenants.selectors.tenantclusters import access_of, hosts_for, tenant_cluster_on
from tenants.services import tenantcluster_access
from tenants.services.members import member_remove, member_set
from tenants.services.tenantcluster_access import (
    robot_create,
    robot_delete,
    robot_token,
    tenant_cluster_kubeconfig,
)
from tenants.services.tenantcluster_state import tenant_cluster_ended
from tenants.services.tenantclusters import (
    tenant_cluster_delete,
    tenant_cluster_pause,
    tenant_cluster_request,
    tenant_cluster_resume,
    tenant_cluster_upgrade,
)
from tenants.services.tenants import tenant_set_state
from tenants.services.zones import pool_keep, tenant_set_zone
from tenants.tenantclusters.access import Access, Subjects, access_manifests, editors_manifest
from tenants.tenantclusters.profile import Version, next_versions, why_not
from tenants.tenantclusters.provisioner import Wish
from tests.support.fleet import make_cluster, make_pool, make_type
from tests.support.tenants import CARD, give_quota, make_tenant
from tests.tenants.factories import ADMIN, make_member

pytestmark = pytest.mark.django_db

H100 = "nvidia-h100-80gb-hbm3"
VERSIONS = ["1.34.0=0.34.7", "1.35.0=0.35.3", "1.36.0=0.36.1"]
ISSUER = "https://sso.example/realms/ai-factory"


@pytest.fixture(autouse=True)
def _set(settings: Any) -> None:
    settings.AIF_TENANT_CLUSTER_ENDPOINT = "https://{tenant}.{cluster}.k8s.example"
    settings.AIF_VCLUSTER_VERSIONS = VERSIONS
    settings.AIF_OIDC_ISSUER = ISSUER


@pytest.fixture
def tenant() -> Tenant:
    row = make_tenant()
    give_quota(row, make_type(), 8)
    return row


@pytest.fixture
def host() -> Cluster:
    return make_cluster("alpha")


def ask(tenant: Tenant, host: Cluster, cards: int = 4, **values: Any) -> TenantCluster:
    given = {"allotments": {H100: cards * CARD}, "actor": ADMIN} | values
    return tenant_cluster_request(tenant=tenant, cluster=host, **given)


def runs(row: TenantCluster, **values: Any) -> TenantCluster:
    """As if the reconciler had seen it Ready."""
    seen = {"phase": "Ready", "running_chart": row.chart_version, "ca_pem": "-----BEGIN CERTIFICATE-----\n"}
    with system_scope("test"):
        TenantCluster.objects.filter(pk=row.pk).update(**(seen | values))
        return TenantCluster.objects.select_related("tenant", "cluster").get(pk=row.pk)


# --- asking ------------------------------------------------------------------------------------------------------


def test_a_request_hands_the_cards_over_claims_the_namespace_and_is_audited(tenant: Tenant, host: Cluster):
    row = ask(tenant, host)
    assert (row.name, row.namespace, row.endpoint) == ("ml-team", "vc-ml-team", "https://ml-team.alpha.k8s.example")
    assert (row.kubernetes_version, row.chart_version, row.phase) == ("1.36.0", "0.36.1", "Pending")
    with tenant_scope(tenant.pk):
        part = QuotaAllotment.objects.get(namespace="vc-ml-team")
        assert (part.fixed, part.amount) == (True, 4 * CARD)
        assert TenantNamespace.objects.get(name="vc-ml-team").purpose == "tenant-cluster"
        (line,) = quota_lines(tenant)
        assert line.admitted == 4 * CARD
        event = AuditEvent.objects.get(verb="tenant_cluster_request")
    assert event.after["allotments"] == {H100: "4"}
    assert NamespaceClaim.objects.filter(namespace="vc-ml-team", tenant_id=tenant.pk, valid_to=None).exists()
    assert set(WorkItem.objects.values_list("kind", flat=True)) >= {"namespace", "tenantcluster"}


def test_more_than_the_quota_is_refused_and_leaves_nothing(tenant: Tenant, host: Cluster):
    with pytest.raises(Conflict, match="is full") as refused:
        ask(tenant, host, 9)
    assert refused.value.code == "QuotaExceeded"
    with system_scope("test"):
        assert not TenantCluster.objects.exists()
        assert not TenantNamespace.objects.exists()
    assert not NamespaceClaim.objects.exists()


def test_eight_cards_are_handed_over_once_over_all_hosts(tenant: Tenant, host: Cluster):
    ask(tenant, host, 5)
    with pytest.raises(Conflict, match="is full"):
        ask(tenant, make_cluster("beta"), 4)
    ask(tenant, Cluster.objects.get(slug="beta"), 3)


def test_beside_a_pool_that_is_kept_for_another_zone_there_is_no_tenant_cluster(tenant: Tenant, host: Cluster):
    """Its pods are placed by the host's scheduler, which knows nothing of kept pools."""
    pool, theirs = make_pool(cluster=host, name="h100"), make_tenant("team-vision").zone
    pool_keep(pool=pool, zone=theirs, actor=ADMIN)
    with pytest.raises(Conflict, match=r"kept for another zone \(alpha/h100\)"):
        ask(tenant, host)
    pool_keep(pool=pool, zone=tenant.zone, actor=ADMIN)
    row = ask(tenant, host)
    # And the other way round, as long as it is there.
    with pytest.raises(Conflict, match=r"tenants of other zones have tenant clusters there.*: ml-team"):
        pool_keep(pool=pool, zone=theirs, actor=ADMIN)
    with pytest.raises(Conflict, match=r"has a tenant cluster beside pools, .*: alpha/h100"):
        tenant_set_zone(tenant=tenant, zone=theirs, actor=ADMIN)
    assert NodePool.objects.get().zone_id == tenant.zone_id
    with system_scope("test"):
        TenantCluster.objects.filter(pk=row.pk).update(deleted_at=utcnow())
    pool_keep(pool=pool, zone=theirs, actor=ADMIN)


def test_two_tenant_clusters_have_no_address_in_common(tenant: Tenant, host: Cluster, settings: Any):
    settings.AIF_TENANT_CLUSTER_ENDPOINT = "https://{tenant}-{cluster}.k8s.example"
    other = make_tenant("ml")
    give_quota(other, GPUType.objects.get(), 8)
    ask(tenant, host)
    with pytest.raises(Conflict, match=r"https://ml-team-alpha.k8s.example is another tenant cluster's") as refused:
        ask(other, make_cluster("team-alpha"))
    assert tenant.slug not in str(refused.value).replace("https://ml-team-alpha", "")
    with system_scope("test"):
        TenantCluster.objects.update(deleted_at=utcnow())
    ask(other, Cluster.objects.get(slug="team-alpha"))


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"allotments": {H100: CARD // 2}}, f"/allotments/{H100}"),
        ({"allotments": {H100: -CARD}}, f"/allotments/{H100}"),
        ({"allotments": {"no-such": CARD}}, "/allotments/no-such"),
        ({"version": "1.20.0"}, "/version"),
        ({"endpoint": "http://plain.example"}, "/endpoint"),
        ({"endpoint": "https://169.254.169.254"}, "/endpoint"),
        ({"endpoint": "https://a.example/path"}, "/endpoint"),
    ],
)
def test_bad_input_is_told_at_its_place(tenant: Tenant, host: Cluster, values: dict[str, Any], pointer: str):
    with pytest.raises(Invalid) as refused:
        ask(tenant, host, **values)
    assert [error["pointer"] for error in refused.value.errors] == [pointer]


def test_a_type_without_a_quota_is_refused(tenant: Tenant, host: Cluster):
    make_type("nvidia-l4")
    with pytest.raises(Invalid, match="no quota of nvidia-l4"):
        ask(tenant, host, allotments={"nvidia-l4": CARD})


def test_hosts_that_can_not_be(tenant: Tenant, host: Cluster, settings: Any):
    with pytest.raises(Conflict, match="only observed"):
        ask(tenant, make_cluster("seen", mode="observe"))
    with pytest.raises(Conflict, match="may not use site elsewhere"):
        ask(tenant, make_cluster("far", site="elsewhere"))
    with pytest.raises(Conflict, match="does not keep tenants apart yet: it lacks"):
        ask(tenant, make_cluster("open", isolation={}, isolation_said={}))
    make_pool(cluster=(other := make_cluster("other")), gpu_type=make_type("nvidia-l40s"))
    with pytest.raises(Invalid, match="Cluster other has no nvidia-h100-80gb-hbm3, only nvidia-l40s"):
        ask(tenant, other)
    settings.AIF_TENANT_CLUSTER_ENDPOINT = ""
    with pytest.raises(Conflict, match="No address for tenant clusters"):
        ask(tenant, host)
    assert ask(tenant, host, endpoint="https://10.0.0.1:6443").endpoint == "https://10.0.0.1:6443"
    with pytest.raises(Conflict, match="already"):
        ask(tenant, host, endpoint="https://10.0.0.1:6443")
    with tenant_scope(tenant.pk):
        assert "alpha" not in hosts_for(tenant).values_list("slug", flat=True)


def test_who_may_ask(tenant: Tenant, host: Cluster, settings: Any):
    owner = make_member(tenant, "ml-owner", Member.Role.OWNER)
    developer = make_member(tenant, "ml-developer", Member.Role.DEVELOPER)
    outsider = make_member(make_tenant("team-vision"), "stranger", Member.Role.OWNER)
    with pytest.raises(Forbidden, match="made and deleted by platform-admins"):
        ask(tenant, host, actor=owner)
    with pytest.raises(NotFound):
        ask(tenant, host, actor=outsider)
    settings.AIF_TENANT_CLUSTER_SELF_SERVICE = True
    with pytest.raises(Forbidden, match=r"cluster\.manage"):
        ask(tenant, host, actor=developer)
    with pytest.raises(Forbidden):  # only the platform names addresses: the portal speaks to them
        ask(tenant, host, actor=owner, endpoint="https://10.0.0.1:6443")
    assert ask(tenant, host, actor=owner).requested_by == "ml-owner"


# --- versions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "word"),
    [
        (Version("1.35.4", "0.35.3"), ""),
        (Version("1.35.0", "0.35.9"), ""),
        (Version("1.36.0", "0.36.1"), ""),
        (Version("1.37.0", "0.36.1"), "one at a time"),
        (Version("1.36.0", "0.37.0"), "one at a time"),
        (Version("1.34.0", "0.35.3"), "is older than"),
        (Version("1.36.0", "0.34.7"), "an older chart"),
        (Version("2.0.0", "0.35.3"), "one at a time"),
        (Version("1.35.0", "0.35.3"), "already"),
    ],
)
def test_upgrades_go_one_minor_at_a_time_and_never_back(wanted: Version, word: str):
    refusal = why_not(Version("1.35.0", "0.35.3"), wanted)
    assert (refusal == "") is (word == "")
    assert word in refusal


def test_only_what_is_next_is_offered():
    assert [one.kubernetes for one in next_versions("1.34.0", "0.34.7")] == ["1.35.0"]
    assert next_versions("1.36.0", "0.36.1") == []


def test_an_upgrade_is_a_new_generation_and_waits_for_the_one_before(tenant: Tenant, host: Cluster):
    row = runs(ask(tenant, host, version="1.34.0"))
    with pytest.raises(Invalid, match="more than one minor"):
        tenant_cluster_upgrade(row=row, version="1.36.0", actor=ADMIN)
    changed = tenant_cluster_upgrade(row=row, version="1.35.0", actor=ADMIN)
    assert (changed.kubernetes_version, changed.chart_version, changed.generation) == ("1.35.0", "0.35.3", 2)
    with pytest.raises(Conflict, match="does not run"):
        tenant_cluster_upgrade(row=changed, version="1.36.0", actor=ADMIN)


def test_pause_keeps_the_cards_and_stops_upgrades(tenant: Tenant, host: Cluster):
    row = runs(ask(tenant, host, version="1.34.0"))
    paused = tenant_cluster_pause(row=row, actor=ADMIN)
    assert (paused.desired, paused.generation) == ("paused", 2)
    assert tenant_cluster_pause(row=row, actor=ADMIN).generation == 2
    with pytest.raises(Conflict, match="Resume it first"):
        tenant_cluster_upgrade(row=row, version="1.35.0", actor=ADMIN)
    with tenant_scope(tenant.pk):
        assert QuotaAllotment.objects.get(namespace="vc-ml-team").amount == 4 * CARD
    assert tenant_cluster_resume(row=row, actor=ADMIN).desired == "running"


# --- deleting ----------------------------------------------------------------------------------------------------


def test_the_end_gives_back_what_it_held(tenant: Tenant, host: Cluster):
    row = runs(ask(tenant, host))
    robot_create(row=row, name="ci", role="edit", actor=ADMIN)
    gone = tenant_cluster_delete(row=row, actor=ADMIN)
    assert gone.phase == "Deleting"
    assert tenant_cluster_delete(row=row, actor=ADMIN).generation == gone.generation
    with pytest.raises(Conflict, match="is being deleted"):
        tenant_cluster_pause(row=row, actor=ADMIN)
    with tenant_scope(tenant.pk):
        assert quota_lines(tenant)[0].admitted == 4 * CARD  # until the host has nothing of it any more
    with system_scope("test"):
        tenant_cluster_ended(row.pk)
        assert quota_lines(tenant)[0].admitted == 0
        assert TenantCluster.objects.get(pk=row.pk).phase == "Deleted"
        assert not TenantNamespace.objects.exists()
        assert not Robot.objects.filter(deleted_at=None).exists()
    assert not NamespaceClaim.objects.filter(valid_to=None).exists()
    with tenant_scope(tenant.pk), pytest.raises(NotFound):
        tenant_cluster_on(tenant, "alpha")
    assert ask(tenant, host, 8).pk != row.pk


# --- ways in -----------------------------------------------------------------------------------------------------


def test_members_get_a_kubeconfig_without_a_secret_and_each_one_is_audited(tenant: Tenant, host: Cluster):
    row = runs(ask(tenant, host))
    viewer = make_member(tenant, "ml-viewer", Member.Role.VIEWER)
    config = yaml.safe_load(tenant_cluster_kubeconfig(row=row, actor=viewer))
    (user,) = config["users"]
    assert "--oidc-client-id=vc-ml-team" in user["user"]["exec"]["args"]
    assert config["clusters"][0]["cluster"]["server"] == row.endpoint
    with tenant_scope(tenant.pk):
        assert AuditEvent.objects.get(verb="tenant_cluster_kubeconfig").actor_label == "ml-viewer"


def test_who_gets_no_kubeconfig(tenant: Tenant, host: Cluster, settings: Any, monkeypatch: pytest.MonkeyPatch):
    row = runs(ask(tenant, host))
    owner = make_member(tenant, "ml-owner", Member.Role.OWNER)
    with pytest.raises(Forbidden, match=r"cluster\.use"):
        tenant_cluster_kubeconfig(row=row, actor=make_member(tenant, "ml-finance", Member.Role.FINANCE))
    with pytest.raises(NotFound):
        tenant_cluster_kubeconfig(row=row, actor=make_member(make_tenant("team-vision"), "stranger"))
    with pytest.raises(Conflict, match="has not answered yet"):
        tenant_cluster_kubeconfig(row=runs(row, ca_pem=""), actor=owner)
    row = runs(row)
    monkeypatch.setattr(tenantcluster_access, "MOST_A_MINUTE", 2)
    for _ in range(2):
        tenant_cluster_kubeconfig(row=row, actor=owner)
    with pytest.raises(TooManyRequests):
        tenant_cluster_kubeconfig(row=row, actor=owner)
    settings.AIF_OIDC_ISSUER = ""
    with pytest.raises(Conflict, match="no identity provider"):
        tenant_cluster_kubeconfig(row=row, actor=ADMIN)


def test_a_suspended_tenant_has_no_way_in(tenant: Tenant, host: Cluster):
    row = runs(ask(tenant, host))
    owner = make_member(tenant, "ml-owner", Member.Role.OWNER)
    Identity.objects.create(user_id=owner.user_id, iss=ISSUER, sub="sub-owner")
    robot = robot_create(row=row, name="ci", role="edit", actor=ADMIN)
    WorkItem.objects.all().delete()
    tenant_set_state(tenant=tenant, state="suspended", actor=ADMIN)
    assert WorkItem.objects.filter(kind="tenantcluster", object_id=row.pk).exists()
    row = runs(row)
    with pytest.raises(Forbidden):
        tenant_cluster_kubeconfig(row=row, actor=owner)
    with pytest.raises(Conflict, match="suspended"):  # a platform-admin may enter, and gets nothing either
        tenant_cluster_kubeconfig(row=row, actor=ADMIN)
    with pytest.raises(Conflict, match="suspended"):
        robot_token(robot=robot, actor=ADMIN)
    with tenant_scope(tenant.pk):
        assert access_of(row) == Access()


def test_inside_are_the_members_by_their_subject_the_mapped_groups_and_the_robots(tenant: Tenant, host: Cluster):
    row = runs(ask(tenant, host))
    subs = {}
    for name, role in (("ml-owner", "owner"), ("ml-developer", "developer"), ("ml-finance", "finance")):
        actor = make_member(tenant, name, role)
        Identity.objects.create(user_id=actor.user_id, iss=ISSUER, sub=f"sub-{name}")
        subs[name] = actor
    Identity.objects.create(user_id=subs["ml-owner"].user_id, iss="https://other.example", sub="foreign")
    left = make_member(tenant, "ml-left", Member.Role.DEVELOPER)
    Identity.objects.create(user_id=left.user_id, iss=ISSUER, sub="sub-left")
    User.objects.filter(pk=left.user_id).update(is_active=False)
    for value, match in (("/ml/viewers", "exact"), ("/ml", "prefix")):
        GroupMapping.objects.create(
            claim="groups", match=match, value=value, tenant=tenant, role="viewer", created_by="test"
        )
    robot_create(row=row, name="ci", role="edit", actor=ADMIN)
    with tenant_scope(tenant.pk):
        access = access_of(row)
    assert access.members == {
        "owner": Subjects(("sub-ml-owner",)),
        "developer": Subjects(("sub-ml-developer",)),
        "viewer": Subjects((), ("/ml/viewers",)),
    }
    assert access.robots == {"ci": "edit"}
    made = {one["metadata"]["name"]: one for one in access_manifests(access) if one["kind"] == "ClusterRoleBinding"}
    assert made["aifactory-owner"]["roleRef"]["name"] == "cluster-admin"
    assert [one["name"] for one in made["aifactory-owner"]["subjects"]] == ["oidc:sub-ml-owner"]
    assert [one["name"] for one in made["aifactory-viewer"]["subjects"]] == ["oidc:/ml/viewers"]
    assert made["aifactory-robot-ci"]["roleRef"]["name"] == "view"
    editors = editors_manifest(access, "default")
    assert editors is not None
    assert editors["roleRef"]["name"] == "edit"
    assert [one["name"] for one in editors["subjects"]] == ["oidc:sub-ml-developer", "ci"]


def test_who_comes_and_goes_is_told_to_the_tenant_cluster_at_once(tenant: Tenant, host: Cluster):
    row = ask(tenant, host)
    make_member(tenant, "ml-owner", Member.Role.OWNER)
    User.objects.create(username="new")
    for change in (
        lambda: member_set(tenant=tenant, username="new", role="developer", actor=ADMIN),
        lambda: member_remove(tenant=tenant, username="new", actor=ADMIN),
    ):
        WorkItem.objects.all().delete()
        change()
        assert WorkItem.objects.filter(kind="tenantcluster", object_id=row.pk).exists()


# --- robots ------------------------------------------------------------------------------------------------------


def test_a_robots_name_and_role_are_checked(tenant: Tenant, host: Cluster):
    row = ask(tenant, host)
    robot_create(row=row, name="ci", role="view", actor=ADMIN)
    with pytest.raises(Conflict, match="There is a robot ci"):
        robot_create(row=row, name="ci", role="view", actor=ADMIN)
    for values in ({"name": "CI", "role": "view"}, {"name": "other", "role": "root"}):
        with pytest.raises(Invalid):
            robot_create(row=row, **values, actor=ADMIN)
    with pytest.raises(Forbidden):
        robot_create(row=row, name="mine", role="view", actor=make_member(tenant, "ml-developer"))


@pytest.mark.parametrize("seconds", [0, 599, 24 * 3600 + 1])
def test_a_token_lives_for_a_short_time_only(tenant: Tenant, host: Cluster, settings: Any, seconds: int):
    settings.AIF_TENANT_CLUSTER_TOKEN_HOURS = 1000
    robot = robot_create(row=ask(tenant, host), name="ci", role="view", actor=ADMIN)
    with pytest.raises(Invalid, match="600 to 86400 seconds"):
        robot_token(robot=robot, actor=ADMIN, seconds=seconds)


def test_no_token_of_a_robot_that_is_not_there_or_of_a_cluster_that_does_not_run(tenant: Tenant, host: Cluster):
    row = ask(tenant, host)
    robot = robot_create(row=row, name="ci", role="view", actor=ADMIN)
    with pytest.raises(Conflict, match="is not there"):
        robot_token(robot=robot, actor=ADMIN)
    tenant_cluster_pause(row=row, actor=ADMIN)
    with pytest.raises(Conflict, match="does not run"):
        robot_token(robot=robot, actor=ADMIN)
    tenant_cluster_resume(row=row, actor=ADMIN)
    robot_delete(robot=robot, actor=ADMIN)
    with pytest.raises(Conflict, match="is not there"):
        robot_token(robot=robot, actor=ADMIN)
    outsider = Actor(kind="user", name="stranger", user_id=uuid4())
    with pytest.raises(NotFound):
        robot_token(robot=robot, actor=outsider)


def test_a_namespace_is_not_deleted_while_somebody_prepares_it(tenant: Tenant, host: Cluster):
    """Who began before the deletion would make it again, with nobody to know of it."""
    row = ask(tenant, host)
    with system_scope("test"):
        namespace = TenantNamespace.objects.get(name="vc-ml-team")
    claims = {kind: workqueue.claim(WorkItem.objects.get(kind=kind).pk) for kind in ("namespace", "tenantcluster")}
    item = claims["tenantcluster"]
    assert item is not None
    view = reconciler.View(row, namespace, cast("Wish", None), Access())
    (left,) = reconciler._namespace_left(item, view)
    assert str(left) == "Namespace vc-ml-team: it is still being prepared"
    assert left.ours
    with system_scope("test"):
        assert TenantNamespace.objects.get(pk=namespace.pk).deleting_at is not None, (
            "whoever begins now leaves it alone"
        )
    WorkItem.objects.filter(kind="namespace").update(lease_until=None)
    assert reconciler._namespace_left(item, view) == []
