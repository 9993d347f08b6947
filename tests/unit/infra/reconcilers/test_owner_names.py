"""Whose child a pod is, anybody may write who makes one: no such text may keep others' workloads from being told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from infra.kube.client import KubeClient
from infra.kube.errors import Call, Permanent
from infra.models import Cluster, PodObservation
from infra.pod_reading import read_pod
from infra.reconcilers.workloads import mark_all
from infra.services.changes import lock_changes
from infra.watcher.pods import store_pods
from portal.kernel import workqueue
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from tests.support.fleet import make_cluster
from tests.unit.infra.pods import pod

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 29, tzinfo=UTC)


class Answers:
    """Has every controller, and answers a name with a slash as the address of a subresource that can't be read so."""

    def require_identity(self) -> None:
        """It is the cluster."""

    def get(self, api_version: str, kind: str, name: str, namespace: str, *, metadata_only: bool) -> dict[str, Any]:
        if "/" in name:
            raise Permanent(Call("alpha", "get"), "not acceptable", status=406)
        return {"metadata": {"uid": f"uid-{name}"}}


def see(cluster: Cluster, name: str, job: str, uid: str) -> None:
    thing = pod(scheduled=0)
    owner = {"kind": "Job", "name": job, "uid": uid, "controller": True}
    thing["metadata"] |= {"name": name, "uid": name, "ownerReferences": [owner]}
    with system_scope("test"):
        changes = lock_changes(cluster.pk)
        store_pods(cluster, [read_pod(thing, seen_at=NOW)], changes)
        changes.save()


@pytest.mark.parametrize(
    ("job", "uid"), [("x/scale", "uid-x"), ("x" * 300, "uid-x"), ("x", "u" * 100), ("../../x", "uid-x"), ("X y", "u")]
)
def test_an_owner_that_can_not_be_is_no_hindrance(monkeypatch: pytest.MonkeyPatch, job: str, uid: str) -> None:
    monkeypatch.setattr(KubeClient, "for_cluster", classmethod(lambda cls, cluster: Answers()))
    cluster = make_cluster(mode="observe")
    see(cluster, "a-strange", job, uid)
    see(cluster, "b-usual", "fit", "uid-fit")
    mark_all()
    WorkItem.objects.exclude(kind="workloads").delete()
    workqueue.run_due()
    known = dict(PodObservation.objects.values_list("name", "workload_known"))
    assert known == {"a-strange": "owner not readable", "b-usual": "seen"}
