"""The probe of a connected cluster writes what it found, whatever that is."""

import datetime as dt
from typing import Any

import pytest

from infra.kube.errors import Unreachable
from infra.kube.kubeconfig import Credentials
from infra.models import Cluster
from infra.reconcilers.cluster import CREDENTIALS_VALID, REACHABLE, mark_all
from portal.kernel import crypto, workqueue
from portal.kernel.conditions import Condition, get_condition
from portal.kernel.models import WorkItem
from tests.unit.infra.kube.recorded import Canned, Replay, canned, serve
from tests.unit.infra.kube.test_guard import make_cluster

pytestmark = pytest.mark.django_db

UID = "a9b1ba42-c7c4-43c3-9e46-1a3664f62e41"
HEALTHY = ("api-version.json", "api-namespace-terminating.json")
NOW = dt.datetime.now(dt.UTC)


def _run(*answers: Canned, **values: Any) -> tuple[Cluster, Condition, Condition]:
    with serve(Replay(*answers)) as replay:
        stored = crypto.encrypt(Credentials(server=replay.url, token="t").dumps())
        cluster = Cluster.objects.first() or make_cluster(kubeconfig_ciphertext=stored, **{"identity": UID} | values)
        Cluster.objects.filter(pk=cluster.pk).update(kubeconfig_ciphertext=stored)
        mark_all()
        assert workqueue.run_due() == 1
    cluster.refresh_from_db()
    item = WorkItem.objects.get(kind="cluster", object_id=cluster.pk)
    assert (item.next_attempt_at, item.last_error) == (None, ""), "a finding is no failure"
    reachable = get_condition(cluster.conditions, REACHABLE)
    valid = get_condition(cluster.conditions, CREDENTIALS_VALID)
    assert reachable is not None
    assert valid is not None
    return cluster, reachable, valid


def test_a_cluster_that_answers() -> None:
    cluster, reachable, valid = _run(*map(canned, HEALTHY))
    assert (reachable.status, valid.status) == ("True", "True")
    assert cluster.kubernetes_version == "v1.35.4"
    assert cluster.last_seen_at is not None


def test_credentials_that_are_not_accepted() -> None:
    cluster, reachable, valid = _run(canned("api-unauthorized-401.json"))
    assert (reachable.status, valid.status, valid.reason) == ("True", "False", "Unauthorized")
    assert "rotate" in valid.message
    assert cluster.last_seen_at is None


def test_a_cluster_that_is_away_keeps_what_was_known() -> None:
    cluster, first, _ = _run(*map(canned, HEALTHY))
    seen = cluster.last_seen_at
    Cluster.objects.update(
        kubeconfig_ciphertext=crypto.encrypt(Credentials(server="http://127.0.0.1:9", token="t").dumps())
    )
    mark_all()
    workqueue.run_due()
    cluster.refresh_from_db()
    reachable, valid = (get_condition(cluster.conditions, each) for each in (REACHABLE, CREDENTIALS_VALID))
    assert reachable is not None
    assert valid is not None
    assert (reachable.status, reachable.reason) == ("False", Unreachable.__name__)
    assert valid.status == "Unknown"
    assert (cluster.last_seen_at, cluster.kubernetes_version) == (seen, "v1.35.4")
    assert first.last_transition_time is not None


def test_an_overloaded_cluster_is_not_called_away() -> None:
    _, reachable, valid = _run(canned("api-overload-429-inflight.txt"))
    assert (reachable.status, valid.status) == ("Unknown", "Unknown")


def test_an_address_that_leads_elsewhere() -> None:
    _, reachable, _ = _run(*map(canned, HEALTHY), identity="another")
    assert (reachable.status, reachable.reason) == ("False", "WrongCluster")


@pytest.mark.parametrize(
    ("ends", "status", "reason"),
    [
        (NOW + dt.timedelta(days=30), "True", "Accepted"),
        (NOW + dt.timedelta(days=3), "True", "ExpiresSoon"),
        (NOW - dt.timedelta(days=1), "False", "Expired"),
    ],
)
def test_credentials_that_end(ends: dt.datetime, status: str, reason: str) -> None:
    _, _, valid = _run(*map(canned, HEALTHY), credential_expires_at=ends)
    assert (valid.status, valid.reason) == (status, reason)


def test_an_abandoned_cluster_is_not_probed() -> None:
    cluster = make_cluster(abandoned_at=NOW, kubeconfig_ciphertext=b"")
    mark_all()
    assert not WorkItem.objects.filter(object_id=cluster.pk).exists()
    workqueue.mark("cluster", cluster.pk, cluster_id=cluster.pk)
    workqueue.run_due()
    assert Cluster.objects.get().conditions == []
