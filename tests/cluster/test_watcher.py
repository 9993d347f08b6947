"""The watcher against a control plane: what it sees, and that neither its death nor the cluster's loses anything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.db import connection
from django.db.models import F

from infra.kube.client import KubeClient
from infra.kube.errors import NotFound
from infra.models import CapacitySpan, Cluster, Node, PodObservation, WatchSpan, WatchTarget
from infra.watcher.process import KIND, Watcher
from portal.kernel.clock import parse_rfc3339
from portal.kernel.models import Heartbeat
from tests.cluster.backends import Backend, RealBackend, SimulatorBackend
from tests.cluster.conftest import REAL, until_pods_are_taken
from tests.support.simulator import SimulatedCluster, SimulatorProcess, fresh_simulator

FIXTURES = (fresh_simulator,)  # found by its name

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).resolve().parents[2]
T = TypeVar("T")


def eventually(ask: Callable[[], T | None], seconds: float = 120.0) -> T:
    """What ``ask`` answers as soon as that is true."""
    until = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < until, f"did not come about within {seconds:.0f} s"
        time.sleep(0.05)
    return answer


class Scene:
    """A connected cluster, and what a test does on it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.cluster: Cluster = backend.connect()
        self.client = KubeClient.for_cluster(self.cluster)
        self.namespace = f"team-w-{uuid.uuid4().hex[:8]}"
        self.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        until_pods_are_taken(self.client, self.namespace)

    def pod(self, name: str) -> str:
        """Make a pod with one card; its uid once it runs."""
        spec = {"containers": [{"name": "main", "image": "example.invalid/x:1",
                                "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}  # fmt: skip
        metadata = {"name": name, "namespace": self.namespace}
        self.client.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        return str(eventually(lambda: self.running(name))["metadata"]["uid"])

    def running(self, name: str) -> dict[str, Any] | None:
        found = self.client.get("v1", "Pod", name, self.namespace)
        return found if found.get("status", {}).get("phase") == "Running" else None

    def delete(self, name: str, uid: str) -> None:
        """Delete a pod and wait until it is gone."""
        self.client.delete("v1", "Pod", name, self.namespace, uid=uid)
        eventually(lambda: self.gone(name))

    def gone(self, name: str) -> bool:
        try:
            self.client.get("v1", "Pod", name, self.namespace)
        except NotFound:
            return True
        return False


@pytest.fixture(params=["simulator", REAL])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """On each control plane in turn."""
    if request.param == "real":
        made = Scene(RealBackend(request.getfixturevalue("real_planes")["gpu-fra-1"]))
    else:
        made = Scene(SimulatorBackend(request.getfixturevalue("fresh_simulator")["gpu-fra-1"]))
    yield made
    namespace = made.client.get("v1", "Namespace", made.namespace)
    made.client.delete("v1", "Namespace", made.namespace, uid=namespace["metadata"]["uid"])


@dataclass
class Simulated(Scene):
    """Where errors can be ordered."""

    simulated: SimulatedCluster

    def __post_init__(self) -> None:
        super().__init__(SimulatorBackend(self.simulated))


@pytest.fixture
def simulated(fresh_simulator: SimulatorProcess) -> Simulated:
    return Simulated(fresh_simulator["gpu-fra-1"])


@contextmanager
def watching(name: str = "one", **options: Any) -> Iterator[threading.Event]:
    """A watcher in a thread; it ends with the block, or when the event is set."""
    stop, options = threading.Event(), {"tick": 0.3, "lease": timedelta(seconds=4), **options}
    thread = threading.Thread(target=Watcher(name=name, **options).run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive(), "the watcher does not end"


@contextmanager
def process(log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``manage.py watch`` once it holds its targets; killed at the end if it still runs."""
    name = f"p-{uuid.uuid4().hex[:6]}"
    command = [sys.executable, str(ROOT / "manage.py"), "watch", "--name", name]
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "portal.settings.testing"}
    with log.open("ab") as errors:
        running = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=errors)

    def holds_them() -> bool:
        assert running.poll() is None, f"the watcher ended at once:\n{log.read_text()[-3000:]}"
        return WatchTarget.objects.filter(lease_owner=name).count() == 3

    try:
        eventually(holds_them, 90)
        yield running
    finally:
        if running.poll() is None:
            running.kill()
        running.wait(20)


def expire_leases() -> None:
    """What passing time does to a watcher that was killed: its leases end, and it counts as alive no longer."""
    WatchTarget.objects.update(lease_until=None, not_before=None)
    Heartbeat.objects.filter(kind=KIND).update(seen_at=F("seen_at") - timedelta(hours=1))


def row(uid: str) -> PodObservation | None:
    return PodObservation.objects.filter(uid=uid).first()


def seen_running(uid: str) -> bool:
    found = row(uid)
    return found is not None and found.started_at is not None


def seen_gone(uid: str) -> bool:
    found = row(uid)
    return found is not None and found.gone_at is not None


def spans(resource: str = "pods") -> list[WatchSpan]:
    return list(WatchSpan.objects.filter(target__resource=resource).order_by("started_at"))


def test_pods_and_nodes_become_rows(scene: Scene) -> None:
    with watching():
        uid = scene.pod("a")
        eventually(lambda: seen_running(uid))
        eventually(lambda: Node.objects.count() >= 2)
        scene.delete("a", uid)
        eventually(lambda: seen_gone(uid))
    found = row(uid)
    assert found is not None
    assert found.started_at
    assert found.ended_at
    assert found.gone_at
    assert found.started_at <= found.ended_at <= found.gone_at
    assert found.gone_inferred_after is None
    assert found.holds == [{"cards": 1}]
    assert not any("system" in name for name in Node.objects.values_list("name", flat=True))
    for span in CapacitySpan.objects.select_related("node"):
        assert span.cards == span.node.cards > 0
    targets = WatchTarget.objects.all()
    assert {target.lease_owner for target in targets} == {""}, "given back in order"
    assert all(target.resource_version for target in targets)
    scene.cluster.refresh_from_db()
    assert scene.cluster.last_seen_at is not None


def test_a_killed_watcher_resumes_and_has_lost_nothing(scene: Scene, tmp_path: Path) -> None:
    """An outage within the history: what happened meanwhile is told, and the span goes on."""
    with process(tmp_path / "first.log") as first:
        uid, other = scene.pod("a"), scene.pod("b")
        eventually(lambda: seen_running(uid) and seen_running(other))
        first.send_signal(signal.SIGKILL)
        first.wait(20)
    scene.delete("a", uid)
    late = scene.pod("c")
    expire_leases()
    with process(tmp_path / "second.log") as second:
        eventually(lambda: seen_gone(uid) and seen_running(late))
        second.send_signal(signal.SIGTERM)
        assert second.wait(30) == 0
    found = row(uid)
    assert found is not None
    assert found.ended_at is not None
    assert found.started_at is not None
    assert found.ended_at >= found.started_at
    assert not seen_gone(other)
    assert len(spans()) == 1
    assert spans()[0].closed_reason == ""
    assert PodObservation.objects.filter(namespace=scene.namespace).count() == 3
    assert set(WatchTarget.objects.values_list("lease_owner", flat=True)) == {""}


def test_an_outage_longer_than_the_history_is_inferred_and_said(scene: Scene) -> None:
    with watching():
        uid, stays = scene.pod("a"), scene.pod("b")
        eventually(lambda: seen_running(uid) and seen_running(stays))
    scene.delete("a", uid)
    late = scene.pod("c")
    scene.backend.forget_history()
    with watching("two"):
        eventually(lambda: seen_gone(uid) and seen_running(late))
    before, after = spans()
    found = row(uid)
    assert found is not None
    assert before.closed_reason.startswith("410")
    assert found.gone_inferred_after == before.proved_until
    assert found.gone_at == after.started_at
    assert found.ended_at is not None
    assert before.started_at <= found.ended_at <= after.started_at
    assert not seen_gone(stays)


def test_broken_streams_lose_nothing(simulated: Simulated) -> None:
    with watching():
        eventually(lambda: Node.objects.exists())
        uids = []
        for number in range(3):
            uids.append(simulated.pod(f"p{number}"))
            simulated.simulated.sim("POST", "watches/end", {"cut": True})
        simulated.delete("p0", uids[0])
        eventually(lambda: seen_gone(uids[0]) and all(map(seen_running, uids)))
    assert len(spans()) == 1


def test_errors_and_empty_lists_end_nothing(simulated: Simulated) -> None:
    with watching():
        uid = simulated.pod("a")
        eventually(lambda: seen_running(uid))
    nodes = Node.objects.filter(gone_at=None).count()
    empty = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
    simulated.pod("b")  # so that the versions that were stored are older than what is kept: both targets must list
    simulated.simulated.sim("POST", "history/compact")
    simulated.simulated.sim("POST", "faults", [
        {"verb": "list", "resource": "pods", "status": 503},
        {"verb": "list", "resource": "pods", "status": 200, "body": empty},
        {"verb": "list", "resource": "nodes", "status": 403},
    ])  # fmt: skip
    reasons: set[str] = set()

    def back() -> bool:
        reasons.update(WatchTarget.objects.exclude(last_error="").values_list("last_error", flat=True))
        return len(spans()) == 2 and len(spans("nodes")) == 2

    with watching("two"):
        eventually(back)
    assert not seen_gone(uid)
    assert Node.objects.filter(gone_at=None).count() == nodes
    assert reasons, "the target said what was wrong"


def test_a_cluster_that_falls_silent_keeps_its_pods(simulated: Simulated, fresh_simulator: SimulatorProcess) -> None:
    with watching():
        uid = simulated.pod("a")
        eventually(lambda: seen_running(uid))
        proved = spans()[0].proved_until
        fresh_simulator.stop(signal.SIGKILL)
        eventually(lambda: WatchTarget.objects.filter(failures__gte=2).count() == 3)
    assert not seen_gone(uid)
    assert spans()[0].closed_reason == ""
    assert spans()[0].proved_until >= proved
    simulated.cluster.refresh_from_db()
    conditions = {c["type"]: c for c in simulated.cluster.conditions}
    assert conditions["PodsWatched"]["status"] == conditions["NodesWatched"]["status"] == "False"
    assert "sut" in conditions["PodsWatched"]["message"]


def test_two_watchers_share_and_take_over(scene: Scene) -> None:
    with watching("one") as stop_one, watching("two"):
        eventually(lambda: set(WatchTarget.objects.values_list("lease_owner", flat=True)) == {"one", "two"})
        uid = scene.pod("a")
        eventually(lambda: seen_running(uid))
        stop_one.set()
        eventually(lambda: set(WatchTarget.objects.values_list("lease_owner", flat=True)) == {"two"})
        scene.delete("a", uid)
        eventually(lambda: seen_gone(uid))
    assert len(spans()) == len(spans("nodes")) == 1
    assert PodObservation.objects.filter(uid=uid).count() == 1


def test_a_lost_node_is_lost_since_its_lease_and_comes_back(simulated: Simulated) -> None:
    with watching():
        node = eventually(lambda: Node.objects.filter(ready=True).order_by("name").first())
        simulated.simulated.sim("POST", f"nodes/{node.name}/break", {"how": "lost"})
        span = eventually(lambda: CapacitySpan.objects.filter(node=node, lost=True).first())
        lease = simulated.client.get("coordination.k8s.io/v1", "Lease", node.name, "kube-node-lease")
        # Its last renewal; or when we saw the node first, where that was later: nothing is lost before it was there.
        renewed = parse_rfc3339(lease["spec"]["renewTime"])
        assert span.started_at == max(renewed, Node.objects.get(pk=node.pk).first_seen_at)
        assert span.unavailable_cards == span.cards
        simulated.simulated.sim("POST", f"nodes/{node.name}/mend")
        eventually(lambda: CapacitySpan.objects.filter(node=node, ended_at=None, lost=False).exists())
    last = CapacitySpan.objects.filter(node=node).latest("started_at")
    assert (last.lost, last.unavailable_cards) == (False, 0)


def test_a_card_that_falls_off_is_unavailable(simulated: Simulated) -> None:
    with watching():
        node = eventually(lambda: Node.objects.filter(cards=8).order_by("name").first())
        simulated.simulated.sim("POST", f"nodes/{node.name}/drop-card", {"count": 1})
        span = eventually(lambda: CapacitySpan.objects.filter(node=node, ended_at=None, unavailable_cards=1).first())
    assert (span.cards, span.reason) == (8, "1 of 8 cards not allocatable")
    connection.close()
