"""A cluster that others use is connected with the observe role: all of it is seen, and nothing is written to it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from infra.kube.client import KubeClient
from infra.kube.errors import ObserveOnly
from infra.kube.kubeconfig import Credentials
from infra.models import Cluster, NamespaceClaim, NamespaceSight, Node, PodObservation
from infra.rights import RightsReport
from infra.services.claim_rules import claim_rule_create
from infra.services.clusters import cluster_connect, site_create
from infra.services.rights import cluster_check_rights
from portal.kernel import crypto, workqueue
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow
from portal.kernel.conditions import get_condition
from portal.kernel.ids import uuid7
from portal.kernel.problems import Invalid
from portal.kernel.scoping import system_scope
from tests.cluster.backends import Backend, RealBackend, SimulatorBackend
from tests.cluster.conftest import REAL, until_pods_are_taken
from tests.cluster.test_watcher import eventually, watching
from tests.support.simulator import fresh_simulator
from tests.support.tenants import make_tenant

FIXTURES = (fresh_simulator,)  # found by its name

pytestmark = pytest.mark.django_db(transaction=True)
ADMIN = Actor(kind="user", name="mia", user_id=uuid7(), platform_role="platform-admin")


class Others:
    """Whoever used the cluster before us: makes what is there, with rights of their own."""

    def __init__(self, backend: Backend) -> None:
        self.namespace = f"team-o-{uuid.uuid4().hex[:8]}"
        self._row = backend.connect()
        self._client = KubeClient.for_cluster(self._row)
        self.apply("v1", "Namespace", self.namespace, {}, labels={"team": "vision"}, namespace="")
        until_pods_are_taken(self._client, self.namespace)

    def apply(
        self, version: str, kind: str, name: str, body: dict[str, Any], *, labels: dict[str, str] | None = None,
        namespace: str | None = None,
    ) -> None:  # fmt: skip
        """Make an object, or change it."""
        where = self.namespace if namespace is None else namespace
        metadata = {"name": name, "labels": labels or {}} | ({"namespace": where} if where else {})
        self._client.apply({"apiVersion": version, "kind": kind, "metadata": metadata, **body})

    def leave(self) -> None:
        """Only the cluster remains of them; the portal forgets that it ever spoke to it."""
        with system_scope("test"):
            Cluster.objects.filter(pk=self._row.pk).delete()


def template(labels: dict[str, str], *, restart: str = "Always") -> dict[str, Any]:
    card = {"limits": {"nvidia.com/gpu": "1"}}
    return {
        "metadata": {"labels": labels},
        "spec": {
            "restartPolicy": restart,
            "containers": [{"name": "main", "image": "example.invalid/x:1", "resources": card}],
        },
    }


@pytest.fixture(params=["simulator", REAL])
def backend(request: pytest.FixtureRequest) -> SimulatorBackend | RealBackend:
    """Each control plane in turn."""
    if request.param == "real":
        return RealBackend(request.getfixturevalue("real_planes")["gpu-fra-1"])
    return SimulatorBackend(request.getfixturevalue("fresh_simulator")["gpu-fra-1"])


@pytest.fixture
def others(backend: SimulatorBackend | RealBackend) -> Iterator[Others]:
    """A Deployment, a Job and a bare pod with a card each."""
    found = Others(backend)
    serve = {"app": "serve"}
    found.apply(
        "apps/v1", "Deployment", "serve",
        {"spec": {"replicas": 1, "selector": {"matchLabels": serve}, "template": template(serve)}},
    )  # fmt: skip
    found.apply("batch/v1", "Job", "fit", {"spec": {"template": template({}, restart="Never")}})
    found.apply("v1", "Pod", "lone", {"spec": template({})["spec"]})
    found.leave()
    yield found
    served = backend._real if isinstance(backend, RealBackend) else backend._simulated
    served.call("DELETE", f"/api/v1/namespaces/{found.namespace}")


def test_everything_is_seen_and_nothing_written(backend: Backend, others: Others) -> None:
    tenant = make_tenant("vision")
    site = site_create(slug="lab", actor=ADMIN)
    claim_rule_create(kind="label", label_key="team", by_slug=True, valid_from=utcnow(), actor=ADMIN)
    backend.count_anew()
    text = backend.observe_kubeconfig.read_text()
    cluster = cluster_connect(slug="seen", site=site, mode="observe", kubeconfig=text, actor=ADMIN)
    mine = PodObservation.objects.filter(cluster=cluster, namespace=others.namespace)
    with watching():
        eventually(lambda: mine.filter(started_at__isnull=False).count() == 3)
        eventually(lambda: Node.objects.filter(cluster=cluster).count() >= 2)
        eventually(lambda: NamespaceClaim.objects.filter(namespace=others.namespace).exists())
        cluster_check_rights(cluster=cluster, actor=ADMIN)
        until = time.monotonic() + 60
        while workqueue.run_due() and time.monotonic() < until:
            pass
    if isinstance(backend, SimulatorBackend) and backend.exporter:
        namespace, service, port = backend.exporter
        assert KubeClient.for_cluster(cluster).service_proxy_get(namespace, service, port, "metrics")
    with pytest.raises(ObserveOnly):
        KubeClient.for_cluster(cluster).apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": others.namespace}}
        )
    # Reviews of our own rights are questions, though they are sent by POST: nothing of them is stored.
    assert (backend.writes(), backend.changes()) == (0, 0)
    assert backend.requests() > 5, "what is asked is counted"

    found = {row.workload_kind: (row.workload_name, row.workload_known) for row in mine}
    assert found["Deployment"] == ("serve", "inferred")
    assert found["Pod"] == ("lone", "seen")
    assert found["Job"][0] == "fit"
    sight = NamespaceSight.objects.get(cluster=cluster, name=others.namespace)
    assert sight.labels == {"team": "vision"}
    claim = NamespaceClaim.objects.get(namespace=others.namespace)
    assert (claim.tenant_id, claim.source, claim.inferred) == (tenant.pk, "label", True)
    cluster.refresh_from_db()
    condition = get_condition(cluster.conditions, "RightsComplete")
    assert condition is not None
    assert condition.status == "True"
    report = RightsReport.load(cluster.rights)
    assert report is not None
    assert not report.could_write, [str(right) for right in report.excess]


def test_a_right_that_goes_is_named_and_its_coming_back_too(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    site = site_create(slug="lab", actor=ADMIN)
    text = backend.observe_kubeconfig.read_text()
    cluster = cluster_connect(slug="seen", site=site, mode="observe", kubeconfig=text, actor=ADMIN)

    def condition() -> tuple[str, str, str]:
        cluster_check_rights(cluster=cluster, actor=ADMIN)
        workqueue.run_due()
        cluster.refresh_from_db()
        found = get_condition(cluster.conditions, "RightsComplete")
        assert found is not None
        return found.status, found.reason, found.message

    assert condition()[0] == "True"
    whole = KubeClient.access_review
    monkeypatch.setattr(
        KubeClient, "access_review", lambda self, review: str(review) != "watch nodes" and whole(self, review)
    )
    status, reason, message = condition()
    assert (status, reason) == ("False", "RightsMissing")
    assert "watch nodes" in message
    report = RightsReport.load(cluster.rights)
    assert report is not None
    assert report.subject.startswith("system:serviceaccount:")
    assert "--serviceaccount=" in report.missing[0].command
    monkeypatch.undo()
    assert condition()[0] == "True"


def test_an_administrator_s_kubeconfig_is_told_to_be_too_much(backend: Backend) -> None:
    site = site_create(slug="lab", actor=ADMIN)
    text = backend.kubeconfig.read_text()
    cluster = cluster_connect(slug="seen", site=site, mode="observe", kubeconfig=text, actor=ADMIN)
    report = RightsReport.load(cluster.rights)
    assert report is not None
    assert report.could_write
    assert "create pods" in [str(right) for right in report.excess]
    workqueue.run_due()
    cluster.refresh_from_db()
    assert Credentials.loads(crypto.decrypt(cluster.kubeconfig_ciphertext)).server == cluster.api_server


def test_what_is_missing_to_manage_is_listed_with_what_gives_it(backend: Backend) -> None:
    site = site_create(slug="lab", actor=ADMIN)
    with pytest.raises(Invalid) as caught:
        cluster_connect(
            slug="seen", site=site, mode="manage", kubeconfig=backend.observe_kubeconfig.read_text(), actor=ADMIN
        )
    report = RightsReport.load(caught.value.extra["rights"])
    assert report is not None
    commands = {str(right): right.command for right in report.missing}
    assert "create namespaces" in commands
    assert all(command.startswith("kubectl create clusterrole aifactory-manage-") for command in commands.values())
