"""What stands above a pod's controller is read once, where the rights reach, and said to be unread where they don't."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from infra.kube.client import KubeClient
from infra.kube.errors import Call, Forbidden, NotFound
from infra.models import Cluster, OwnerSight, PodObservation
from infra.pod_reading import read_pod
from infra.reconcilers.workloads import mark_all
from infra.rights import rights_report
from infra.services.changes import lock_changes
from infra.services.rights import rights_store
from infra.watcher.pods import store_pods
from portal.kernel import workqueue
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from tests.support.fleet import make_cluster
from tests.unit.infra.pods import pod

pytestmark = pytest.mark.django_db

CALL = Call("alpha", "get")
NOW = datetime(2026, 11, 29, tzinfo=UTC)


class Answers:
    """A client that answers by the controller's name."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.forbidden = True

    def require_identity(self) -> None:
        """It is the cluster."""

    def get(self, api_version: str, kind: str, name: str, namespace: str, *, metadata_only: bool) -> dict[str, Any]:
        assert metadata_only
        self.asked.append(f"{api_version} {kind} {namespace}/{name}")
        if name == "away":
            raise NotFound(CALL, "gone")
        if name == "hidden" and self.forbidden:
            raise Forbidden(CALL, "no right")
        owners = [{"kind": "CronJob", "name": "nightly", "controller": True}] if name == "nightly-1" else []
        return {"metadata": {"uid": "other" if name == "again" else f"uid-{name}", "ownerReferences": owners}}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    found = Answers()
    monkeypatch.setattr(KubeClient, "for_cluster", classmethod(lambda cls, cluster: found))
    return found


def see(cluster: Cluster, name: str, job: str) -> None:
    thing = pod(scheduled=0)
    thing["metadata"] |= {
        "name": name, "uid": name,
        "ownerReferences": [{"kind": "Job", "name": job, "uid": f"uid-{job}", "controller": True}],
    }  # fmt: skip
    with system_scope("test"):
        changes = lock_changes(cluster.pk)
        store_pods(cluster, [read_pod(thing, seen_at=NOW)], changes)
        changes.save()


def workloads() -> dict[str, tuple[str, str]]:
    return {
        row.name: (f"{row.workload_kind}/{row.workload_name}", row.workload_known)
        for row in PodObservation.objects.all()
    }


def run() -> None:
    mark_all()
    WorkItem.objects.exclude(kind="workloads").delete()
    workqueue.run_due()


def test_each_controller_is_read_once(answers: Answers) -> None:
    cluster = make_cluster(mode="observe")
    for name, job in (("a", "nightly-1"), ("b", "nightly-1"), ("c", "fit"), ("d", "away"), ("e", "again")):
        see(cluster, name, job)
    assert set(workloads().values()) == {
        (f"Job/{job}", "owner not read") for job in ("nightly-1", "fit", "away", "again")
    }  # fmt: skip
    run()
    assert sorted(answers.asked) == [f"batch/v1 Job team/{job}" for job in ("again", "away", "fit", "nightly-1")]
    assert workloads() == {
        "a": ("CronJob/nightly", "seen"), "b": ("CronJob/nightly", "seen"), "c": ("Job/fit", "seen"),
        "d": ("Job/away", "owner not readable"), "e": ("Job/again", "owner not readable"),
    }  # fmt: skip
    numbers = list(PodObservation.objects.order_by("name").values_list("changed_seq", flat=True))
    see(cluster, "f", "nightly-1")
    assert workloads()["f"] == ("CronJob/nightly", "seen"), "what was read is known at once"
    run()
    assert len(answers.asked) == 4
    assert numbers == list(
        PodObservation.objects.exclude(name="f").order_by("name").values_list("changed_seq", flat=True)
    ), "a workload's name is no reason to meter again"


def test_without_the_right_it_says_so_until_the_right_is_there(answers: Answers) -> None:
    cluster = make_cluster(mode="observe")
    see(cluster, "a", "hidden")
    run()
    assert workloads() == {"a": ("Job/hidden", "owner not readable")}
    assert OwnerSight.objects.get().state == OwnerSight.State.FORBIDDEN
    run()
    assert len(answers.asked) == 1
    answers.forbidden = False
    rights_store(cluster, rights_report("observe", lambda review: True, lambda: ""), at=NOW)
    run()
    assert workloads() == {"a": ("Job/hidden", "seen")}
