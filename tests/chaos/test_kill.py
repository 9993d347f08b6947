"""``kill -9`` of the worker at each step from the manifest to the pods and back: it converges, nothing is doubled.

And the fencing: a worker that slept past its lease writes nothing any more, neither to the cluster nor to the rows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Sum

from infra.models import AppliedObject, Reservation
from infra.names import FIELD_MANAGER
from portal.kernel import workqueue
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from tenants.models import ModelReplica, QuotaAllotment
from tenants.services.deployments import deployment_apply, deployment_delete, deployment_set_image
from tests.support.estate import KINDS, Estate, estate
from tests.support.simulator import SimulatorProcess, simulated_fleet
from tests.support.tenants import CARD, TESTER
from tests.unit.tenants.manifests import manifest_data

assert simulated_fleet  # a fixture, found by its name

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 240.0
"""Seconds for a step, on a busy machine."""
FRA = "gpu-fra-1"
OLD, BETWEEN, NEW = (f"vllm/vllm-openai:v0.{minor}.0" for minor in (22, 23, 24))
MAKING = (
    "deployment-claimed",
    "deployment-planned",
    "deployment-one-reserved",
    "deployment-reserved",
    "deployment-recorded",
    "replica-claimed",
    "replica-rendered",
    "kube-written-1",
    "kube-written-3",
    "replica-applied",
    "replica-observed",
    "replica-recorded",
)
ENDING = ("deployment-deleted", "replica-removed", "replica-released")


@pytest.fixture
def place(simulated_fleet: SimulatorProcess) -> Iterator[Estate]:
    """One cluster and a quota of two cards."""
    with estate(simulated_fleet, FRA) as made:
        made.quota("h100", 2)
        yield made


def h100(name: str, **rest: Any) -> dict[str, Any]:
    cel = 'device.attributes["gpu.nvidia.com"].architecture == "Hopper"'
    return manifest_data(name, cel=cel, replicas=2, **rest)


def worker(failpoint: str, *arguments: str) -> subprocess.Popen[str]:
    """A worker process that dies, or stops, at the step."""
    environment = os.environ | {"AIF_FAILPOINT": failpoint, "DJANGO_SETTINGS_MODULE": "portal.settings.testing"}
    command = [sys.executable, "-m", "tests.support.worker", *arguments]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def victims() -> Iterator[Callable[[str], None]]:
    """Let a worker work until it is killed at a step."""
    process = worker("", "--serve", *KINDS)
    assert process.stdin
    assert process.stdout
    said: list[str] = []

    def die_at(step: str) -> None:
        process.stdin.write(f"{step}\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        for line in process.stdout:  # type: ignore[union-attr]
            said.append(line)
            if line.strip() == str(-signal.SIGKILL):
                return
        raise AssertionError("".join(said[-30:]))

    try:
        yield die_at
    finally:
        process.stdin.close()
        process.kill()
        process.wait()


def leases_run_out() -> None:
    """Time passes: what the dead worker had claimed may be claimed again."""
    WorkItem.objects.filter(lease_until__isnull=False).update(lease_until="2020-01-01T00:00:00Z")


def held() -> int:
    rows = Reservation.objects.filter(released_at__isnull=True)
    return (rows.aggregate(total=Sum("share"))["total"] or 0) // CARD


def test_killed_at_any_step_it_converges_and_doubles_nothing(place: Estate, victims: Callable[[str], None]) -> None:
    for step in MAKING:
        name = f"at-{step}"
        deployment_apply(tenant=place.tenant, manifest=h100(name), actor=TESTER)
        victims(step)
        leases_run_out()
        place.until(lambda name=name: place.ready(name), f"Ready after a kill at {step}")
        assert len(place.replicas(name)) == 2, step
        assert held() == 2, step
        assert len(place.objects(FRA)) == 2, step
        assert len(place.objects(FRA, "Service")) == 2, step
        assert AppliedObject.objects.filter(owner_kind="replica", deleted_at__isnull=True).count() == 4, step
        with system_scope("test"):
            assert QuotaAllotment.objects.aggregate(total=Sum("amount"))["total"] == 2 * CARD, step
        end(place, name)


def test_killed_while_deleting_nothing_stays_and_nothing_is_freed_early(
    place: Estate, victims: Callable[[str], None]
) -> None:
    for step in ENDING:
        name = f"at-{step}"
        deployment_apply(tenant=place.tenant, manifest=h100(name), actor=TESTER)
        place.until(lambda name=name: place.ready(name), "Ready")
        deployment_delete(tenant=place.tenant, name=name, actor=TESTER)
        victims(step)
        leases_run_out()
        # Whatever was given back is really gone from the cluster.
        assert held() >= len(place.objects(FRA)), step
        end(place, name)


def end(place: Estate, name: str) -> None:
    deployment_delete(tenant=place.tenant, name=name, actor=TESTER)
    place.until(lambda: place.deployment(name).deleted_at, f"{name} deleted")
    assert held() == 0
    assert place.objects(FRA) == []
    assert not AppliedObject.objects.filter(owner_kind="replica", deleted_at__isnull=True).exists()


# What is made for the first time is recorded with its application, in one transaction: nothing is left to do then.
@pytest.mark.parametrize(
    ("step", "made_before"),
    [("replica-rendered", False), ("replica-rendered", True), ("replica-applied", True), ("replica-observed", True)],
)
def test_a_worker_that_slept_past_its_lease_writes_nothing(place: Estate, step: str, made_before: bool) -> None:
    manifest = h100("sleeper", image=OLD)
    manifest["spec"]["replicas"] = 1
    deployment_apply(tenant=place.tenant, manifest=manifest, actor=TESTER)
    if made_before:
        place.until(lambda: place.ready("sleeper"), "the first generation")
        deployment_set_image(tenant=place.tenant, name="sleeper", image=BETWEEN, actor=TESTER)
    only_the_replica_is_left(place)
    sleeper = worker(f"stop:{step}", "--once", "replica")
    try:
        wait_stopped(sleeper)
        deployment_set_image(tenant=place.tenant, name="sleeper", image=NEW, actor=TESTER)
        leases_run_out()
        place.until(lambda: place.ready("sleeper"), "the newer generation")
        (before,) = place.replicas("sleeper")
        written = _written(place)
        sleeper.send_signal(signal.SIGCONT)
        output, _ = sleeper.communicate(timeout=PATIENCE)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert "lease lost" in output, output
    (made,) = place.objects(FRA)
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == NEW
    assert _written(place) == written
    (after,) = place.replicas("sleeper")
    newest = 3 if made_before else 2
    assert (after.generation, after.observed_generation, after.phase, after.ready) == (newest, newest, "Ready", True)
    assert after.conditions == before.conditions
    generations = AppliedObject.objects.filter(owner_kind="replica").values_list("generation", flat=True)
    assert set(generations) == {newest}


def _written(place: Estate) -> dict[str, Any]:
    """What we last wrote of each Deployment, and when; a controller's reports of its state are not ours."""
    return {
        made["metadata"]["name"]: (
            made["metadata"]["generation"],
            [row for row in made["metadata"]["managedFields"] if row["manager"] == FIELD_MANAGER],
        )
        for made in place.objects(FRA)
    }


def only_the_replica_is_left(place: Estate) -> None:
    """Place it and prepare its namespace, but leave the replica to the process under test."""

    def prepared() -> bool:
        for kind in ("deployment", "namespace"):
            for pk in WorkItem.objects.filter(kind=kind, next_attempt_at__isnull=False).values_list("pk", flat=True):
                workqueue.run_item(pk)
        with system_scope("test"):
            rows = list(ModelReplica.objects.all())
        return bool(rows) and not WorkItem.objects.filter(kind="namespace", next_attempt_at__isnull=False).exists()

    end_at = time.monotonic() + PATIENCE
    while not prepared():
        assert time.monotonic() < end_at, "the namespace was not prepared"
        time.sleep(0.1)


def wait_stopped(process: subprocess.Popen[str]) -> None:
    """Until the kernel says that the process is stopped (state T)."""
    end_at = time.monotonic() + PATIENCE
    while time.monotonic() < end_at:
        assert process.poll() is None, process.communicate()[0]
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "T":
            return
        time.sleep(0.05)
    raise AssertionError("the worker did not come to the step")
