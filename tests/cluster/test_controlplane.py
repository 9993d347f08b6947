"""The real control planes themselves: what they hold, what is told of them, and that they end with all they started."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.kube.access import OPTIONAL, reviews
from infra.kube.client import KubeClient
from infra.kube.kubeconfig import parse_kubeconfig
from portal.kernel.clock import utcnow
from tests.support.controlplane import ControlPlanes, RealCluster, control_planes
from tests.support.prometheus import exporter, prometheus
from tests.support.simulator import SimulatorProcess

pytestmark = pytest.mark.cluster
GPU = "nvidia.com/gpu"


def eventually(ask: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
    """What ``ask`` answers as soon as that is true."""
    until = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < until, f"{what} did not come about within {seconds:.0f} s"
        time.sleep(0.1)
    return answer


@pytest.fixture
def cluster(real_planes: ControlPlanes) -> RealCluster:
    return real_planes["gpu-fra-1"]


@pytest.fixture
def namespace(cluster: RealCluster) -> Iterator[str]:
    """A namespace in which pods can be made."""
    name = f"own-{uuid.uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert cluster.call("POST", "/api/v1/namespaces", body)[0] == 201
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    eventually(lambda: cluster.call("GET", account)[0] == 200, "the namespace's service account")
    yield name
    cluster.call("DELETE", f"/api/v1/namespaces/{name}")


def make_pod(cluster: RealCluster, namespace: str, name: str, gpus: int = 0, **annotations: str) -> None:
    resources = {"limits": {GPU: str(gpus)}} if gpus else {}
    body = {
        "metadata": {"name": name, "annotations": {f"sim.aifactory.dev/{k}": v for k, v in annotations.items()}},
        "spec": {
            "restartPolicy": "Never" if "run-for" in annotations else "Always",
            "containers": [{"name": "main", "image": "example.invalid/x:1", "resources": resources}],
        },
    }
    status, answer = cluster.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)
    assert status == 201, answer


def pod_status(cluster: RealCluster, namespace: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")[1]
    return found.get("status", {})


def test_the_nodes_are_those_of_the_simulated_fleet(
    real_planes: ControlPlanes, simulated_fleet: SimulatorProcess
) -> None:
    for name, real in real_planes.items():
        facts = []
        for each in (real, simulated_fleet[name]):
            nodes = each.call("GET", "/api/v1/nodes")[1]["items"]
            facts.append({n["metadata"]["name"]: (n["metadata"]["labels"], n["status"]["capacity"]) for n in nodes})
        assert facts[0] == facts[1]
        assert facts[0]


def test_the_service_accounts_have_the_rights_of_their_roles_and_no_more(cluster: RealCluster) -> None:
    manager, observer = (
        KubeClient(parse_kubeconfig(path.read_text(), now=utcnow()), name="sut")
        for path in (cluster.manage_kubeconfig, cluster.observe_kubeconfig)
    )
    lacking = [str(review) for review in reviews("manage") if not manager.access_review(review)]
    assert lacking == []
    assert [str(review) for review in reviews("observe") if not observer.access_review(review)] == []
    optional = {review for rule in OPTIONAL for review in rule.reviews()}
    assert [str(review) for review in sorted(optional, key=str) if not observer.access_review(review)] == []
    more = set(reviews("manage")) - set(reviews("observe")) - optional
    assert [str(review) for review in more if observer.access_review(review)] == []
    assert cluster.call("GET", "/api/v1/namespaces/kube-system/secrets", observe=True)[0] == 403


def test_the_audit_log_tells_who_wrote(cluster: RealCluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    before = cluster.audit.mark()
    assert cluster.call("GET", path)[0] == 200
    assert cluster.call("POST", path, {"metadata": {"name": "a"}})[0] == 201
    assert cluster.call("POST", f"{path}?dryRun=All", {"metadata": {"name": "b"}})[0] == 201
    assert cluster.call("POST", path, {"metadata": {"name": "c"}}, observe=True)[0] == 403
    observer = "system:serviceaccount:aifactory:portal-observe"
    mine = [one for one in cluster.audit.asked(since=before) if one.namespace == namespace]
    assert [(one.user, one.verb, one.code) for one in mine] == [
        ("admin", "list", 200), ("admin", "create", 201), ("admin", "create", 201), (observer, "create", 403),
    ]  # fmt: skip
    assert [one.name for one in cluster.audit.writes(since=before, user="admin")] == ["a"]
    assert [one.name for one in cluster.audit.changes(since=before, user="admin")] == ["a"]
    assert len(cluster.audit.writes(since=before, user=observer)) == 1
    assert cluster.audit.changes(since=before, user=observer) == []


def test_pods_live_as_their_annotations_say(cluster: RealCluster, namespace: str) -> None:
    make_pod(cluster, namespace, "ends", **{"run-for": "1s"})
    make_pod(cluster, namespace, "crashes", **{"crash-after": "1s"})
    make_pod(cluster, namespace, "stays")
    eventually(lambda: pod_status(cluster, namespace, "ends").get("phase") == "Succeeded", "the end")
    eventually(lambda: pod_status(cluster, namespace, "stays").get("phase") == "Running", "a running pod")

    def crashed() -> Any:
        rows = pod_status(cluster, namespace, "crashes").get("containerStatuses") or [{}]
        return rows[0].get("restartCount", 0) >= 1 and rows[0]

    row = eventually(crashed, "a restart")
    assert row["lastState"]["terminated"]["exitCode"] == 1
    assert row["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff" or "running" in row["state"]


def test_the_exporters_tell_which_card_a_pod_holds(
    real_planes: ControlPlanes, cluster: RealCluster, namespace: str, tmp_path: Path
) -> None:
    with exporter(cluster) as told:
        pages = {"dcgm-exporter": told.dcgm, "kube-state-metrics": told.kube_state}
        with prometheus(tmp_path, pages, labels={"cluster": cluster.name}) as server:
            make_pod(cluster, namespace, "busy", gpus=2, **{"gpu-util": "80"})
            who = f'namespace="{namespace}",pod="busy"'
            found = server.wait_for(f"DCGM_FI_DEV_GPU_UTIL{{{who}}} == 80")
            held = {row["uuid"] for row in told.cards() if row["namespace"] == namespace}
            assert {one["metric"]["UUID"] for one in found} == held
            assert len(held) == 2
            (info,) = server.wait_for(f"kube_pod_info{{{who}}}")
            assert info["metric"]["cluster"] == cluster.name
            assert info["metric"]["uid"] in {row["uid"] for row in told.cards()}
            (asked,) = server.wait_for(f'kube_pod_container_resource_requests{{{who},resource="nvidia_com_gpu"}}')
            assert asked["value"][1] == "2"
            told.order(f"cards/{min(held)}/xid", {"xid": 79})
            server.wait_for(f'DCGM_FI_DEV_XID_ERRORS{{{who},UUID="{min(held)}"}} == 79')
            cluster.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/busy")
            eventually(lambda: not [one for one in told.cards() if one["namespace"] == namespace], "free cards")


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists() and _command(pid)]


def _command(pid: int) -> bytes:
    """Empty for a zombie, and for what is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_it_ends_with_all_it_started_and_comes_back_with_what_it_held(tmp_path: Path) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}}

    def running(planes: ControlPlanes) -> list[int]:
        pids = [int(path.read_text()) for path in planes["gpu-hel-1"].run.glob("*.pid")]
        assert len(pids) == 5, "etcd, API server, controllers, scheduler, kwok"
        assert alive(pids) == pids
        return pids

    with control_planes(tmp_path, "gpu-hel-1", arguments=("--bare",)) as planes:
        assert planes["gpu-hel-1"].call("POST", "/api/v1/namespaces", body)[0] == 201
        first = planes["gpu-hel-1"].call("GET", "/api/v1/namespaces/kube-system")[1]["metadata"]["uid"]
        pids = running(planes)
        os.kill(planes.process.pid, signal.SIGKILL)
        eventually(lambda: not alive(pids), "the end of all parts after the kill of their parent")
    with control_planes(tmp_path, "gpu-hel-1", arguments=("--bare",)) as planes:
        assert planes["gpu-hel-1"].call("GET", "/api/v1/namespaces/kept")[0] == 200
        again = planes["gpu-hel-1"].call("GET", "/api/v1/namespaces/kube-system")[1]["metadata"]["uid"]
        assert again == first, "the same cluster"
        pids = running(planes)
        assert planes.stop(patience=40) == 0
        assert alive(pids) == []
