"""``python -m portal.cli up`` through its life: start, second start, kill -9, adoption, restart of a part, end."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from portal.cli.instance import DATABASE, Instance
from portal.cli.postgres import SUPERUSER
from portal.cli.processes import Identity
from tests.support.db import ROOT, data_folder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PATIENCE = 240


class Up:
    """A started ``up`` and what it has printed."""

    def __init__(self, data: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "portal.cli", "up", "--data-dir", str(data), "--port", "0"],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line)
        self._queue.put(None)

    def until(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            line = self._queue.get(timeout=max(0.1, deadline - time.monotonic()))
            assert line is not None, "it ended:\n" + "".join(self.lines)
            self.lines.append(line)
            if text in line:
                return


def eventually(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.fixture
def instance() -> Iterator[Instance]:
    data_folder().mkdir(parents=True, exist_ok=True, mode=0o711)
    folder = Path(tempfile.mkdtemp(prefix="up-", dir=data_folder()))
    instance = Instance(folder)
    yield instance
    if supervisor := instance.read_state().get("supervisor"):  # only where the test failed
        Identity.from_json(supervisor).end(patience=60)
    for process in processes(instance):
        process.end()
    instance.postgres.stop()
    shutil.rmtree(folder)


def processes(instance: Instance) -> list[Identity]:
    return [Identity.from_json(data) for data in instance.read_state().get("processes", [])]


def readiness(instance: Instance) -> dict[str, Any]:
    with urllib.request.urlopen(  # noqa: S310
        instance.read_state()["url"] + "readyz", timeout=10
    ) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def heartbeats(instance: Instance) -> int:
    with psycopg.connect(instance.postgres.url(DATABASE, SUPERUSER)) as connection:
        row = connection.execute("SELECT count(*) FROM kernel_heartbeat WHERE kind = 'worker'").fetchone()
        assert row is not None
        return int(row[0])


def test_the_life_of_an_installation(instance: Instance) -> None:
    up = Up(instance.data)
    up.until("is ready after")
    told = readiness(instance)
    assert (told["status"], told["database"], told["broker"]) == ("ok", "ok", "ok")
    alive = ("worker", "beat", "tasks", "watcher")
    eventually(lambda: all(readiness(instance)[part] == "ok" for part in alive), "a part gives no sign of life")
    eventually(lambda: heartbeats(instance) > 0, "clock, broker and worker do not reach the database")
    database_pid = instance.postgres.pid()
    children = processes(instance)
    assert [child.name for child in children] == ["valkey", "web", "worker", "beat", "watcher"]

    again = subprocess.run(
        [sys.executable, "-m", "portal.cli", "up", "--data-dir", str(instance.data)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 0
    assert "already running: http://127.0.0.1:" in again.stdout

    # The parent is killed: the children go with it, the database stays and keeps what it had.
    up.process.kill()
    up.process.wait()
    eventually(lambda: not any(child.alive() for child in children), f"left behind: {children}")
    assert instance.postgres.pid() == database_pid

    up = Up(instance.data)
    up.until("is ready after")
    assert any("PostgreSQL is adopted" in line for line in up.lines)
    assert instance.postgres.pid() == database_pid
    assert heartbeats(instance) > 0

    # A part is killed: it comes back, the others stay.
    before = {child.name: child.pid for child in processes(instance)}
    os.kill(before["worker"], signal.SIGKILL)
    up.until("worker ended with status -9")
    eventually(lambda: {c.name: c.pid for c in processes(instance)}["worker"] != before["worker"], "no new worker")
    after = {child.name: child.pid for child in processes(instance)}
    assert {name for name in before if before[name] != after[name]} == {"worker"}

    children = processes(instance)
    up.process.terminate()
    assert up.process.wait(PATIENCE) == 0
    assert not any(child.alive() for child in children)
    assert instance.postgres.pid() is None
    assert instance.read_state() == {}
