"""Claims that follow labels and names: begun, moved and ended when the watch shows it; by hand always wins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from infra import owners
from infra.models import ClaimRule, Cluster, NamespaceClaim, NamespaceSight, PodObservation, WatchTarget
from infra.namespace_reading import read_namespace
from infra.services.changes import lock_changes
from infra.services.claim_rules import (
    claim_rule_create,
    claim_rule_end,
    claim_rule_move,
    claim_rule_preview,
    rules_apply,
)
from infra.services.claims import (
    Space,
    namespace_claim_end,
    namespace_claim_set,
    namespace_claims_set,
    system_namespaces_set,
)
from infra.watcher.commit import commit
from infra.watcher.items import Item, Listed, Seen
from portal.kernel import workqueue
from portal.kernel.actors import Actor
from portal.kernel.clock import format_rfc3339, time_source
from portal.kernel.models import AuditEvent
from portal.kernel.problems import Conflict, Forbidden, Invalid
from portal.kernel.scoping import system_scope
from tests.support.fleet import make_cluster, make_node, make_pod, make_pool
from tests.support.replay import take

pytestmark = pytest.mark.django_db

ADMIN = Actor(kind="user", name="platform-admin", platform_role="platform-admin")
VIEWER = Actor(kind="user", name="platform-viewer", platform_role="platform-viewer")
T0 = datetime(2026, 11, 10, tzinfo=UTC)
JAN = datetime(2026, 1, 1, tzinfo=UTC)
FAR = datetime(2200, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ONE, TWO = uuid4(), uuid4()


class Watch:
    """A cluster's namespaces, as the watch tells of them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.version, self.held = cluster, 10, take(cluster, "namespaces")

    def thing(self, name: str, labels: Mapping[str, str], created: datetime | None = None, uid: str = "") -> Any:
        meta = {"uid": uid or f"uid-{name}", "name": name, "labels": dict(labels)}
        self.version += 1
        meta["resourceVersion"] = str(self.version)
        return {"metadata": meta | ({"creationTimestamp": format_rfc3339(created)} if created else {})}

    def list(self, at: datetime = T0, **spaces: Mapping[str, str]) -> None:
        sights = [read_namespace(self.thing(n.replace("_", "-"), labels), seen_at=at) for n, labels in spaces.items()]
        uids = frozenset(sight.uid for sight in sights)
        self.commit(Listed(str(self.version), at, tuple(sights), uids, "list"))

    def tell(self, name: str, at: datetime, *, deleted: bool = False, uid: str = "", **labels: str) -> None:
        facts = read_namespace(self.thing(name, labels, uid=uid), seen_at=at, deleted=deleted)
        self.commit(Seen(str(self.version), facts, at))

    def commit(self, *items: Item) -> None:
        if not WatchTarget.objects.filter(pk=self.held.target_id, lease_token=self.held.token).exists():
            self.held = take(self.cluster, "namespaces")
        self.held = commit(self.held, items)


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster(system_namespaces=["kube-system"])


@pytest.fixture
def watch(cluster: Cluster) -> Watch:
    return Watch(cluster)


@pytest.fixture(autouse=True)
def slugs() -> Iterator[dict[str, UUID]]:
    known = {"one": ONE, "two": TWO}
    before = owners._Registered.slugs
    owners.register_tenant_slugs(lambda asked: {slug: known[slug] for slug in asked if slug in known})
    yield known
    owners._Registered.slugs = staticmethod(before)


def by_slug(**more: Any) -> ClaimRule:
    return claim_rule_create(
        **({"kind": "label", "label_key": "team", "by_slug": True, "valid_from": JAN, "actor": ADMIN} | more)
    )


def by_name(cluster: Cluster, pattern: str = "ml-*", tenant: UUID = ONE, **more: Any) -> ClaimRule:
    values = {"kind": "name", "pattern": pattern, "cluster": cluster, "tenant_id": tenant, "valid_from": JAN}
    return claim_rule_create(**(values | {"actor": ADMIN} | more))


def work(at: datetime = T0) -> None:
    with time_source(lambda: at):
        while workqueue.run_due():
            pass


def claims(namespace: str = "ml-a") -> list[tuple[Any, ...]]:
    rows = NamespaceClaim.objects.filter(namespace=namespace).order_by("valid_from")
    return list(rows.values_list("tenant_id", "valid_from", "valid_to", "source", "inferred"))


# ---- what is kept of a namespace --------------------------------------------------------------------------


def test_namespaces_are_kept_with_the_labels_of_the_list_alone(watch: Watch) -> None:
    by_slug(label_key="owner")
    watch.list(ml_a={"team": "one", "owner": "x", "secret": "no"})
    row = NamespaceSight.objects.get()
    assert row.labels == {"team": "one", "owner": "x"}
    assert row.labels_since == {}, "since when it is so is not known"
    assert (row.first_seen_at, row.gone_at) == (T0, None)


def test_a_label_is_dated_when_the_watch_sees_it_change(watch: Watch) -> None:
    watch.list(ml_a={"team": "one"})
    watch.tell("ml-a", T0 + HOUR, team="two")
    row = NamespaceSight.objects.get()
    assert row.labels_since == {"team": format_rfc3339(T0 + HOUR)}
    watch.tell("ml-a", T0 + 2 * HOUR, team="two", other="x")
    row.refresh_from_db()
    assert row.labels_since == {"team": format_rfc3339(T0 + HOUR)}, "what is not kept changes nothing"
    watch.tell("ml-a", T0 + 3 * HOUR)
    row.refresh_from_db()
    assert (row.labels, row.labels_since) == ({}, {"team": format_rfc3339(T0 + 3 * HOUR)})


def test_an_older_event_changes_nothing(watch: Watch) -> None:
    watch.list(ml_a={"team": "one"})
    old = read_namespace(watch.thing("ml-a", {"team": "two"}), seen_at=T0)
    watch.tell("ml-a", T0 + HOUR, team="one")
    watch.commit(Seen(str(watch.version), old, T0 + 2 * HOUR))
    assert NamespaceSight.objects.get().labels == {"team": "one"}


def test_a_namespace_that_is_missing_from_a_list_is_gone_since_some_moment(watch: Watch) -> None:
    watch.list(ml_a={}, ml_b={})
    watch.list(at=T0 + HOUR, ml_b={})
    row = NamespaceSight.objects.get(name="ml-a")
    assert (row.gone_at, row.gone_inferred_after) == (T0 + HOUR, T0)
    assert NamespaceSight.objects.get(name="ml-b").gone_at is None


def test_a_new_key_has_the_namespaces_listed_again(watch: Watch) -> None:
    watch.list(ml_a={"owner": "one"})
    before = WatchTarget.objects.get(pk=watch.held.target_id)
    assert before.resource_version
    by_slug(label_key="team")
    assert WatchTarget.objects.get(pk=watch.held.target_id).resource_version == before.resource_version, "it was kept"
    by_slug(label_key="owner")
    after = WatchTarget.objects.get(pk=watch.held.target_id)
    assert (after.resource_version, after.lease_owner) == ("", "")
    assert after.lease_token > before.lease_token, "who watched with the old keys writes no more"
    watch.list(at=T0 + HOUR, ml_a={"owner": "one"})
    row = NamespaceSight.objects.get()
    assert (row.labels, row.labels_since) == ({"owner": "one"}, {})
    assert claims() == [(ONE, JAN, None, "label", True)]


# ---- by label ---------------------------------------------------------------------------------------------


def test_a_label_gives_and_takes_when_the_watch_shows_it(watch: Watch) -> None:
    by_slug()
    watch.list(ml_a={})
    assert claims() == []
    watch.tell("ml-a", T0 + HOUR, team="one")
    watch.tell("ml-a", T0 + 2 * HOUR, team="two")
    watch.tell("ml-a", T0 + 3 * HOUR)
    assert claims() == [
        (ONE, T0 + HOUR, T0 + 2 * HOUR, "label", True),
        (TWO, T0 + 2 * HOUR, T0 + 3 * HOUR, "label", True),
    ]
    with system_scope("test"):
        verbs = list(
            AuditEvent.objects.filter(object_kind="namespace_claim").order_by("id").values_list("verb", flat=True)
        )
    assert verbs == ["namespace_claim_set", "namespace_claim_end"] * 2


def test_changes_within_one_batch_are_each_dated(watch: Watch) -> None:
    by_slug()
    watch.list(ml_a={"team": "one"})
    facts = [
        read_namespace(watch.thing("ml-a", labels), seen_at=T0 + n * HOUR)
        for n, labels in enumerate([{"team": "two"}, {"team": "one"}], 1)
    ]
    watch.commit(*(Seen(str(f.resource_version), f, f.seen_at) for f in facts))
    assert [(row[0], row[1], row[2]) for row in claims()] == [
        (ONE, JAN, T0 + HOUR), (TWO, T0 + HOUR, T0 + 2 * HOUR), (ONE, T0 + 2 * HOUR, None),
    ]  # fmt: skip


def test_a_label_that_was_there_first_counts_from_the_rule_or_the_namespace(watch: Watch) -> None:
    by_slug()
    created = T0 - 100 * HOUR
    fresh = read_namespace(watch.thing("ml-b", {"team": "two"}, created), seen_at=T0)
    old = read_namespace(watch.thing("ml-a", {"team": "one"}), seen_at=T0)
    watch.commit(Listed("99", T0, (old, fresh), frozenset({old.uid, fresh.uid}), "list"))
    assert claims("ml-a")[0][1] == JAN
    assert claims("ml-b")[0][1] == created


def test_a_value_that_is_no_tenant_s_slug_gives_nothing_until_there_is_one(
    watch: Watch, slugs: dict[str, UUID]
) -> None:
    by_slug()
    watch.list(ml_a={"team": "three"})
    assert claims() == []
    slugs["three"] = TWO
    with system_scope("test"):
        workqueue.mark("claim-rules", watch.cluster.pk, cluster_id=watch.cluster.pk)
    work()
    assert claims() == [(TWO, JAN, None, "label", True)]


def test_a_cost_code_by_label_cuts_the_claim(watch: Watch) -> None:
    by_slug(cost_code_label="cost")
    watch.list(ml_a={"team": "one", "cost": "K1"})
    watch.tell("ml-a", T0 + HOUR, team="one", cost="K2")
    rows = NamespaceClaim.objects.order_by("valid_from").values_list("cost_code", "valid_from", "valid_to")
    assert list(rows) == [("K1", JAN, T0 + HOUR), ("K2", T0 + HOUR, None)]


def test_a_namespace_made_again_begins_anew(watch: Watch) -> None:
    by_slug()
    watch.list(ml_a={"team": "one"})
    watch.tell("ml-a", T0 + HOUR, deleted=True, team="one")
    watch.tell("ml-a", T0 + 2 * HOUR, uid="second", team="two")
    assert [(row[0], row[1], row[2]) for row in claims()] == [(ONE, JAN, T0 + HOUR), (TWO, T0 + HOUR, None)]


# ---- by name, order, end ----------------------------------------------------------------------------------


def test_a_name_gives_and_the_first_rule_wins(cluster: Cluster, watch: Watch) -> None:
    by_name(cluster)
    by_name(cluster, "ml-a", TWO)
    watch.list(ml_a={}, ml_b={}, other={})
    assert claims() == [(ONE, JAN, None, "rule", False)]
    assert [row[0] for row in claims("ml-b")] == [ONE]
    assert claims("other") == []


def test_a_rule_that_goes_before_takes_over_from_its_own_beginning(cluster: Cluster, watch: Watch) -> None:
    by_name(cluster)
    watch.list(ml_a={})
    by_name(cluster, "ml-a", TWO, position=1, valid_from=T0 - 5 * HOUR)
    work()
    assert [(row[0], row[1], row[2]) for row in claims()] == [(ONE, JAN, T0 - 5 * HOUR), (TWO, T0 - 5 * HOUR, None)]


def test_a_rule_that_was_moved_takes_over_from_then_on(cluster: Cluster, watch: Watch) -> None:
    by_name(cluster)
    second = by_name(cluster, "ml-a", TWO)
    watch.list(ml_a={})
    with time_source(lambda: T0 + HOUR):
        claim_rule_move(rule=second, position=1, actor=ADMIN)
    work(T0 + 2 * HOUR)
    assert [(row[0], row[1], row[2]) for row in claims()] == [(ONE, JAN, T0 + HOUR), (TWO, T0 + HOUR, None)]
    assert list(ClaimRule.objects.values_list("tenant_id", "position")) == [(TWO, 1), (ONE, 2)]


def test_an_ended_rule_keeps_what_it_gave(cluster: Cluster, watch: Watch) -> None:
    rule = by_name(cluster)
    by_name(cluster, "*", TWO)
    watch.list(ml_a={}, ml_b={})
    with time_source(lambda: T0 + HOUR):
        claim_rule_end(rule=rule, actor=ADMIN)
    work(T0 + 5 * HOUR)
    assert [(row[0], row[1], row[2]) for row in claims()] == [(ONE, JAN, T0 + HOUR), (TWO, T0 + HOUR, None)]


def test_a_site_s_rule_reaches_its_clusters_alone(watch: Watch) -> None:
    other = make_cluster("beta", site="site-b")
    far = Watch(other)
    claim_rule_create(kind="name", pattern="ml-*", site=watch.cluster.site, tenant_id=ONE, valid_from=JAN, actor=ADMIN)
    watch.list(ml_a={})
    far.list(ml_a={})
    assert list(NamespaceClaim.objects.values_list("cluster__slug", flat=True)) == ["alpha"]


def test_namespaces_known_by_their_pods_alone_are_reached_by_name(cluster: Cluster) -> None:
    make_pod(make_node(make_pool(cluster=cluster)), namespace="ml-a")
    by_name(cluster)
    with system_scope("test"):
        rules_apply(cluster, at=T0)
    assert claims() == [(ONE, JAN, None, "rule", False)]


def test_what_is_gone_is_given_for_its_time(cluster: Cluster, watch: Watch) -> None:
    watch.list(ml_a={})
    watch.tell("ml-a", T0 + HOUR, deleted=True)
    by_name(cluster)
    work()
    assert claims() == [(ONE, JAN, T0 + HOUR, "rule", False)]


# ---- by hand ----------------------------------------------------------------------------------------------


def by_hand(cluster: Cluster, tenant: UUID = TWO, start: datetime = T0, namespace: str = "ml-a") -> NamespaceClaim:
    return namespace_claim_set(cluster=cluster, namespace=namespace, tenant_id=tenant, valid_from=start, actor=ADMIN)


@pytest.mark.parametrize(("start", "left"), [(T0 + HOUR, [(ONE, JAN, T0 + HOUR)]), (JAN, []), (JAN - HOUR, [])])
def test_by_hand_takes_over_from_a_rule(cluster: Cluster, watch: Watch, start: datetime, left: list[Any]) -> None:
    pod = make_pod(make_node(make_pool(cluster=cluster)), namespace="ml-a")
    by_name(cluster)
    watch.list(ml_a={})
    by_hand(cluster, start=start)
    assert [(row[0], row[1], row[2]) for row in claims()] == [*left, (TWO, start, None)]
    if not left:
        before = pod.changed_seq
        pod.refresh_from_db()
        assert pod.changed_seq > before, "what the rule had given is metered again"


def test_no_rule_touches_what_was_given_by_hand(cluster: Cluster, watch: Watch) -> None:
    by_hand(cluster)
    by_slug(position=1)
    watch.list(ml_a={"team": "one"})
    watch.tell("ml-a", T0 + HOUR)
    watch.tell("ml-a", T0 + 2 * HOUR, team="one")
    work()
    assert claims() == [(TWO, T0, None, "portal", False)]


def test_when_a_claim_by_hand_ends_the_rules_go_on(cluster: Cluster, watch: Watch) -> None:
    mine = by_hand(cluster)
    by_name(cluster)
    watch.list(ml_a={})
    namespace_claim_end(claim=mine, valid_to=T0 + HOUR, actor=ADMIN)
    work(T0 + 2 * HOUR)
    assert [(row[0], row[1], row[2]) for row in claims()] == [(TWO, T0, T0 + HOUR), (ONE, T0 + HOUR, None)]


def test_a_claim_of_a_rule_is_not_ended_by_hand(cluster: Cluster, watch: Watch) -> None:
    by_name(cluster)
    watch.list(ml_a={})
    with pytest.raises(Conflict, match=r"follows the rule ml-\* on alpha"):
        namespace_claim_end(claim=NamespaceClaim.objects.get(), valid_to=T0, actor=ADMIN)


def test_several_at_once_all_or_none(cluster: Cluster) -> None:
    spaces = [Space(cluster, "ml-b"), Space(cluster, "ml-a"), Space(cluster, "kube-system")]
    with pytest.raises(Invalid) as caught:
        namespace_claims_set(spaces=spaces, tenant_id=ONE, valid_from=T0, actor=ADMIN)
    assert [error["pointer"] for error in caught.value.errors] == ["/namespaces/2"]
    assert not NamespaceClaim.objects.exists()
    assert len(namespace_claims_set(spaces=spaces[:2], tenant_id=ONE, valid_from=T0, actor=ADMIN, cost_code="K")) == 2
    assert set(NamespaceClaim.objects.values_list("namespace", "cost_code")) == {("ml-a", "K"), ("ml-b", "K")}
    with pytest.raises(Invalid, match="at least one"):
        namespace_claims_set(spaces=[], tenant_id=ONE, valid_from=T0, actor=ADMIN)


# ---- system namespaces, refusals, preview -----------------------------------------------------------------


def test_a_rule_never_reaches_a_system_namespace(cluster: Cluster, watch: Watch) -> None:
    by_name(cluster, "*")
    watch.list(kube_system={}, gpu_operator={})
    assert claims("kube-system") == []
    assert len(claims("gpu-operator")) == 1
    system_namespaces_set(cluster=cluster, namespaces=["gpu-operator", "kube-system"], actor=ADMIN)
    assert claims("gpu-operator")[0][2] is not None, (
        "what a rule had given ends when the namespace becomes the system's"
    )
    work()
    assert len(claims("gpu-operator")) == 1


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"kind": "name", "pattern": "ml-*", "tenant_id": ONE}, "/cluster"),
        ({"kind": "name", "pattern": "ml_[a]", "tenant_id": ONE}, "/pattern"),
        ({"kind": "label", "label_key": "team", "label_value": "x"}, "/tenant"),
        ({"kind": "label", "label_key": "team", "tenant_id": ONE}, "/label_value"),
        ({"kind": "label", "label_key": "-team-", "by_slug": True}, "/label_key"),
        ({"kind": "label", "label_key": "team", "by_slug": True, "tenant_id": ONE}, "/tenant"),
        ({"kind": "label", "label_key": "team", "by_slug": True, "valid_from": FAR}, "/valid_from"),
        ({"kind": "colour"}, "/kind"),
    ],
)  # fmt: skip
def test_bad_rules_are_named_at_the_field(values: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as caught:
        claim_rule_create(**({"valid_from": JAN, "actor": ADMIN} | values))
    assert pointer in {error["pointer"] for error in caught.value.errors}
    assert not ClaimRule.objects.exists()


def test_only_a_platform_admin_makes_rules() -> None:
    with pytest.raises(Forbidden):
        by_slug(actor=VIEWER)


def test_a_preview_says_what_would_change_and_changes_nothing(cluster: Cluster, watch: Watch) -> None:
    by_name(cluster)
    watch.list(ml_a={}, ml_b={})
    before = list(NamespaceClaim.objects.order_by("pk").values())
    effects = claim_rule_preview(lambda: by_name(cluster, "ml-a", TWO, position=1, valid_from=T0))
    assert [(one.namespace, one.was, one.becomes, one.start, one.end) for one in effects] == [
        ("ml-a", ONE, None, T0, None), ("ml-a", None, TWO, T0, None),
    ]  # fmt: skip
    assert list(NamespaceClaim.objects.order_by("pk").values()) == before
    assert ClaimRule.objects.count() == 1
    with system_scope("test"):
        assert AuditEvent.objects.filter(verb="claim_rule_create").count() == 1


def test_changes_have_numbers_that_metering_reads(cluster: Cluster, watch: Watch) -> None:
    by_name(cluster)
    watch.list(ml_a={})
    with system_scope("test"):
        value = lock_changes(cluster.pk).value
    assert NamespaceClaim.objects.get().changed_seq == value > 0
    assert not PodObservation.objects.exists()
