"""A whole instance as processes: Valkey, web, worker, beat and watcher, on this run's database, started as
``portal.cli up`` starts them (same commands, same environment, production settings).

    with running_portal(clone, simulator) as portal:
        portal.manage("createsuperuser", ...)
        portal.start()
        portal.wait_ready()
        portal.url                      # http://127.0.0.1:…
        portal.restart(ahead=timedelta(days=3))   # all of them again, their clock three days ahead

What the processes write is kept, and shown for a test that fails (tests/browser/conftest.py).
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from celery import Celery

from portal.cli.instance import ROOT, Instance
from portal.cli.migrating import prepare
from portal.cli.postgres import OWNER
from portal.cli.processes import Child
from portal.cli.supervisor import Options, Part, Supervisor
from tests.support.db import Clone
from tests.support.served import ServedCluster

PATIENCE = 120.0
"""Seconds for which one step is waited for. Long, for a busy machine; nothing asserts how long a step takes."""
KEPT_LINES = 400


@dataclass
class RunningPortal:
    """The parts of an instance, and what they wrote."""

    instance: Instance
    clone: Clone
    clusters: Mapping[str, ServedCluster]
    env: dict[str, str]
    supervisor: Supervisor
    parts: list[Part] = field(default_factory=list)
    watchers: int = 1
    lines: dict[str, deque[str]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        """The address of its pages, without a slash at the end."""
        return f"http://127.0.0.1:{self.supervisor.port}"

    def prepare(self) -> None:
        """Static files, and the broker."""
        prepare(self.clone.url(OWNER), self.env)
        self._launch(self.supervisor.valkey_part(self.env))
        wait_for(self.instance.broker_socket.exists, "Valkey's socket")

    def manage(self, *arguments: str, **env: str) -> str:
        """Run ``manage.py``; what it printed. Raises AssertionError with its output where it fails."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            env=self.env | env, cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"manage.py {arguments[0]}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def fleet_file(self) -> Path:
        """The clusters as ``demo_seed --fleet`` reads them."""
        path = self.instance.private / "fleet.json"
        facts = {
            one.name: {
                "server": one.server,
                "kubeconfig": str(one.kubeconfig),
                "observe_kubeconfig": str(one.observe_kubeconfig),
            }
            for one in self.clusters.values()
        }
        path.write_text(json.dumps({"clusters": facts}))
        return path

    def start(self, *, ahead: timedelta = timedelta()) -> None:
        """Start web, worker, beat and watcher. ``ahead``: see tests/support/shifted.py."""
        parts = self.supervisor.portal_parts(self.env)
        *_, watcher = parts
        parts += [replace(watcher, name=f"watcher-{number}") for number in range(2, self.watchers + 1)]
        for part in parts:
            if ahead:
                shifted = ["-m", "tests.support.shifted", str(ahead.total_seconds())]
                part.command = [part.command[0], *shifted, *part.command[1:]]
            self._launch(part)

    def wait_ready(self) -> None:
        """Return when the pages answer and all parts run."""
        wait_for(self._ready, "the portal's /readyz")

    def restart(self, *, ahead: timedelta = timedelta()) -> None:
        """End all but the broker in order, start them again, and wait for them."""
        self._stop(self.parts[1:])
        self.start(ahead=ahead)
        self.wait_ready()

    def tick(self, name: str) -> None:
        """Send a worker the message that beat sends for a periodic task (see :mod:`portal.kernel.ticks`)."""
        app = Celery(broker=self.env["AIF_BROKER_URL"])
        app.conf.broker_transport_options = {"global_keyprefix": "aif:"}
        with app.connection_for_write() as connection:
            app.send_task("kernel.ticks.run", args=(name,), connection=connection, ignore_result=True)

    def stop(self) -> None:
        """End everything."""
        self._stop(self.parts)

    def log(self) -> str:
        """The last lines of each process."""
        with self._writing:
            return "\n".join(f"{name:<9}| {line}" for name, lines in self.lines.items() for line in lines)

    def _stop(self, parts: list[Part]) -> None:
        for part in reversed(parts):
            assert part.child is not None
            part.child.stop(part.patience)
        self.parts = [part for part in self.parts if part not in parts]

    def _launch(self, part: Part) -> None:
        part.child = Child(
            part.name, part.command, env=part.env, cwd=ROOT, say=self._say, on_parent_death=part.on_parent_death
        )
        self.parts.append(part)

    def _say(self, name: str, line: str) -> None:
        with self._writing:
            self.lines.setdefault(name, deque(maxlen=KEPT_LINES)).append(line)
            if '"level": "error"' in line or line.startswith("Traceback"):
                self.errors.append(f"{name}: {line}")

    def _ready(self) -> bool:
        for part in self.parts:
            assert part.child is not None
            assert part.child.running(), f"{part.name} ended with status {part.child.process.returncode}:\n{self.log()}"
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=30) as answer:  # noqa: S310  # our own address
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@contextmanager
def running_portal(
    clone: Clone, clusters: Mapping[str, ServedCluster], *, demo: bool = False, **settings: str
) -> Iterator[RunningPortal]:
    """An instance with its broker running and nothing else yet; ended, and its tables emptied, at the end.

    Args:
        settings: environment variables (``AIF_…``) beside those of ``portal.cli``.
    """
    folder = Path(tempfile.mkdtemp(prefix="aif-browser-"))
    instance = Instance(folder / "data")
    instance.prepare()
    port = free_port()
    env = instance.environment(port=port, demo=demo) | {"AIF_DATABASE_URL": clone.url()} | settings
    portal = RunningPortal(instance, clone, clusters, env, Supervisor(Options(instance.data), instance, port))
    try:
        portal.prepare()
        yield portal
    except BaseException:
        sys.stderr.write(portal.log() + "\n")
        raise
    finally:
        portal.stop()
        clone.flush()
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(done: Callable[[], Any], what: str, *, patience: float = PATIENCE) -> Any:
    """Ask until the answer is true; the answer. Raises AssertionError naming ``what`` did not come about."""
    end = time.monotonic() + patience
    while not (answer := done()):
        assert time.monotonic() < end, f"{what} did not come about within {patience:.0f} s"
        time.sleep(0.1)
    return answer
