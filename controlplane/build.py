"""Builds the control plane's programs from Go modules into the user's cache folder; see `tools/`.

One folder for each group of programs, named by a stamp over what it is built from: the same stamp is never built
twice, and a new one leaves the old beside it. Two builds at once wait for each other (a file lock).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from controlplane.children import die_with_parent

TOOLS = Path(__file__).parent / "tools"
KUBERNETES = "v1.35.4"
_VERSION = "k8s.io/component-base/version"
_STRIP = "-s -w"
_GO_LINE = re.compile(r"^go (\d+)\.(\d+)", re.MULTILINE)


class BuildError(RuntimeError):
    """The programs can't be built; the message says why and what to do."""


@dataclass(frozen=True)
class Group:
    """Programs of one Go module: `tools/NAME/go.mod`."""

    name: str
    packages: tuple[str, ...]
    ldflags: str = _STRIP

    @property
    def source(self) -> Path:
        """The module's folder."""
        return TOOLS / self.name

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of what is built."""
        return tuple(self.name if package == "." else package.rpartition("/")[2] for package in self.packages)

    @property
    def stamp(self) -> str:
        """Changes with anything that the programs are made of."""
        digest = hashlib.sha256(f"{self.ldflags}\n{self.packages}\n".encode())
        for path in sorted(self.source.iterdir()):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:16]

    @property
    def folder(self) -> Path:
        """Where the programs are, once they are built."""
        return cache_folder() / self.stamp

    @property
    def built(self) -> bool:
        """Whether they are there."""
        return all((self.folder / name).exists() for name in self.programs)


GROUPS = (
    Group(
        "kube",
        tuple(
            f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        ),
        # Without these the server would report v0.0.0-master.
        f"{_STRIP} -X {_VERSION}.gitVersion={KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=35 "
        f"-X {_VERSION}.gitTreeState=clean",
    ),
    Group("etcd", (".",)),
    Group("kwok", ("sigs.k8s.io/kwok/cmd/kwok",)),
    # Renders our own chart (deploy/chart) in the tests.
    Group("helm", ("helm.sh/helm/v3/cmd/helm",)),
)


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME` or `~/.cache`, and our part of it."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "ai-factory-portal" / "controlplane"


def programs() -> dict[str, Path]:
    """Name → path of each program. Raises BuildError where they are not built."""
    missing = [group.name for group in GROUPS if not group.built]
    if missing:
        raise BuildError(f"not built yet: {', '.join(missing)}. Build with: python -m controlplane build")
    return {name: group.folder / name for group in GROUPS for name in group.programs}


def build() -> list[str]:
    """Build what is missing; the names of the groups that were built. Raises BuildError."""
    if all(group.built for group in GROUPS):
        return []
    made = []
    with alone():
        for group in GROUPS:
            if not group.built:
                _check_go(group)
                _build(group)
                made.append(group.name)
    return made


@contextmanager
def alone() -> Iterator[None]:
    """For the block nobody else builds or fetches; waits, and says so, while somebody does."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is running; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _check_go(group: Group) -> None:
    go = shutil.which("go")
    needed = _GO_LINE.search((group.source / "go.mod").read_text())
    assert needed is not None
    wanted = (int(needed[1]), int(needed[2]))
    text = f"Go {wanted[0]}.{wanted[1]} or newer"
    if go is None:
        raise BuildError(f"{text} is needed to build the control plane, and there is no command `go`. Install it.")
    told = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, cwd=TOOLS)
    found = re.match(r"go(\d+)\.(\d+)", told.stdout)
    if found is None:
        raise BuildError(
            f"`go env GOVERSION` answered {told.stdout.strip() or told.stderr.strip()!r}: no version of Go."
        )
    if (int(found[1]), int(found[2])) < wanted:
        raise BuildError(
            f"{text} is needed to build the control plane; `go` is {told.stdout.strip()}. Install a newer one."
        )


def _build(group: Group) -> None:
    say(f"building {', '.join(group.programs)} (minutes, the first time)")
    unfinished = Path(tempfile.mkdtemp(prefix=f"{group.name}-", dir=cache_folder()))
    command = ["go", "build", "-trimpath", "-ldflags", group.ldflags, "-o", f"{unfinished}/", *group.packages]
    environment = os.environ | {"CGO_ENABLED": "0"}
    try:
        done = subprocess.run(
            command, cwd=group.source, env=environment, capture_output=True, text=True, check=False,
            preexec_fn=die_with_parent(signal.SIGTERM),  # only a system call is made
        )  # fmt: skip
        if done.returncode != 0:
            raise BuildError(f"go build of {group.name} failed:\n{done.stderr.strip()[-2000:]}")
        for name in group.programs:
            if not (unfinished / name).exists():
                raise BuildError(f"go build of {group.name} succeeded, but made no {name}")
        shutil.rmtree(group.folder, ignore_errors=True)
        unfinished.chmod(0o755)
        unfinished.rename(group.folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def say(line: str) -> None:
    """A line on standard error."""
    sys.stderr.write(f"controlplane: {line}\n")
    sys.stderr.flush()
