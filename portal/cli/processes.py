"""Child processes of the supervisor: started so that they end with it, and recognised beyond doubt. No Django.

A process is known by pid *and* start time *and* command line: pids are reused, and nothing of somebody else's may
ever be signalled.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import psutil

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Identity:
    """What makes a process this very process."""

    name: str
    pid: int
    started: float
    command: list[str]

    @classmethod
    def of(cls, name: str, pid: int) -> Identity:
        """The identity of a running process."""
        process = psutil.Process(pid)
        return cls(name, pid, process.create_time(), process.cmdline())

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Identity:
        """Read what :meth:`as_json` wrote."""
        return cls(str(data["name"]), int(data["pid"]), float(data["started"]), [str(part) for part in data["command"]])

    def as_json(self) -> dict[str, Any]:
        """For the state file."""
        return asdict(self)

    def alive(self) -> bool:
        """Whether it still runs, and is no other process with its pid."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < 0.05 and process.cmdline() == self.command
            return bool(same and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False

    def end(self, *, patience: float = 10.0) -> None:
        """SIGTERM, and SIGKILL if it is still there after ``patience`` seconds; nothing if it is another process."""
        for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 5.0)):
            if not self.alive():
                return
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return
            deadline = time.monotonic() + seconds
            while self.alive() and time.monotonic() < deadline:
                time.sleep(0.05)


class Child:
    """A running child whose output is passed on line by line behind its name."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        say: Callable[[str, str], None],
        on_parent_death: int = signal.SIGKILL,
        on_line: Callable[[str], bool] | None = None,
    ) -> None:
        """Start it.

        Args:
            say: called with name and line of output.
            on_parent_death: the signal it gets when this process dies, however it dies (Linux).
            on_line: sees each line of standard output first; True: the line is not passed on.
        """
        self.name = name
        self.process = subprocess.Popen(
            list(command),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # Its own group: Ctrl-C reaches the supervisor alone, which then ends the children in order.
            process_group=0,
            preexec_fn=_die_with_parent(on_parent_death),  # noqa: PLW1509  # only a system call is made
        )
        self.identity = Identity.of(name, self.process.pid)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            observer = on_line if stream is self.process.stdout else None
            threading.Thread(target=self._pass_on, args=(stream, say, observer), daemon=True).start()

    def _pass_on(self, stream: IO[str], say: Callable[[str, str], None], on_line: Callable[[str], bool] | None) -> None:
        for line in stream:
            text = line.rstrip("\n")
            if on_line is None or not on_line(text):
                say(self.name, text)

    def running(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def stop(self, patience: float) -> None:
        """SIGTERM, then SIGKILL after ``patience`` seconds."""
        if self.running():
            self.process.terminate()
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


def _die_with_parent(number: int) -> Callable[[], None] | None:
    if _LIBC is None:
        return None
    libc, parent = _LIBC, os.getpid()

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(1)

    return prepare
