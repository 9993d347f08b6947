"""Applying for an owner: what is written down, what is written, what is left alone, what is deleted when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from infra.kube import errors
from infra.kube.apply import ObjectKey, Owner, apply_one, force_fields, prepare
from infra.kube.client import KubeClient
from infra.models import AppliedObject, Cluster
from infra.names import LABEL_OWNER, MANAGED_BY
from infra.selectors.inventory import applied_by, differences, left_on
from infra.services import inventory
from infra.services.inventory import (
    ApplyReport,
    DeleteReport,
    Superseded,
    inventory_apply,
    inventory_delete,
    inventory_suspect,
)
from portal.kernel import workqueue
from portal.kernel.ids import uuid7
from portal.kernel.models import WorkItem
from portal.kernel.workqueue import Claimed, LeaseLost
from tests.cluster.conftest import Plane
from tests.cluster.test_kube_contract import deployment, is_gone, wait_until

KIND = "test-owner"


@pytest.fixture(autouse=True)
def kind() -> Any:
    """A kind of work of our own, so that items of it can be claimed."""
    workqueue.register(KIND, lease_seconds=300)(lambda item: workqueue.Done())
    yield
    from portal.kernel.workqueue.registry import unregister

    unregister(KIND)


@dataclass
class Work:
    """An owner with its claimed item on a cluster."""

    plane: Plane
    item: Claimed
    owner: Owner

    def apply(self, *manifests: dict[str, Any], generation: int = 1, **values: Any) -> ApplyReport:
        """Apply the manifests as that generation of the owner."""
        owner = replace(self.owner, generation=generation)
        return inventory_apply(item=self.item, cluster=self.plane.cluster, owner=owner, manifests=manifests, **values)

    def delete(self, **values: Any) -> DeleteReport:
        """Have everything deleted."""
        return inventory_delete(item=self.item, cluster=self.plane.cluster, owner=self.owner, **values)

    def rows(self) -> list[AppliedObject]:
        """The live rows by name."""
        return list(applied_by(self.owner.kind, self.owner.id).order_by("kind", "name"))

    def key(self, name: str) -> ObjectKey:
        """Of a ConfigMap of the namespace."""
        return ObjectKey("v1", "ConfigMap", self.plane.namespace, name)

    def live(self, name: str) -> dict[str, Any]:
        """A ConfigMap as the cluster has it."""
        return self.plane.client.get("v1", "ConfigMap", name, self.plane.namespace)


def claim(owner_id: UUID, cluster_id: UUID) -> Claimed:
    workqueue.mark(KIND, owner_id, cluster_id=cluster_id)
    item = workqueue.claim(WorkItem.objects.get(kind=KIND, object_id=owner_id).pk)
    assert item is not None
    return item


@pytest.fixture
def work(plane: Plane) -> Work:
    owner = Owner(KIND, uuid7(), uuid7(), 1)
    return Work(plane, claim(owner.id, plane.cluster.pk), owner)


def expire(work: Work) -> None:
    """The lease runs out, as for a process that was stopped."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE kernel_workitem SET lease_until = now() - interval '1 second' WHERE id = %s", [work.item.item_id]
        )


# ---- applying ----------------------------------------------------------------------------------------------


def test_what_is_applied_is_written_down_and_is_ours(work: Work) -> None:
    report = work.apply(work.plane.config_map("b", x="1"), work.plane.config_map("a", x="1"))
    assert report.changed == [work.key("b"), work.key("a")]
    a, b = work.rows()
    live = work.live("a")["metadata"]
    assert (a.uid, a.resource_version, a.generation) == (live["uid"], live["resourceVersion"], 1)
    assert (a.tenant_id, len(a.digest)) == (work.owner.tenant_id, 64)
    assert a.digest != b.digest
    assert live["labels"] == work.owner.labels
    assert {entry["manager"] for entry in live["managedFields"]} == {"aifactory-portal"}
    assert [row.name for row in left_on(work.plane.cluster.pk)] == ["a", "b"]


def test_what_is_as_it_was_costs_no_request(work: Work) -> None:
    manifests = [work.plane.config_map("a", x="1"), work.plane.config_map("b", x="1")]
    work.apply(*manifests)
    work.plane.backend.count_anew()
    report = work.apply(*manifests)
    assert (len(report.skipped), report.changed) == (2, [])
    assert work.plane.backend.requests() == 0
    report = work.apply(work.plane.config_map("a", x="2"), manifests[1])
    assert (report.changed, report.skipped) == ([work.key("a")], [work.key("b")])
    assert work.plane.backend.writes() == 1


def test_the_order_is_that_in_which_objects_need_each_other() -> None:
    kinds = ["Deployment", "Service", "RoleBinding", "Role", "LimitRange", "Namespace", "ResourceQuota"]
    manifests = [{"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}} for kind in kinds]
    prepared = prepare(manifests, Owner(KIND, uuid7(), None, 1))
    assert [each.key.kind for each in prepared] == [
        "Namespace", "ResourceQuota", "LimitRange", "Role", "RoleBinding", "Service", "Deployment",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="same object: Service x"):
        prepare([*manifests, manifests[1]], Owner(KIND, uuid7(), None, 1))


def test_drift_is_repaired_and_what_did_not_drift_is_not_written(work: Work) -> None:
    work.apply(work.plane.config_map("a", x="1"), work.plane.config_map("b", x="1"))
    drifted = {**work.plane.config_map("a", x="mine"), "metadata": {"name": "a", "namespace": work.plane.namespace}}
    work.plane.client.apply(drifted, field_manager="kubectl-edit", force=True)
    work.plane.backend.count_anew()
    report = work.apply(
        work.plane.config_map("a", x="1"),
        work.plane.config_map("b", x="1"),
        suspect_drift=True,
        force=force_fields(".data"),
    )
    assert (report.changed, report.unchanged) == ([work.key("a")], [work.key("b")])
    assert [(one.manager, one.field) for one in report.forced[work.key("a")]] == [("kubectl-edit", ".data.x")]
    assert work.plane.backend.changes() == 1
    assert work.live("a")["data"] == {"x": "1"}


def test_a_comparison_finds_what_changed_and_what_is_missing_and_the_next_run_repairs_it(work: Work) -> None:
    manifests = [work.plane.config_map(name, x="1") for name in "abc"]
    work.apply(*manifests)
    listed = work.plane.client.list_all("v1", "ConfigMap", metadata_only=True).items
    assert differences(work.plane.cluster.pk, "v1", "ConfigMap", listed) == []
    a, b, _ = work.rows()
    work.plane.client.delete("v1", "ConfigMap", "a", work.plane.namespace, uid=a.uid)
    work.plane.client.patch_metadata("v1", "ConfigMap", "b", work.plane.namespace, uid=b.uid, labels={MANAGED_BY: None})
    listed = work.plane.client.list_all("v1", "ConfigMap", metadata_only=True).items
    rows = differences(work.plane.cluster.pk, "v1", "ConfigMap", listed)
    assert {row.name for row in rows} == {"a", "b"}
    assert (inventory_suspect(rows), inventory_suspect(rows)) == (2, 0)
    report = work.apply(*manifests, force=force_fields(".metadata.labels"))
    assert set(report.changed) == {work.key("a"), work.key("b")}
    assert report.skipped == [work.key("c")]
    assert work.live("b")["metadata"]["labels"] == work.owner.labels
    assert not any(row.drift_suspected for row in work.rows())
    assert work.rows()[0].uid != a.uid


def test_fields_of_others_stay_theirs_unless_the_policy_says_so(work: Work) -> None:
    work.apply(deployment(work.plane, replicas=1))
    work.plane.client.apply(deployment(work.plane, replicas=3), field_manager="autoscaler", force=True)
    with pytest.raises(errors.ApplyConflict) as caught:
        work.apply(work.plane.config_map("first"), deployment(work.plane, replicas=2))
    assert caught.value.managers == ("autoscaler",)
    assert [row.uid != "" for row in work.rows() if row.name == "first"] == [True], "what came before it is recorded"
    with pytest.raises(errors.ApplyConflict):
        work.apply(deployment(work.plane, replicas=2), force=force_fields(".spec.template"))
    report = work.apply(deployment(work.plane, replicas=2), force=force_fields(".spec"))
    assert [one.field for forced in report.forced.values() for one in forced] == [".spec.replicas"]


def test_an_object_of_somebody_else_is_not_adopted(work: Work) -> None:
    foreign = work.plane.client.apply(work.plane.config_map("a", theirs="1"), field_manager="helm")
    with pytest.raises(errors.ForeignObject) as caught:
        work.apply(work.plane.config_map("a", ours="1"))
    assert "did not make it (written by helm)" in caught.value.sentence
    assert work.live("a")["metadata"]["resourceVersion"] == foreign.object["metadata"]["resourceVersion"]
    report = work.delete()
    assert report.done
    assert work.live("a")["data"] == {"theirs": "1"}, "nor is it deleted"


def test_an_object_of_another_owner_is_not_taken(work: Work) -> None:
    work.apply(work.plane.config_map("a", x="1"))
    owner = Owner(KIND, uuid7(), None, 1)
    other = Work(work.plane, claim(owner.id, work.plane.cluster.pk), owner)
    with pytest.raises(errors.ForeignObject, match=str(work.owner.id)):
        other.apply(work.plane.config_map("a", x="2"))
    AppliedObject.objects.all().delete()  # even if our books were lost
    with pytest.raises(errors.ForeignObject, match=str(work.owner.id)):
        other.apply(work.plane.config_map("a", x="2"))
    assert work.live("a")["metadata"]["labels"][LABEL_OWNER] == str(work.owner.id)


# ---- pruning and deleting ----------------------------------------------------------------------------------


def test_pruning_deletes_what_older_generations_left_and_nothing_else(work: Work) -> None:
    a, b, c = (work.plane.config_map(name, x="1") for name in "abc")
    work.apply(a, b)
    report = work.apply(a, c, generation=1)
    assert report.pruned == [], "b was recorded by this very generation"
    report = work.apply(a, c, generation=2)
    assert (report.skipped, report.pruned) == ([work.key("a"), work.key("c")], [work.key("b")])
    assert is_gone(work.plane.client, "v1", "ConfigMap", "b", work.plane.namespace)
    assert [(row.name, row.generation) for row in work.rows()] == [("a", 2), ("c", 2)]
    with pytest.raises(Superseded):
        work.apply(a, b, generation=1)
    assert is_gone(work.plane.client, "v1", "ConfigMap", "b", work.plane.namespace)


def test_what_was_made_again_by_somebody_under_the_name_stays(work: Work) -> None:
    work.apply(work.plane.config_map("a", x="1"))
    uid = work.rows()[0].uid
    work.plane.client.delete("v1", "ConfigMap", "a", work.plane.namespace, uid=uid)
    work.plane.client.apply(work.plane.config_map("a", theirs="1"), field_manager="helm")
    assert work.apply(generation=2).pruned == [work.key("a")]
    assert work.live("a")["data"] == {"theirs": "1"}


def test_deleting_ends_when_the_cluster_says_that_it_is_gone(work: Work) -> None:
    held = work.plane.config_map("held")
    held["metadata"]["finalizers"] = ["contract.example/keep"]
    work.apply(held, work.plane.config_map("free"))
    report = work.delete()
    assert not report.done
    assert report.gone == [work.key("free")]
    assert [(left.key, left.why) for left in report.remaining] == [
        (work.key("held"), "it waits for the finalizers contract.example/keep")
    ]
    work.plane.backend.count_anew()
    assert not work.delete().done
    assert work.plane.backend.writes() == 0, "what is going already is not deleted again"
    assert [row.name for row in work.rows()] == ["held"]
    with pytest.raises(errors.Retryable, match="still being deleted"):
        work.apply(held, suspect_drift=True)
    live = work.live("held")
    labelled = {"labels": live["metadata"]["labels"], "name": "held", "namespace": work.plane.namespace}
    work.plane.client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": labelled})
    wait_until(lambda: is_gone(work.plane.client, "v1", "ConfigMap", "held", work.plane.namespace), "the deletion")
    assert work.delete().done
    assert work.rows() == []
    assert AppliedObject.objects.filter(owner_id=work.owner.id, deleted_at__isnull=False).count() == 2


def test_a_deployment_is_gone_only_after_its_pods(work: Work) -> None:
    work.apply(deployment(work.plane))
    wait_until(lambda: work.plane.client.list_all("v1", "Pod", namespace=work.plane.namespace).items, "a pod")
    wait_until(lambda: work.delete().done, "the deletion")
    assert work.plane.client.list_all("v1", "Pod", namespace=work.plane.namespace).items == []


def test_a_cluster_that_is_another_one_says_nothing_about_our_objects(work: Work) -> None:
    work.apply(work.plane.config_map("a"))
    # As if the address now led to a cluster that was set up anew.
    impostor = Cluster.objects.get(pk=work.plane.cluster.pk)
    client = KubeClient(work.plane.backend.credentials(), name="sut", cluster_id=impostor.pk, identity="the-old-one")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(KubeClient, "for_cluster", lambda cluster: client)
        work.plane.backend.count_anew()
        for call in (work.delete, lambda: work.apply(work.plane.config_map("b")), lambda: work.apply(generation=2)):
            with pytest.raises(errors.WrongCluster):
                call()
    assert work.plane.backend.writes() == 0
    assert {row.name for row in work.rows()} == {"a", "b"}


# ---- kills and fences --------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("point", ["after the rows", "after the first write", "before the record"])
def test_a_kill_at_any_point_leaves_books_that_the_next_run_can_go_by(
    point: str, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = work.plane.config_map("a", x="1"), work.plane.config_map("b", x="1")
    written = 0

    def dying_apply(*args: Any, **values: Any) -> Any:
        nonlocal written
        if point == "after the rows" or (point == "after the first write" and written == 1):
            raise Killed
        written += 1
        return apply_one(*args, **values)

    def dying_record(*args: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(inventory, "apply_one", dying_apply)
        patched.setattr(inventory, "_record", dying_record)
        with pytest.raises(Killed):
            work.apply(a, b)
    in_cluster = {
        item["metadata"]["name"]
        for item in work.plane.client.list_all("v1", "ConfigMap", namespace=work.plane.namespace).items
        if item["metadata"].get("labels")
    }
    assert in_cluster <= {row.name for row in work.rows()}, "nothing is there that the books do not know"
    # The next run wants something else: what the killed one made must go.
    report = work.apply(work.plane.config_map("c", x="1"), generation=2)
    assert set(report.pruned) == {work.key("a"), work.key("b")}
    assert [row.name for row in work.rows()] == ["c"]
    for name in "ab":
        assert is_gone(work.plane.client, "v1", "ConfigMap", name, work.plane.namespace)


def test_a_run_that_slept_past_its_lease_writes_nothing_more(work: Work) -> None:
    work.apply(work.plane.config_map("a", x="1"), work.plane.config_map("old"))
    expire(work)
    newer = Work(work.plane, claim(work.owner.id, work.plane.cluster.pk), work.owner)
    newer.apply(work.plane.config_map("a", x="2"), generation=2)
    before = work.live("a")["metadata"]["resourceVersion"]
    work.plane.backend.count_anew()
    stale: list[Callable[[], object]] = [
        lambda: work.apply(work.plane.config_map("a", x="1"), generation=1),
        lambda: work.apply(work.plane.config_map("a", x="3"), generation=3),
        work.delete,
    ]
    for call in stale:
        with pytest.raises(LeaseLost):
            call()
    assert work.plane.backend.writes() == 0
    assert work.live("a")["metadata"]["resourceVersion"] == before
    assert [(row.name, row.generation) for row in newer.rows()] == [("a", 2)]


def test_without_the_lease_check_the_late_run_would_have_written(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: with the check off the old run does write over the new one."""
    work.apply(work.plane.config_map("a", x="1"))
    expire(work)
    newer = Work(work.plane, claim(work.owner.id, work.plane.cluster.pk), work.owner)
    newer.apply(work.plane.config_map("a", x="2"), generation=2)
    monkeypatch.setattr(Claimed, "require", lambda self, seconds: None)
    monkeypatch.setattr(inventory, "_open_rows", lambda *args: {work.key("a"): AppliedObject(uid="")})
    with pytest.raises(LeaseLost):
        work.apply(work.plane.config_map("a", x="1"))
    assert work.live("a")["data"] == {"x": "1"}


def test_a_lease_that_ends_before_the_request_could_is_not_used(work: Work) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE kernel_workitem SET lease_until = now() + interval '20 seconds' WHERE id = %s", [work.item.item_id]
        )
    work.plane.backend.count_anew()
    with pytest.raises(LeaseLost):
        work.apply(work.plane.config_map("a"))
    assert work.plane.backend.writes() == 0


def test_an_observed_cluster_gets_no_write_from_a_reconciler_either(work: Work) -> None:
    work.apply(work.plane.config_map("a", x="1"))
    Cluster.objects.filter(pk=work.plane.cluster.pk).update(mode=Cluster.Mode.OBSERVE)
    work.plane.backend.count_anew()
    for call in (
        lambda: work.apply(work.plane.config_map("a", x="2")),
        lambda: work.apply(work.plane.config_map("b"), generation=2),
        lambda: work.apply(generation=3),
        work.delete,
    ):
        with pytest.raises(errors.ObserveOnly):
            call()
    assert work.plane.backend.writes() == 0
    Cluster.objects.filter(pk=work.plane.cluster.pk).update(mode=Cluster.Mode.MANAGE)
    assert work.delete().done
    assert work.plane.backend.writes() > 0
