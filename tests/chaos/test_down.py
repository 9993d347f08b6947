"""What still works when something is down: each row of docs/when-x-is-down.md, with the process really ended.

One installation for all of them, with a database server of its own; each test ends with everything running again.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.own import PATIENCE, OwnPortal, own_portal
from tests.support.instance import wait_for
from tests.support.simulator import SimulatorProcess, simulator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "when-x-is-down.md"
FRA = "gpu-fra-1"
TAKES_PART = "SELECT count(*) FROM infra_podobservation WHERE namespace = 't-ml-team' AND ended_at IS NULL"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatorProcess]:
    """One simulated fleet."""
    with simulator(tmp_path_factory.mktemp("fleet"), clusters=(FRA,)) as running:
        yield running


@pytest.fixture(scope="module")
def portal(fleet: SimulatorProcess) -> Iterator[OwnPortal]:
    """One installation."""
    with own_portal(fleet, FRA) as running:
        yield running


@pytest.fixture(autouse=True)
def whole_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test that failed left down or standing does not make the next ones fail."""
    yield
    if "portal" not in request.fixturenames:
        return
    portal: OwnPortal = request.getfixturevalue("portal")
    portal.launch("postgres")
    for name in list(portal.gone):
        portal.launch(name)
    wait_for(lambda: portal.readiness().get("code") == 200, "the portal's readiness", patience=PATIENCE)
    _, answer = portal.call("GET", "/api/v1/tenants/ml-team/deployments")
    for row in answer["results"]:
        portal.remove(row["name"])


def test_without_the_database_nothing_is_lost_and_all_go_on_by_themselves(portal: OwnPortal) -> None:
    portal.deploy("before")
    portal.until_ready("before")
    pids = {part.name: part.child.process.pid for part in portal.running.parts if part.child}
    portal.kill("postgres", signal.SIGQUIT)
    assert portal.call("GET", "/healthz") == (200, {"status": "ok"})
    told = portal.readiness()
    assert (told["code"], told["database"], told["worker"]) == (503, "does not answer", "not known")
    assert len(portal.deployments_on("before")) == 1, "what runs goes on"
    portal.launch("postgres")
    wait_for(lambda: portal.readiness().get("code") == 200, "readiness")
    assert pids == {part.name: part.child.process.pid for part in portal.running.parts if part.child}, "no restart"
    portal.deploy("after")
    portal.until_ready("after")
    portal.remove("before")
    portal.remove("after")


def test_without_the_broker_changes_are_stored_and_done_later(portal: OwnPortal) -> None:
    pids = {part.name: part.child.process.pid for part in portal.running.parts if part.child}
    portal.deploy("under-way")
    portal.kill("valkey")
    assert portal.call("GET", "/api/v1/clusters")[0] == 200
    portal.deploy("stored")
    assert portal.readiness()["broker"] == "does not answer"
    portal.launch("valkey")
    for name in ("under-way", "stored"):
        portal.until_ready(name)
        portal.remove(name)
    after = {part.name: part.child.process.pid for part in portal.running.parts if part.child}
    assert {name for name in pids if pids[name] != after[name]} == {"valkey"}, "no restart"


def test_without_one_worker_the_others_do_its_work(portal: OwnPortal) -> None:
    running = portal.running
    (template,) = [part for part in running.supervisor.portal_parts(running.env) if part.name == "worker"]
    template.name = "worker-2"
    portal.gone["worker-2"] = template
    portal.launch("worker-2")
    portal.deploy("shared")
    portal.kill("worker")
    portal.until_ready("shared")
    portal.launch("worker")
    portal.remove("shared")
    portal.kill("worker-2", signal.SIGTERM)
    portal.gone.pop("worker-2")


def test_without_workers_pages_answer_changes_wait_and_evidence_is_kept(portal: OwnPortal) -> None:
    portal.kill("worker")
    portal.deploy("waits")
    status, _ = portal.call("GET", "/api/v1/clusters")
    assert status == 200
    # Pods that somebody else starts are seen all the same.
    cluster = portal.fleet[FRA]
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "seen", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "a/b:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    }  # fmt: skip
    assert cluster.call("POST", "/api/v1/namespaces/default/pods", pod)[0] == 201
    question = "SELECT count(*) FROM infra_podobservation WHERE name = 'seen' AND node_name <> ''"
    wait_for(lambda: portal.ask(question), "the evidence of a pod")
    assert portal.deployments_on("waits") == []
    assert cluster.call("DELETE", "/api/v1/namespaces/default/pods/seen")[0] == 200
    portal.launch("worker")
    portal.until_ready("waits")
    portal.remove("waits")


def test_without_beat_what_is_asked_for_is_kept_and_done_later(portal: OwnPortal) -> None:
    portal.kill("beat")
    portal.deploy("asked")
    assert portal.deployment("asked"), "it is stored"
    portal.launch("beat")
    portal.until_ready("asked")
    assert portal.deployments_on("asked")
    portal.remove("asked")


def test_without_a_watcher_changes_are_applied_and_what_happened_is_read_later(portal: OwnPortal) -> None:
    portal.kill("watcher")
    portal.deploy("unseen")
    wait_for(lambda: portal.deployments_on("unseen"), "the deployment on the cluster")
    assert portal.ask(TAKES_PART) == 0, "nobody watches"
    portal.launch("watcher")
    portal.until_ready("unseen")
    wait_for(lambda: portal.ask(TAKES_PART) == 1, "the evidence of what happened meanwhile")
    portal.remove("unseen")


def test_without_a_cluster_everything_else_works_and_nothing_is_read_as_deleted(
    portal: OwnPortal, fleet: SimulatorProcess
) -> None:
    portal.deploy("stays")
    portal.until_ready("stays")
    wait_for(lambda: portal.ask(TAKES_PART) == 1, "the evidence of its pod")
    fleet.process.send_signal(signal.SIGSTOP)
    try:
        portal.running.tick("infra.clusters.probe")
        wait_for(lambda: portal.readiness()["clusters"] == "some do not answer", "the finding", patience=200)
        assert portal.readiness()["code"] == 200, "the pages stay in the load balancer"
        assert portal.call("GET", "/api/v1/tenants/ml-team/deployments")[0] == 200
        assert portal.ask(TAKES_PART) == 1, "a silent cluster ends nothing"
        assert portal.deployment("stays"), "its last state is shown"
    finally:
        fleet.process.send_signal(signal.SIGCONT)
    portal.running.tick("infra.clusters.probe")
    wait_for(lambda: portal.readiness()["clusters"] == "ok", "the cluster back", patience=200)
    portal.until_ready("stays")
    portal.remove("stays")


def test_without_the_web_process_work_and_evidence_go_on(portal: OwnPortal) -> None:
    portal.deploy("goes-on", replicas=2)
    portal.kill("web")
    wait_for(lambda: len(portal.deployments_on("goes-on")) == 2, "both replicas on the cluster")
    wait_for(lambda: portal.ask(TAKES_PART) == 2, "the evidence of both")
    portal.launch("web")
    portal.until_ready("goes-on")
    portal.remove("goes-on")


def test_a_row_of_the_page_names_its_test_and_the_test_is_there() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "`tests/" in line]
    assert len(rows) >= 11
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", "\n".join(rows))
    assert len(named) >= len(rows), "a row without a test"
    for path, name in named:
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{name}"
    here = {name for path, name in named if path == "tests/chaos/test_down.py"}
    mine = {name for name in globals() if name.startswith("test_without_")}
    assert mine == here, "a test that no row names"
    table = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    bare = [line for line in table[2:] if "`tests/" not in line]
    assert not bare, bare
