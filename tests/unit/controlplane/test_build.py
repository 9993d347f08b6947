"""What is built, when it is built again, and what is said where it can't be."""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

import pytest

from controlplane import build
from controlplane.build import BuildError, Group

GO = """#!/bin/sh
if [ "$1" = env ]; then echo "${FAKE_GO_VERSION:-go1.26.8}"; exit 0; fi
echo built >> "$FAKE_GO_LOG"
sleep "${FAKE_GO_SLEEP:-0}"
if [ -n "$FAKE_GO_FAILS" ]; then echo "cannot find module" >&2; exit 1; fi
while [ "$1" != -o ]; do shift; done
echo program > "$2/tool"
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the command `go`, and a cache of this test's own; the log has a line for each build."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "go"
    program.write_text(GO)
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    log = tmp_path / "log"
    log.touch()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_GO_LOG", str(log))
    source = tmp_path / "tools" / "tool"
    source.mkdir(parents=True)
    (source / "go.mod").write_text("module example.invalid/tool\n\ngo 1.26.0\n")
    monkeypatch.setattr(build, "TOOLS", tmp_path / "tools")
    monkeypatch.setattr(build, "GROUPS", (Group("tool", (".",)),))
    return log


def test_nothing_is_built_twice_and_a_change_is_built_beside_it(go: Path) -> None:
    with pytest.raises(BuildError, match="not built yet: tool"):
        build.programs()
    assert build.build() == ["tool"]
    assert build.build() == []
    before = build.programs()["tool"]
    assert before.read_text() == "program\n"
    assert before.is_relative_to(build.cache_folder())
    (build.TOOLS / "tool" / "go.sum").write_text("example.invalid/other v1.0.0 h1:x\n")
    assert build.build() == ["tool"]
    assert build.programs()["tool"] != before
    assert before.exists()
    assert go.read_text().count("built") == 2


def test_two_builds_at_once_build_once(go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_SLEEP", "0.5")
    made: list[list[str]] = []
    threads = [threading.Thread(target=lambda: made.append(build.build())) for _ in range(2)]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join(30)
    assert sorted(made) == [[], ["tool"]]
    assert go.read_text().count("built") == 1


def test_a_build_that_fails_leaves_nothing_and_says_what_go_said(go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_FAILS", "1")
    with pytest.raises(BuildError, match="cannot find module"):
        build.build()
    assert [path.name for path in build.cache_folder().iterdir()] == ["lock"]


def test_without_go_or_with_an_old_one_it_says_which_is_needed(go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_VERSION", "go1.19.8")
    with pytest.raises(BuildError, match=r"Go 1\.26 or newer is needed .* `go` is go1\.19\.8"):
        build.build()
    monkeypatch.setenv("PATH", str(go.parent))
    with pytest.raises(BuildError, match="there is no command `go`"):
        build.build()


def test_the_modules_that_are_built_are_locked() -> None:
    for group in build.GROUPS:
        assert (group.source / "go.sum").read_text().strip(), group.name
        assert len(group.stamp) == 16
    assert len({group.stamp for group in build.GROUPS}) == len(build.GROUPS)
