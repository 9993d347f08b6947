"""Credentials renewed by a real API server: its own tokens, the shipped right, and what people are told without it."""

from __future__ import annotations

import shlex
import subprocess
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.utils import timezone

from infra.kube.client import KubeClient
from infra.kube.kubeconfig import Credentials
from infra.models import Cluster
from infra.reconcilers import cluster as probing
from infra.reconcilers.renewal import CREDENTIALS_RENEWED
from infra.services.clusters import WORK_KIND, cluster_connect, site_create
from portal.kernel import crypto, workqueue
from portal.kernel.conditions import Condition, get_condition
from portal.kernel.models import AuditEvent
from portal.kernel.scoping import system_scope
from tests.support.controlplane import ControlPlanes, RealCluster
from tests.support.estate import ADMIN, work

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

ROLES = Path(__file__).resolve().parents[2] / "deploy" / "clusterroles"
NAMESPACE, ACCOUNT = "aifactory", "portal"
LIFE = 600  # seconds; the API server gives no shorter ones


@pytest.fixture
def real(real_planes: ControlPlanes) -> RealCluster:
    """A real API server."""
    return real_planes["gpu-fra-1"]


@pytest.fixture
def connected(real: RealCluster) -> Cluster:
    """The cluster, connected to be observed with a short-lived token of the portal's own account there."""
    metadata = {"name": ACCOUNT, "namespace": NAMESPACE}
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    real.call("POST", accounts, {"metadata": metadata})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "aifactory-observe"}
    binding = {
        "metadata": {"name": "aifactory-observe-renewed"}, "roleRef": role,
        "subjects": [{"kind": "ServiceAccount", **metadata}],
    }  # fmt: skip
    real.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    status, answer = real.call("POST", f"{accounts}/{ACCOUNT}/token", {"spec": {"expirationSeconds": LIFE}})
    assert status == 201, answer
    token = answer["status"]["token"]
    config: dict[str, Any] = yaml.safe_load(real.kubeconfig.read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    site = site_create(slug="lab", actor=ADMIN)
    return cluster_connect(slug="eu-1", site=site, mode="observe", kubeconfig=yaml.safe_dump(config), actor=ADMIN)


def stored(cluster: Cluster) -> Credentials:
    cluster.refresh_from_db()
    return Credentials.loads(crypto.decrypt(cluster.kubeconfig_ciphertext))


def probed(cluster: Cluster) -> Condition:
    """What the probe now says of the renewal."""
    workqueue.mark(WORK_KIND, cluster.pk, cluster_id=cluster.pk, cause="resync")
    work(WORK_KIND)
    cluster.refresh_from_db()
    found = get_condition(cluster.conditions, CREDENTIALS_RENEWED)
    assert found is not None, cluster.conditions
    return found


def test_a_token_is_renewed_with_the_shipped_right_and_without_it_people_are_told_how(
    real_planes: ControlPlanes, connected: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stored(connected).token
    lacking = probed_anew(connected)
    assert lacking.reason == "RightMissing"
    # As told, word for word, and only then by the shipped file: both must do.
    command = lacking.message[lacking.message.index("kubectl create role ") :]
    for each in command.split(" && "):
        kubectl(real_planes, *shlex.split(each)[1:])
    eventually_will_renew(connected)
    names = kubectl(real_planes, "-n", NAMESPACE, "get", "role,rolebinding", "-o", "name").split()
    kubectl(real_planes, "-n", NAMESPACE, "delete", *[name for name in names if "renew" not in name])
    kubectl(real_planes, "apply", "-f", str(ROLES / "renew.yaml"))
    eventually_will_renew(connected)
    assert stored(connected).token == first

    time.sleep(1.1)  # tokens tell whole seconds: the new one must end later
    later = timezone.now() + timedelta(seconds=LIFE * 2 / 3 + 5)
    monkeypatch.setattr(probing.timezone, "now", lambda: later)
    assert probed(connected).reason == "Renewed"
    monkeypatch.undo()
    fresh = stored(connected)
    assert fresh.token not in (None, first)
    client = KubeClient.for_cluster(connected)
    assert client.subject() == f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    client.require_identity()
    assert fresh.expires_at == connected.credential_expires_at
    with system_scope("test"):
        (event,) = AuditEvent.objects.filter(verb="cluster_renew_credentials")
    assert str(fresh.token) not in f"{event.before}{event.after}{connected.conditions}"


def eventually_will_renew(cluster: Cluster) -> None:
    """The authorizer takes up a binding with a delay, and rights are asked for every ten minutes only."""
    until = time.monotonic() + 60
    while (found := probed_anew(cluster)).reason != "WillRenew":
        assert time.monotonic() < until, found
        time.sleep(0.5)


def probed_anew(cluster: Cluster) -> Condition:
    Cluster.objects.filter(pk=cluster.pk).update(rights_checked_at=None)
    return probed(cluster)


def kubectl(planes: ControlPlanes, *arguments: str) -> str:
    done = subprocess.run(
        [planes.programs["kubectl"], "--kubeconfig", str(planes["gpu-fra-1"].kubeconfig), *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout
