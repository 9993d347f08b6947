"""The supervisor ends what is its own, beyond doubt, and nothing else."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.cli.instance import Instance
from portal.cli.processes import Child, Identity
from portal.cli.supervisor import Options, StartError, Supervisor, _choose_port, _take_lock

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(SLEEP)
    yield process
    process.kill()
    process.wait()


def test_a_process_is_ended_only_if_it_is_the_very_one(sleeper: subprocess.Popen[bytes]) -> None:
    identity = Identity.of("sleeper", sleeper.pid)
    assert identity.alive()
    for stranger in (
        dataclasses.replace(identity, started=identity.started - 60),
        dataclasses.replace(identity, command=["postgres"]),
    ):
        assert not stranger.alive()
        stranger.end(patience=0.1)
    assert sleeper.poll() is None, "somebody else's process was ended"
    assert Identity.from_json(identity.as_json()) == identity
    identity.end(patience=5)
    assert sleeper.wait(5) == -signal.SIGTERM


def test_leftovers_of_a_killed_start_are_ended(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    instance = Instance(tmp_path / "data")
    instance.prepare()
    instance.write_state({"processes": [Identity.of("web", sleeper.pid).as_json()]})
    Supervisor(Options(instance.data), instance)._end_leftovers()
    assert sleeper.wait(5) == -signal.SIGTERM


def test_children_die_with_their_parent(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys, time\n"
        "from portal.cli.processes import Child\n"
        f"child = Child('c', {SLEEP!r}, env=os.environ, cwd=pathlib.Path('/'), say=print)\n"
        "print(child.process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = Identity.of("c", int(parent.stdout.readline()))
    deadline = time.monotonic() + 10
    while child.command != SLEEP and time.monotonic() < deadline:  # between fork and exec it has our command line
        child = Identity.of("c", child.pid)
    assert child.alive()
    parent.kill()
    parent.wait()
    while child.alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not child.alive()


def test_output_is_passed_on_behind_the_name(tmp_path: Path) -> None:
    lines: list[tuple[str, str]] = []
    program = "import sys; print('out'); print('{\"ready\": true}'); print('err', file=sys.stderr)"
    child = Child(
        "web",
        [sys.executable, "-c", program],
        env=os.environ,
        cwd=tmp_path,
        say=lambda name, line: lines.append((name, line)),
        on_line=lambda line: line.startswith("{"),
    )
    child.process.wait(10)
    deadline = time.monotonic() + 5
    while len(lines) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(lines) == [("web", "err"), ("web", "out")]


def test_secrets_are_made_once_and_private(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "data")
    instance.prepare()
    made = instance.secrets()
    assert instance.secrets() == made
    assert (instance.private / "secrets.json").stat().st_mode & 0o777 == 0o600
    assert instance.private.stat().st_mode & 0o777 == 0o700
    environment = instance.environment(port=1, demo=False)
    assert environment["AIF_LOOPBACK"] == "1"
    assert "aif_app@" in environment["AIF_DATABASE_URL"]
    assert "aif_owner@" in instance.environment(port=1, demo=False, owner=True)["AIF_DATABASE_URL"]


def test_settings_of_the_caller_do_not_leak_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIF_DATABASE_URL", "postgresql://elsewhere/x")
    monkeypatch.setenv("AIF_FORM_ACTIONS", "https://elsewhere.example")
    instance = Instance(tmp_path / "data")
    instance.prepare()
    environment = instance.environment(port=1, demo=False)
    assert "elsewhere" not in str({key: value for key, value in environment.items() if key.startswith("AIF_")})


def test_a_second_lock_is_refused(tmp_path: Path) -> None:
    first = _take_lock(tmp_path / "lock")
    assert first is not None
    assert _take_lock(tmp_path / "lock") is None
    first.close()
    second = _take_lock(tmp_path / "lock")
    assert second is not None
    second.close()


def test_a_port_in_use_is_told() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=f"Port {port} is in use"):
            _choose_port(port)
