"""A backup that is made while workers write, restored into a fresh installation: the same bills to the byte."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from infra.models import AppliedObject, Cluster, WatchSpan, WatchTarget
from portal.cli.archive import read_manifest
from portal.cli.backup import BackupError, Place, backup, embedded, nothing_runs, restore
from portal.cli.instance import DATABASE, Instance
from portal.cli.postgres import APP, OWNER, SUPERUSER
from portal.cli.safe import TOKEN_JUMP
from portal.kernel import crypto, workqueue
from portal.kernel.clock import HOUR
from portal.kernel.ids import uuid7
from portal.kernel.models import WorkItem
from tests.billing.estate import Estate, make_estate
from tests.billing.factories import observe, pod_evidence
from tests.support.db import ROOT, Clone, data_folder

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.timeout(900)]

# The command line and its processes, with the one app that only the tests' database has.
SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.support.restored_settings"}
TOLD = "from tests.support.billed import told; told()"
SECRET = "what only the keys can read"
DECRYPT = (
    "from infra.models import Cluster; from portal.kernel import crypto;"
    "print(crypto.decrypt(Cluster.objects.get().kubeconfig_ciphertext).decode())"
)
CLOSE = "from tests.support.billed import close_december; close_december()"


@pytest.fixture
def here(clone: Clone, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The tests' own database as an installation, whose settings name it by a file, as those of a container do: for
    a backup and a restore that address is another one's."""
    named = tmp_path_factory.mktemp("secrets") / "AIF_DATABASE_URL"
    named.write_text("postgresql://nobody@/elsewhere\n")
    env = os.environ | {
        "DJANGO_SETTINGS_MODULE": "portal.settings.testing", "AIF_DATABASE_URL_FILE": str(named),
    }  # fmt: skip
    return Place(clone.url(), clone.url(SUPERUSER), clone.url(OWNER), env)


@pytest.fixture
def fresh() -> Iterator[Instance]:
    """A data folder in which nothing was started yet; with the keys of the tests."""
    data_folder().mkdir(parents=True, exist_ok=True, mode=0o711)
    instance = Instance(Path(tempfile.mkdtemp(prefix="restored-", dir=data_folder())))
    instance.prepare()
    yield instance
    instance.postgres.stop()
    shutil.rmtree(instance.data)


def keys(instance: Instance, **other: str) -> None:
    names = ("AIF_SECRET_KEY", "AIF_ENCRYPTION_KEYS", "AIF_TOKEN_PEPPER")
    text = json.dumps({name: other.get(name) or os.environ[name] for name in names})
    (instance.private / "secrets.json").write_text(text)


def restored(instance: Instance, file: Path) -> list[str]:
    """As ``portal.cli restore`` does it; what it said."""
    said: list[str] = []
    with nothing_runs(instance), embedded(instance) as place:
        restore(replace(place, env=dict(place.env) | SETTINGS), file, said.append)
    return said


def place_of(instance: Instance) -> Place:
    url = instance.postgres.url
    env = instance.environment(port=8000, demo=False) | SETTINGS
    return Place(url(DATABASE, APP), url(DATABASE, SUPERUSER), url(DATABASE, OWNER), env)


def told(place: Place, code: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(place.manage("shell", "-c", code).strip().splitlines()[-1])
    return found


def cli(instance: Instance, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "portal.cli", "--data-dir", str(instance.data), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@contextmanager
def writing(estate: Estate) -> Iterator[list[int]]:
    """Pods are seen, marked and metered all the time; the answer counts what was written."""
    written, ended = [0], threading.Event()

    def write() -> None:
        began = datetime(2026, 12, 2, 7, tzinfo=UTC)
        try:
            while not ended.is_set():
                name = f"more-{written[0]}"
                start = began + written[0] * HOUR
                pod = pod_evidence(name, namespace="w", node="node-0", gpu=1, start=start, end=start + HOUR)
                observe(estate.cluster, pod)
                workqueue.mark("cluster", uuid7(), cluster_id=estate.cluster.pk)
                written[0] += 1
        finally:
            connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield written
    finally:
        ended.set()
        thread.join()


def in_flight(estate: Estate) -> tuple[WorkItem, WatchTarget]:
    """A leased item, a held watch with an open span, an object on the cluster."""
    Cluster.objects.filter(pk=estate.cluster.pk).update(kubeconfig_ciphertext=crypto.encrypt(SECRET.encode()))
    workqueue.mark("replica", uuid7(), cluster_id=estate.cluster.pk)
    WorkItem.objects.filter(kind="replica").update(
        lease_owner="w:1", lease_until=datetime.now(UTC) + timedelta(hours=9), lease_token=7, attempts=3
    )
    target = WatchTarget.objects.filter(cluster=estate.cluster).first() or WatchTarget.objects.create(
        cluster=estate.cluster, resource="pods"
    )
    WatchTarget.objects.filter(pk=target.pk).update(lease_owner="x:2", lease_token=5, resource_version="77")
    at = datetime(2026, 12, 2, tzinfo=UTC)
    WatchSpan.objects.get_or_create(target=target, closed_reason="", defaults={"started_at": at, "proved_until": at})
    AppliedObject.objects.create(
        cluster=estate.cluster, owner_kind="replica", owner_id=uuid7(), api_version="v1", kind="Service",
        namespace="t-vision", name="web", generation=1, uid="u", digest="d",
    )  # fmt: skip
    return WorkItem.objects.get(kind="replica"), target


def test_a_restored_backup_has_the_same_bills_and_closes_the_next_month(
    here: Place, fresh: Instance, tmp_path: Path
) -> None:
    estate = make_estate()
    item, target = in_flight(estate)
    file = tmp_path / "portal.backup"
    lines: list[str] = []
    with writing(estate) as written:
        while not written[0]:
            pass
        before = written[0]
        manifest = backup(here, file, lines.append)
        assert written[0] > before, "nothing was written meanwhile: the test shows nothing"
    assert any("encryption keys are not in it" in line for line in lines)
    assert os.environ["AIF_ENCRYPTION_KEYS"].encode() not in file.read_bytes()
    pods = manifest.rows["infra_podobservation"]
    assert before <= pods - 4 <= written[0], "the snapshot is of one instant while it was written"

    # Without the keys, with other ones, with a database that is in use: refused, with what to do.
    refused = cli(fresh, "restore", "--from", str(file))
    assert refused.returncode == 1
    assert "secrets.json is missing" in refused.stderr
    keys(fresh, AIF_ENCRYPTION_KEYS="b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXItb3Q=")
    refused = cli(fresh, "restore", "--from", str(file))
    assert refused.returncode == 1
    assert "Nothing was restored. AIF_ENCRYPTION_KEYS lacks a key of the backup" in refused.stderr
    with pytest.raises(BackupError, match="not empty"):
        restore(here, file, lines.append)

    keys(fresh)
    assert any("leases of before count for nothing" in line for line in restored(fresh, file))
    postgres = fresh.postgres
    assert postgres.pid() is None, "it was started for this alone"
    postgres.ensure_running()
    there = place_of(fresh)
    with psycopg.connect(postgres.url(DATABASE, SUPERUSER)) as outside:
        row = outside.execute(
            "SELECT lease_token, lease_owner, lease_until, attempts, next_attempt_at IS NOT NULL FROM kernel_workitem"
            " WHERE id = %s",
            [item.pk],
        ).fetchone()
        assert row == (7 + TOKEN_JUMP, "", None, 0, True), "a worker of before could still write"
        row = outside.execute(
            "SELECT lease_token, lease_owner, resource_version FROM infra_watchtarget WHERE id = %s", [target.pk]
        ).fetchone()
        assert row == (5 + TOKEN_JUMP, "", "77")
        assert outside.execute("SELECT bool_and(drift_suspected) FROM infra_appliedobject").fetchone() == (True,)
    with psycopg.connect(there.url) as app:  # row-level security holds for the app role
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            app.execute("SELECT count(*) FROM billing_bill")
    assert there.manage("shell", "-c", DECRYPT).strip().endswith(SECRET)

    # Here goes on from the instant of the snapshot: what was written later is taken away again.
    connection.close()
    assert told(there, TOLD)["pods"] == pods
    mine, theirs = told(here, TOLD)["files"], told(there, TOLD)["files"]
    closed = {name for name in mine if not name.startswith("period 2026-12")}
    assert len(closed) >= 4
    assert {name: theirs[name] for name in closed} == {name: mine[name] for name in closed}

    # The next month is closed there, and what is of November stays as it was.
    after = told(there, CLOSE)["files"]
    assert {name: after[name] for name in closed} == {name: mine[name] for name in closed}
    assert len([name for name in after if name.startswith("bill ")]) > len(
        [name for name in mine if name.startswith("bill ")]
    )
    again = cli(fresh, "restore", "--from", str(file))
    assert again.returncode == 1
    assert "not empty" in again.stderr


def test_a_role_that_row_level_security_holds_for_makes_no_backup(here: Place, tmp_path: Path) -> None:
    make_estate()
    with pytest.raises(BackupError, match="BYPASSRLS"):
        backup(Place(here.url, here.url, here.owner_url, here.env), tmp_path / "portal.backup", lambda line: None)
    assert list(tmp_path.iterdir()) == [], "nothing is left"


def test_two_restores_of_one_backup_close_the_next_month_alike(here: Place, fresh: Instance, tmp_path: Path) -> None:
    make_estate()
    file = tmp_path / "portal.backup"
    backup(here, file, lambda line: None)
    keys(fresh)
    restored(fresh, file)
    fresh.postgres.ensure_running()
    there = place_of(fresh)
    connection.close()
    assert told(there, CLOSE)["files"] == told(here, CLOSE)["files"]


def test_a_backup_of_a_later_version_is_refused_before_anything_is_touched(
    here: Place, fresh: Instance, tmp_path: Path
) -> None:
    make_estate()
    file = tmp_path / "portal.backup"
    backup(here, file, lambda line: None)
    manifest = read_manifest(file)
    data = file.read_bytes().replace(b'"0001_initial"', b'"9001_initial"', 1)
    later = tmp_path / "later.backup"
    later.write_bytes(data)
    assert read_manifest(later) != manifest
    keys(fresh)
    refused = cli(fresh, "restore", "--from", str(later))
    assert refused.returncode == 1
    assert "which has migrations that" in refused.stderr
    fresh.postgres.ensure_running()
    with psycopg.connect(fresh.postgres.url(DATABASE, SUPERUSER)) as outside:
        row = outside.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace").fetchone()
        assert row == (0,)
