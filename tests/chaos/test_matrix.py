"""``kill -9`` of each kind of process at a random point, while deployments roll and their pods are metered.

Nothing is lost, nothing doubled: what was asked for comes about, reservations, quota and objects agree with it, and the
time that is on the team's account is the time that the cluster itself says that the pods ran. (A supervisor that is
killed: tests/chaos/test_supervisor.py; a worker at each single step: tests/chaos/test_kill.py.)
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from portal.cli.postgres import SUPERUSER
from tests.browser.podtimes import PodTimes
from tests.chaos.own import NAMESPACE, OwnPortal, own_portal
from tests.support.instance import wait_for
from tests.support.simulator import SimulatorProcess, simulator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FRA = "gpu-fra-1"
CARD = 1_000_000
VICTIMS = ("worker", "watcher", "web", "beat", "valkey", "postgres", "worker", "watcher", "postgres")
IMAGES = ("vllm/vllm-openai:v0.23.0", "vllm/vllm-openai:v0.24.0")
NAME = "rolls"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[SimulatorProcess]:
    with simulator(tmp_path / "fleet", clusters=(FRA,)) as running:
        yield running


@pytest.fixture
def portal(fleet: SimulatorProcess) -> Iterator[OwnPortal]:
    with own_portal(fleet, FRA) as running:
        yield running


def ask(portal: OwnPortal, path: str, body: dict[str, Any]) -> None:
    """As people do who get no answer: the same again, until there is one."""

    def answered() -> bool:
        status, answer = portal.call("POST", f"/api/v1/tenants/ml-team/deployments/{NAME}/{path}", body)
        assert status in (0, 200, 202, 409, 412, 500, 503), (status, answer)
        return status in (200, 202)

    wait_for(answered, f"{path} {body} taken")


def settled(portal: OwnPortal, image: str, replicas: int) -> bool:
    """Ready, and the cluster has exactly the objects that were asked for."""
    status, answer = portal.fleet[FRA].call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")
    made = answer["items"] if status == 200 else []
    images = [one["spec"]["template"]["spec"]["containers"][0]["image"] for one in made]
    row = portal.deployment(NAME)
    return row.get("phase") == "Ready" and images == [image] * replicas


def test_a_kill_of_any_process_loses_and_doubles_nothing(portal: OwnPortal) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    chance = random.Random(seed)  # so that a failure can be looked at again
    times = PodTimes(portal.fleet[FRA], NAMESPACE)
    portal.deploy(NAME, replicas=2)
    times.start()
    try:
        portal.until_ready(NAME)
        image, replicas = IMAGES[0], 2
        for number, victim in enumerate(VICTIMS):
            if number % 2:
                replicas = 3 - replicas
                ask(portal, "scale", {"replicas": replicas})
            else:
                image = IMAGES[(number // 2 + 1) % 2]
                ask(portal, "image", {"image": image})
            time.sleep(chance.uniform(0, 2.5))
            portal.kill(victim, signal.SIGQUIT if victim == "postgres" else signal.SIGKILL)
            time.sleep(chance.uniform(0, 1.0))
            portal.launch(victim)
            where = f"seed {seed}, kill {number}: {victim}"
            wait_for(lambda: settled(portal, image, replicas), f"{where}: settled", patience=200)  # noqa: B023
            books_agree(portal, replicas, where)
        portal.remove(NAME)
        books_agree(portal, 0, f"seed {seed}, after the end")
        runs = times.finish()
    finally:
        times.stop()
    assert len(runs) >= len(VICTIMS), "pods were rolled"
    account_agrees(portal, runs, f"seed {seed}")


def books_agree(portal: OwnPortal, replicas: int, where: str) -> None:
    held = "SELECT coalesce(sum(share), 0) FROM infra_reservation WHERE released_at IS NULL"
    wait_for(lambda: portal.ask(held) == replicas * CARD, f"{where}: {replicas} cards reserved")
    quota = "SELECT coalesce(sum(amount), 0) FROM tenants_quotaallotment"
    wait_for(lambda: portal.ask(quota) <= 2 * CARD, f"{where}: the parts of the quota")
    objects = "SELECT count(*) FROM infra_appliedobject WHERE owner_kind = 'replica' AND deleted_at IS NULL"
    wait_for(lambda: portal.ask(objects) == 2 * replicas, f"{where}: objects in the books")


def account_agrees(portal: OwnPortal, runs: dict[str, tuple[datetime, datetime]], where: str) -> None:
    """Each pod of the cluster is on the account once, with its own times; no two stretches of one overlap."""
    question = (
        "SELECT pod_uid, min(started_at), max(ended_at), bool_and(ended_at IS NOT NULL), count(DISTINCT ordinal),"
        " sum(extract(epoch FROM ended_at - started_at)) FROM billing_deviceallocation"
        " WHERE namespace = %s AND ended_at IS DISTINCT FROM started_at GROUP BY pod_uid"
    )

    def read() -> dict[str, tuple[Any, ...]]:
        with psycopg.connect(portal.database.url(SUPERUSER)) as connection:
            return {str(row[0]): tuple(row[1:]) for row in connection.execute(question, [NAMESPACE])}

    def metered() -> bool:
        rows = read()
        return set(rows) == set(runs) and all(row[2] for row in rows.values())

    try:  # longer than the lease that a worker took of a metering and died with
        wait_for(metered, f"{where}: all are metered", patience=300)
    except AssertionError as late:
        raise AssertionError(f"{late}\non the account: {read()}\non the cluster: {runs}") from late
    for uid, (began, ended, _, devices, seconds) in read().items():
        assert devices == 1, where
        assert abs(float(seconds) - (ended - began).total_seconds()) < 0.01, f"{where}: stretches of {uid} overlap"
        # From bound (before the start) to the end that the kubelet wrote, in whole seconds.
        assert began.astimezone(UTC) <= runs[uid][0] + timedelta(seconds=1), where
        assert ended.astimezone(UTC) == runs[uid][1], where
