"""Faults, counts, restarts, command line: what tests of other parts lean on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import urllib3
from kubernetes.dynamic.exceptions import DynamicApiError, InternalServerError, TooManyRequestsError

from simulator.fleet import FleetError, load
from tests.support.served import ROOT
from tests.support.simulator import SimulatorProcess, simulator
from tests.unit.simulator.conftest import Client, deployment, pod, wait_for
from tests.unit.simulator.test_server_objects import ready
from tests.unit.simulator.test_server_workloads import settled


@pytest.fixture
def client(simulated_fleet: SimulatorProcess, tmp_path: Path) -> Any:
    """A cluster that no other file counts requests on."""
    found = Client(simulated_fleet["gpu-hel-1"], tmp_path)
    yield found
    found.cluster.sim("DELETE", "faults")


def test_faults_meet_the_requests_they_name(client: Client) -> None:
    ns = client.namespace()
    client.cluster.sim("POST", "faults", {"verb": "patch", "resource": "deployments", "status": 500, "count": 2})
    client.pods.get(namespace=ns)
    for _ in range(2):
        with pytest.raises(InternalServerError):
            client.apply(deployment("web", ns, 0))
    client.apply(deployment("web", ns, 0))
    assert client.cluster.sim("GET", "faults") == {"waiting": []}
    client.cluster.sim("POST", "faults", {"verb": "write", "namespace": ns, "status": 429, "retry_after": 7})
    with pytest.raises(TooManyRequestsError) as refused:
        client.kind("ConfigMap").create(body={"metadata": {"name": "a"}}, namespace=ns)
    assert (refused.value.headers or {})["Retry-After"] == "7"


def test_an_answer_that_gets_lost(client: Client) -> None:
    ns = client.namespace()
    client.cluster.sim("POST", "faults", {"verb": "create", "resource": "configmaps", "status": 504, "after": True})
    with pytest.raises(DynamicApiError):
        client.kind("ConfigMap").create(body={"metadata": {"name": "a"}}, namespace=ns)
    assert client.kind("ConfigMap").get(name="a", namespace=ns).metadata.uid


def test_hanging_slow_and_cut_answers(client: Client) -> None:
    pool = client.api.rest_client.pool_manager
    url = client.cluster.server + "/api/v1/nodes"
    headers = {"Authorization": client.authorization}
    client.cluster.sim("POST", "faults", {"verb": "list", "resource": "nodes", "hang": True})
    with pytest.raises(urllib3.exceptions.ReadTimeoutError):
        pool.request("GET", url, headers=headers, timeout=0.5, retries=False)
    client.cluster.sim("POST", "faults", {"verb": "list", "resource": "nodes", "cut": True})
    with pytest.raises(urllib3.exceptions.ProtocolError):
        pool.request("GET", url, headers=headers, timeout=10, retries=False)
    client.cluster.sim("POST", "faults", {"verb": "list", "resource": "nodes", "latency": 0.2})
    assert pool.request("GET", url, headers=headers, timeout=10, retries=False).status == 200


def test_a_fault_that_can_not_be_read_is_refused(client: Client) -> None:
    with pytest.raises(AssertionError, match="unknown in a fault: colour"):
        client.cluster.sim("POST", "faults", {"colour": "red"})
    with pytest.raises(AssertionError, match="there is no control"):
        client.cluster.sim("POST", "nonsense")
    code, _ = client.cluster.call("GET", "/sim/state", observe=True)
    assert code == 403


def test_requests_are_counted(client: Client) -> None:
    ns = client.namespace()
    body = deployment("web", ns, 0)
    client.apply(body)
    wait_for(lambda: settled(client, ns, "web"), "the controllers to be done")
    client.cluster.sim("DELETE", "requests")
    client.deployments.get(name="web", namespace=ns)
    client.apply(body, dry_run="All")
    counted = client.cluster.sim("GET", "requests")
    assert (counted["writes"], counted["changes"], counted["dry_runs"]) == (0, 0, 1)
    client.apply(body)
    counted = client.cluster.sim("GET", "requests")
    assert (counted["writes"], counted["changes"]) == (1, 0)
    body["spec"]["paused"] = True
    client.apply(body)
    assert client.cluster.sim("GET", "requests")["changes"] == 1


def test_a_restart_finds_everything(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with simulator(state, clusters=("gpu-fra-1",)) as first:
        one = Client(first["gpu-fra-1"], tmp_path)
        ns = one.namespace()
        one.apply(deployment("web", ns, 2, limits={"nvidia.com/gpu": "1"}))
        wait_for(lambda: settled(one, ns, "web"), "the roll-out")
        before = {p["metadata"]["uid"]: p for p in one.pods_in(ns)}
        token = one.authorization
        version = one.pods.get(namespace=ns).metadata.resourceVersion
        assert first.stop() == 0
    with simulator(state, clusters=("gpu-fra-1",)) as second:
        two = Client(second["gpu-fra-1"], tmp_path)
        assert two.authorization == token
        after = {p["metadata"]["uid"]: p for p in two.pods_in(ns)}
        assert set(after) == set(before)
        for uid, found in after.items():
            assert found["status"]["containerStatuses"] == before[uid]["status"]["containerStatuses"]
            assert found["spec"]["nodeName"] == before[uid]["spec"]["nodeName"]
        assert int(two.pods.get(namespace=ns).metadata.resourceVersion) >= int(version)
        path = f"/api/v1/namespaces/{ns}/pods?watch=1&resourceVersion=2&timeoutSeconds=2"
        assert two.cluster.call("GET", path)[1]["object"]["code"] == 410
        whole = two.apply(deployment("web", ns, 3, limits={"nvidia.com/gpu": "1"}))
        assert whole.metadata.generation == 2
        wait_for(lambda: settled(two, ns, "web"), "a third replica")
        assert set(before) < {p["metadata"]["uid"] for p in two.pods_in(ns)}
        second.stop(signal.SIGKILL)
    with simulator(state, clusters=("gpu-fra-1",)) as third:
        # killed: what was saved last is there, and no version is given out twice
        again = Client(third["gpu-fra-1"], tmp_path)
        assert set(before) <= {p["metadata"]["uid"] for p in again.pods_in(ns)}
        assert int(again.pods.get(namespace=ns).metadata.resourceVersion) > int(whole.metadata.resourceVersion) + 1000
        code, line = again.cluster.call(
            "GET", f"/api/v1/pods?watch=1&resourceVersion={whole.metadata.resourceVersion}&timeoutSeconds=2"
        )
        assert (code, line["object"]["code"]) == (200, 410)


def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib, time; from tests.support.simulator import start_simulator; "
        "running = start_simulator(pathlib.Path(sys.argv[1]), clusters=('gpu-hel-1',)); "
        "print(running.process.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "s")], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout
    pid = int(parent.stdout.readline())
    os.kill(pid, 0)
    parent.kill()
    parent.wait()
    parent.stdout.close()

    def ended() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except FileNotFoundError:
            return True

    wait_for(ended, "the simulator to end with its parent")


def test_the_same_seed_gives_the_same_uids(tmp_path: Path) -> None:
    uids = []
    for folder in ("a", "b"):
        with simulator(tmp_path / folder, clusters=("gpu-hel-1",), arguments=("--seed", "s")) as running:
            cluster = running["gpu-hel-1"]
            items = cluster.call("GET", "/api/v1/nodes")[1]["items"]
            uids.append([row["metadata"]["uid"] for row in items])
    assert uids[0] == uids[1]


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "simulator", "--state-dir", str(tmp_path / "s"), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_what_is_wrong_on_the_command_line_is_said(tmp_path: Path) -> None:
    found = run(tmp_path, "--clusters", "nowhere")
    assert found.returncode == 2
    assert "the fleet has no cluster nowhere; it has gpu-fra-1, gpu-fra-2, gpu-hel-1" in found.stderr
    found = run(tmp_path, "--fleet", str(tmp_path / "none.yaml"))
    assert found.returncode == 2
    assert "none.yaml can't be read" in found.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clusters: []", "lists no clusters"),
        ("clusters: [{site: a}]", r"clusters\[0\]: a cluster needs a name"),
        ("clusters: [{name: a, pools: [{name: p, nodes: 1, mode: both}]}]", r"pools\[0\].mode: is 'both'"),
        ("clusters: [{name: a, pools: [{name: p, nodes: 1, mode: whole}]}]", "mode whole needs a `gpu`"),
        ("clusters: [{name: a, colour: red}]", "unexpected keyword argument 'colour'"),
        ("clusters: [{name: a, hami: sometimes}]", "may be off, shares or all"),
        ("clusters: [{name: a}, {name: a}]", "two clusters have the same name"),
    ],
)
def test_fleet_files_that_do_not_hold(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    with pytest.raises(FleetError, match=message):
        load(path)


def test_a_fleet_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(
        """
clusters:
  - name: small
    history: 20
    pools:
      - {name: a, nodes: 1, mode: whole,
         gpu: {product: NVIDIA-L4, model: NVIDIA L4, count: 2, memory: 23034, family: ada-lovelace}}
"""
    )
    with simulator(tmp_path / "state", fleet=path) as running:
        own = Client(running["small"], tmp_path)
        ns = own.namespace()
        own.pods.create(body=pod("p", 2), namespace=ns)
        wait_for(lambda: ready(own.pod(ns, "p")), "the pod")
        maps = own.kind("ConfigMap")
        version = maps.get(namespace=ns).metadata.resourceVersion
        for number in range(25):
            maps.create(body={"metadata": {"name": f"c{number}"}}, namespace=ns)
        path_old = f"/api/v1/namespaces/{ns}/configmaps?watch=1&resourceVersion={version}&timeoutSeconds=1"
        assert own.cluster.call("GET", path_old)[1]["object"]["code"] == 410  # the history is bounded
