"""A batch: all or nothing, fenced, and resumed where it was."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, OperationalError, transaction
from django.db.models import F

from infra import owners
from infra.models import Cluster, PodObservation, WatchSpan, WatchTarget
from infra.names import LABEL_REPLICA
from infra.owners import Owned
from infra.pod_reading import read_pod
from infra.watcher import commit as module
from infra.watcher import targets
from infra.watcher.commit import commit
from infra.watcher.inbox import Closed, Committers, Inbox
from infra.watcher.items import Connected, Failed, Listed, Seen
from infra.watcher.targets import Held, LeaseLost, Rewound
from portal.kernel.clock import utcnow
from portal.kernel.models import WorkItem
from tests.support.fleet import make_cluster
from tests.support.replay import take

from .test_follower import T0, pod

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


def sight(name: str = "p", version: int = 10, **more: Any) -> Any:
    return read_pod(pod(name, version, **more), seen_at=T0)


def seen(name: str = "p", version: int = 10, **more: Any) -> Seen:
    return Seen(str(version), sight(name, version, **more), T0)


def first_list(version: int = 5) -> Listed:
    return Listed(str(version), T0, (), frozenset(), "first list")


def test_evidence_version_span_and_mark_are_written_together(cluster: Cluster) -> None:
    held = take(cluster, "pods")
    held = commit(held, [first_list(), seen("a", 11), Seen("12", None, T0 + timedelta(seconds=30))])
    target = WatchTarget.objects.get(pk=held.target_id)
    assert target.resource_version == "12"
    assert WatchSpan.objects.get().proved_until == T0 + timedelta(seconds=30)
    assert target.watermark == T0 - timedelta(seconds=30)
    assert PodObservation.objects.get().name == "a"
    assert WorkItem.objects.get().kind == "metering"


@pytest.mark.parametrize("breaks", ["lock_changes", "mark_many"])
def test_a_batch_that_dies_leaves_nothing_and_is_read_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, breaks: str
) -> None:
    held = take(cluster, "pods")
    held = commit(held, [first_list()])

    def die(*args: Any) -> None:
        raise OperationalError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(module, breaks, die)
        with pytest.raises(OperationalError):
            commit(held, [seen("a", 11)])
    assert not PodObservation.objects.exists()
    assert WatchTarget.objects.get(pk=held.target_id).resource_version == "5"
    again = take(cluster, "pods")
    assert again.resource_version == "5"
    commit(again, [seen("a", 11)])
    assert PodObservation.objects.count() == 1


def test_who_lost_the_lease_writes_nothing(cluster: Cluster) -> None:
    old = take(cluster, "pods")
    new = take(cluster, "pods")
    commit(new, [first_list()])
    with pytest.raises(LeaseLost):
        commit(old, [seen("a", 11)])
    assert not PodObservation.objects.exists()


def test_a_database_that_lost_what_was_written_is_read_for_again(cluster: Cluster) -> None:
    """As after a fail-over to a replica that lagged: the pod's end was committed, and is not there any more."""
    end = Seen("12", read_pod(pod("a", 12), seen_at=T0, deleted=True), T0 + timedelta(seconds=30))
    held = commit(take(cluster, "pods"), [first_list(), seen("a", 11)])
    try:
        with transaction.atomic():
            ahead = commit(held, [end])
            raise OperationalError("the server ends, and this with it")
    except OperationalError:
        pass
    with pytest.raises(Rewound, match=r"up to version 12, and the database has them up to 11"):
        commit(ahead, [Seen("13", None, T0 + timedelta(seconds=60))])
    assert WatchSpan.objects.get().proved_until == T0, "what was not written is not proved"
    again = take(cluster, "pods")
    assert again.resource_version == "11"
    commit(again, [end])
    assert PodObservation.objects.get().gone_at is not None


def test_the_same_batch_again_changes_nothing(cluster: Cluster) -> None:
    held = take(cluster, "pods")
    held = commit(held, [first_list(), seen("a", 11)])
    before = PodObservation.objects.values().get()
    item = WorkItem.objects.get().mark_seq
    held = commit(held, [seen("a", 11)])
    assert PodObservation.objects.values().get() == before
    assert WorkItem.objects.get().mark_seq == item


def test_an_empty_list_after_the_last_proof_ends_the_pod_in_between(cluster: Cluster) -> None:
    held = take(cluster, "pods")
    held = commit(held, [first_list(), seen("a", 11)])
    later = T0 + timedelta(minutes=9)
    held = commit(held, [Listed("40", later, (), frozenset({"other"}), "410 Gone")])
    row = PodObservation.objects.get()
    assert (row.gone_inferred_after, row.ended_at, row.gone_at) == (T0, T0, later)


def test_a_failure_says_so_on_the_cluster_and_keeps_everything_else(cluster: Cluster) -> None:
    held = take(cluster, "pods")
    held = commit(held, [first_list(), seen("a", 11)])
    held = commit(held, [Failed("Unreachable", "No answer from alpha.", 3, T0 + timedelta(seconds=8))])
    cluster.refresh_from_db()
    (condition,) = cluster.conditions
    assert (condition["type"], condition["status"], condition["message"]) == (
        "PodsWatched", "False", "No answer from alpha.",
    )  # fmt: skip
    target = WatchTarget.objects.get(pk=held.target_id)
    assert (target.failures, target.resource_version) == (3, "11")
    assert WatchSpan.objects.get().closed_reason == ""
    assert PodObservation.objects.get().gone_at is None
    held = commit(held, [Connected(T0)])
    cluster.refresh_from_db()
    assert cluster.conditions[0]["status"] == "True"


# ---- whose a pod is -----------------------------------------------------------------------------------------


@pytest.fixture
def known() -> Iterator[dict[tuple[str, uuid.UUID], Owned]]:
    known: dict[tuple[str, uuid.UUID], Owned] = {}
    before = owners._Registered.owners
    owners.register_replica_owners(lambda cluster_id, claims: {key: known[key] for key in claims if key in known})
    yield known
    owners.register_replica_owners(before)


def labelled(replica: uuid.UUID, namespace: str, version: int = 11) -> Seen:
    thing = pod("a", version)
    thing["metadata"] |= {"labels": {LABEL_REPLICA: str(replica)}, "namespace": namespace}
    return Seen(str(version), read_pod(thing, seen_at=T0), T0)


def test_a_replicas_pod_marks_the_replica(cluster: Cluster, known: dict[Any, Owned]) -> None:
    replica, owned = uuid.uuid4(), Owned(uuid.uuid4(), uuid.uuid4())
    known["t-a", replica] = owned
    commit(take(cluster, "pods"), [first_list(), labelled(replica, "t-a")])
    row = PodObservation.objects.get()
    assert (row.replica_id, row.deployment_id) == (replica, owned.deployment_id)
    item = WorkItem.objects.get(kind="replica")
    assert (item.object_id, item.cluster_id, item.tenant_id, item.cause) == (
        replica, cluster.pk, owned.tenant_id, "watch",
    )  # fmt: skip


def test_a_forged_label_in_another_namespace_counts_as_foreign(cluster: Cluster, known: dict[Any, Owned]) -> None:
    replica = uuid.uuid4()
    known["t-a", replica] = Owned(uuid.uuid4(), uuid.uuid4())
    commit(take(cluster, "pods"), [first_list(), labelled(replica, "t-b")])
    row = PodObservation.objects.get()
    assert (row.replica_id, row.deployment_id) == (None, None)
    assert not WorkItem.objects.filter(kind="replica").exists()


# ---- leases -------------------------------------------------------------------------------------------------


def test_targets_are_shared_and_taken_over_when_a_lease_ends(cluster: Cluster) -> None:
    make_cluster("beta")
    targets.ensure_targets()
    targets.ensure_targets()
    assert targets.watched() == 6
    first, second = targets.claim("one", 3), targets.claim("two", 10)
    assert len(first) == len(second) == 3
    assert targets.claim("three", 10) == []
    assert targets.renew(first) == {held.target_id for held in first}
    WatchTarget.objects.filter(lease_owner="one").update(lease_until=utcnow() - timedelta(seconds=1))
    taken = targets.claim("three", 10)
    assert {held.target_id for held in taken} == {held.target_id for held in first}
    assert targets.renew(first) == set()
    targets.release(first)
    assert WatchTarget.objects.filter(lease_owner="three").count() == 3, "who lost it can't let it go"
    targets.release(taken)
    assert len(targets.claim("four", 10)) == 3


def test_a_target_that_waits_or_whose_cluster_was_given_up_is_not_taken(cluster: Cluster) -> None:
    targets.ensure_targets()
    WatchTarget.objects.filter(resource="pods").update(not_before=utcnow() + timedelta(minutes=1))
    held = targets.claim("one", 10)
    assert [one.resource for one in held] == ["namespaces", "nodes"]
    Cluster.objects.update(abandoned_at=utcnow())
    assert targets.renew(held) == set()
    WatchTarget.objects.update(lease_until=None, lease_token=F("lease_token") + 1, not_before=None)
    assert targets.claim("two", 10) == []


# ---- inbox --------------------------------------------------------------------------------------------------


def held() -> Held:
    return Held(uuid.uuid4(), uuid.uuid4(), "pods", 1, "", None)


@pytest.fixture
def written() -> list[list[str]]:
    return []


def through(do_commit: Any, items: list[Seen]) -> Inbox:
    committers = Committers(2, do_commit)
    inbox = Inbox(held(), committers)
    committers.start()
    for item in items:
        inbox.put(item)
    assert committers.stop(20.0)
    return inbox


def test_items_are_written_in_their_order(written: list[list[str]]) -> None:
    items = [Seen(str(number)) for number in range(1700)]

    def write(held: Held, batch: Any) -> Held:
        written.append([item.resource_version for item in batch])
        return replace(held, resource_version=written[-1][-1])

    inbox = through(write, items)
    assert inbox.held.resource_version == "1699"
    assert [version for batch in written for version in batch] == [str(number) for number in range(1700)]
    assert max(map(len, written)) <= 500


def test_a_batch_that_fails_is_written_again_before_what_follows(written: list[list[str]]) -> None:
    failures = iter([OperationalError("away"), OperationalError("away")])

    def flaky(held: Held, batch: Any) -> Held:
        error = next(failures, None)
        if error is not None:
            raise error
        written.append([item.resource_version for item in batch])
        return held

    through(flaky, [Seen("1"), Seen("2")])
    assert written == [["1", "2"]]


@pytest.mark.parametrize(
    ("error", "told"),
    [(LeaseLost("gone"), 0), (Rewound("lost"), 0), (ValueError("a fault of ours"), 1), (DataError("out of range"), 1)],
)
def test_what_can_never_be_written_closes_the_inbox(error: Exception, told: int) -> None:
    failed: list[Failed] = []

    def fail(held: Held, batch: Any) -> Held:
        if isinstance(batch[0], Failed):
            failed.append(batch[0])
            return held
        raise error

    inbox = through(fail, [Seen("1")])
    assert inbox.closed
    assert len(failed) == told
    with pytest.raises(Closed):
        inbox.put(Seen("2"))


def test_a_full_inbox_makes_its_follower_wait_and_lets_it_go_when_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.watcher.inbox.CAPACITY", 3)
    inbox, ended = Inbox(held(), Committers(0)), threading.Event()

    def fill() -> None:
        with pytest.raises(Closed):
            for number in range(10):
                inbox.put(Seen(str(number)))
        ended.set()

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    assert not ended.wait(0.2)
    inbox.close()
    assert ended.wait(10)
