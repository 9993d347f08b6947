"""Namespaces become a tenant's, and stop being it."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from infra.models import Cluster, NamespaceClaim, PodObservation
from infra.selectors.claims import unmapped_namespaces
from infra.services.claims import namespace_claim_end, namespace_claim_set, system_namespaces_set
from portal.kernel.actors import PLATFORM_VIEWER, Actor
from portal.kernel.models import AuditEvent, WorkItem
from portal.kernel.problems import Conflict, Forbidden, Invalid
from portal.kernel.scoping import system_scope
from tests.support.fleet import make_cluster, make_node, make_pod, make_pool

pytestmark = pytest.mark.django_db

ADMIN = Actor(kind="user", name="platform-admin", platform_role="platform-admin")
VIEWER = Actor(kind="user", name="platform-viewer", platform_role=PLATFORM_VIEWER)
T0 = datetime(2026, 11, 1, tzinfo=UTC)
DAY = timedelta(days=1)
ONE, TWO = uuid.uuid4(), uuid.uuid4()


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster(system_namespaces=["kube-system"])


def claim(cluster: Cluster, tenant: uuid.UUID = ONE, start: datetime = T0, namespace: str = "team-a") -> NamespaceClaim:
    return namespace_claim_set(
        cluster=cluster, namespace=namespace, tenant_id=tenant, valid_from=start, actor=ADMIN, cost_code="K1"
    )


def test_a_claim_is_written_audited_and_marked(cluster: Cluster) -> None:
    row = claim(cluster)
    assert row.changed_seq > 0
    with system_scope("test"):
        event = AuditEvent.objects.get(verb="namespace_claim_set")
    assert event.after is not None
    assert (event.tenant_id, event.object_name, event.after["valid_from"]) == (
        ONE, "alpha/team-a", "2026-11-01T00:00:00Z",
    )  # fmt: skip
    assert WorkItem.objects.get(kind="metering").object_id == cluster.pk


def test_the_same_claim_again_is_the_same_row(cluster: Cluster) -> None:
    assert claim(cluster).pk == claim(cluster).pk
    assert NamespaceClaim.objects.count() == 1


@pytest.mark.parametrize("start", [T0 - DAY, T0, T0 + DAY])
def test_overlap_is_refused_and_says_what_to_do(cluster: Cluster, start: datetime) -> None:
    claim(cluster)
    with pytest.raises(Conflict, match="claimed from 2026-11-01T00:00:00Z without an end"):
        claim(cluster, TWO, start)
    assert NamespaceClaim.objects.count() == 1


def test_hands_change_at_an_instant(cluster: Cluster) -> None:
    first = claim(cluster)
    ended = namespace_claim_end(claim=first, valid_to=T0 + DAY, actor=ADMIN)
    assert ended.changed_seq > first.changed_seq
    second = claim(cluster, TWO, T0 + DAY)
    rows = NamespaceClaim.objects.order_by("valid_from").values_list("tenant_id", "valid_from", "valid_to")
    assert list(rows) == [(ONE, T0, T0 + DAY), (TWO, T0 + DAY, None)]
    assert second.changed_seq > ended.changed_seq


def test_a_past_claim_leaves_room_before_and_refuses_within(cluster: Cluster) -> None:
    namespace_claim_end(claim=claim(cluster), valid_to=T0 + DAY, actor=ADMIN)
    with pytest.raises(Conflict, match="until 2026-11-02T00:00:00Z"):
        claim(cluster, TWO, T0 + DAY / 2)


def test_an_end_comes_once_and_after_the_beginning(cluster: Cluster) -> None:
    row = claim(cluster)
    with pytest.raises(Invalid) as caught:
        namespace_claim_end(claim=row, valid_to=T0, actor=ADMIN)
    assert caught.value.errors[0]["pointer"] == "/valid_to"
    namespace_claim_end(claim=row, valid_to=T0 + DAY, actor=ADMIN)
    assert namespace_claim_end(claim=row, valid_to=T0 + DAY, actor=ADMIN).valid_to == T0 + DAY
    with pytest.raises(Conflict, match="has ended at"):
        namespace_claim_end(claim=row, valid_to=T0 + 2 * DAY, actor=ADMIN)


def test_only_a_platform_admin_or_the_system_decides(cluster: Cluster) -> None:
    with pytest.raises(Forbidden):
        namespace_claim_set(cluster=cluster, namespace="team-a", tenant_id=ONE, valid_from=T0, actor=VIEWER)
    with system_scope("test"):
        assert AuditEvent.objects.get().outcome == "refused"
    namespace_claim_set(
        cluster=cluster, namespace="t-one", tenant_id=ONE, valid_from=T0, actor=Actor.system("reconciler")
    )


@pytest.mark.parametrize(("name", "says"), [("Team_A", "no name of a namespace"), ("kube-system", "system namespace")])
def test_names_that_cannot_be_claimed(cluster: Cluster, name: str, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        claim(cluster, namespace=name)


def test_unmapped_namespaces_with_cards_are_listed(cluster: Cluster) -> None:
    node = make_node(make_pool(cluster=cluster))
    for namespace in ("team-a", "team-b", "team-b", "team-c", "kube-system"):
        make_pod(node, namespace=namespace)
    PodObservation.objects.filter(namespace="team-c").update(ended_at=T0)
    claim(cluster)
    found = unmapped_namespaces([cluster])
    assert [(one.namespace, one.pods, one.live) for one in found] == [("team-b", 2, 2), ("team-c", 1, 0)]


def test_system_namespaces_are_an_explicit_list(cluster: Cluster) -> None:
    node = make_node(make_pool(cluster=cluster))
    pod = make_pod(node, namespace="gpu-operator")
    system_namespaces_set(cluster=cluster, namespaces=["gpu-operator", "kube-system"], actor=ADMIN)
    cluster.refresh_from_db()
    assert cluster.system_namespaces == ["gpu-operator", "kube-system"]
    pod.refresh_from_db()
    assert pod.changed_seq > 0, "metering looks at its live pods again"
    with pytest.raises(Invalid, match="patterns"):
        system_namespaces_set(cluster=cluster, namespaces=["kube-*"], actor=ADMIN)
    claim(cluster)
    with pytest.raises(Conflict, match="team-a"):
        system_namespaces_set(cluster=cluster, namespaces=["team-a"], actor=ADMIN)
