"""Child processes that end with us, however we end, and are started again when they end by themselves."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
ROOT = Path(__file__).resolve().parents[1]
TAIL_BYTES = 4000
RESTARTS = 50
KEPT = ("PATH", "HOME", "TMPDIR", "TZ", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE")
"""Environment variables that the parts get."""


class PlaneError(RuntimeError):
    """The control plane can't run; the message says which part and why."""


@dataclass
class Part:
    """One program. `ready` tells whether it works; `before` runs ahead of each start."""

    name: str
    command: Sequence[str]
    ready: Callable[[], bool]
    patience: float = 5.0
    """Seconds from SIGTERM to SIGKILL."""
    before: Callable[[], None] | None = None
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    restarts: int = 0

    def running(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.poll() is None


class Children:
    """The parts in the order of their start; logs in `state/log`, process ids in `state/run`."""

    def __init__(self, state: Path) -> None:
        self.logs, self.ids = state / "log", state / "run"
        for folder in (self.logs, self.ids):
            folder.mkdir(parents=True, exist_ok=True)
        self.parts: list[Part] = []

    def start(self, part: Part) -> None:
        """Start a part. To be called from the main thread: the kernel ends the child with the *thread* that made it."""
        if part not in self.parts:
            self.parts.append(part)
        if part.before is not None:
            part.before()
        with self._log(part).open("ab") as log:
            part.process = subprocess.Popen(
                list(part.command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT,
                env=_bare_environment(),
                process_group=0,  # Ctrl-C reaches us alone; we end the parts in order
                preexec_fn=die_with_parent(signal.SIGKILL),  # noqa: PLW1509  # only a system call is made
            )  # fmt: skip
        (self.ids / f"{part.name}.pid").write_text(str(part.process.pid))

    def wait_ready(self, parts: Sequence[Part], seconds: float, stopped: Callable[[], bool]) -> None:
        """Wait until all of the parts work; raises PlaneError with the last lines of one that does not."""
        waiting, until = list(parts), time.monotonic() + seconds
        while waiting and not stopped():
            waiting = [part for part in waiting if not part.ready()]
            for part in waiting:
                if not part.running() or time.monotonic() > until:
                    what = "ended at once" if not part.running() else f"is not ready after {seconds:.0f} s"
                    raise PlaneError(f"{part.name} {what}; the end of {self._log(part)}:\n{self._tail(part)}")
            time.sleep(0.1)

    def look_after(self) -> None:
        """Start again what has ended by itself; raises PlaneError for a part that ends again and again."""
        for part in self.parts:
            if part.process is not None and not part.running():
                part.restarts += 1
                if part.restarts > RESTARTS:
                    raise PlaneError(f"{part.name} ended {RESTARTS} times; the end of its log:\n{self._tail(part)}")
                sys.stderr.write(f"controlplane: {part.name} ended with status {part.process.returncode}; again\n")
                self.start(part)

    def stop(self) -> None:
        """End all, the last started first: asked all at once, and killed after their patience. etcd goes last."""
        groups = [self.parts[1:], self.parts[:1]]
        for group in groups:
            asked = time.monotonic()
            for part in reversed(group):
                if part.running():
                    assert part.process is not None
                    part.process.send_signal(signal.SIGTERM)
            for part in reversed(group):
                _end(part, asked)
                (self.ids / f"{part.name}.pid").unlink(missing_ok=True)

    def _log(self, part: Part) -> Path:
        return self.logs / f"{part.name}.log"

    def _tail(self, part: Part) -> str:
        return self._log(part).read_bytes()[-TAIL_BYTES:].decode(errors="replace")


def _end(part: Part, asked: float) -> None:
    """Wait for a part until its patience is over since it was ``asked``, then kill it."""
    if part.process is None:
        return
    try:
        part.process.wait(max(0.0, asked + part.patience - time.monotonic()))
    except subprocess.TimeoutExpired:
        part.process.kill()
        part.process.wait()


def _bare_environment() -> dict[str, str]:
    """No proxies, no Kubernetes service of a pod that we may run in, no settings of the product."""
    return {name: os.environ[name] for name in KEPT if name in os.environ}


def die_with_parent(number: int) -> Callable[[], None] | None:
    """For `preexec_fn`: the child gets this signal when we end, however we end (Linux)."""
    if _LIBC is None:
        return None
    libc, parent = _LIBC, os.getpid()

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(1)

    return prepare


def end_with(pid: int) -> None:
    """Ask the kernel for SIGTERM when the parent `pid` ends (Linux; elsewhere looking now and then has to do)."""
    if _LIBC is not None and os.getppid() == pid:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def alive(pid: int) -> bool:
    """Whether there is a process with this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
