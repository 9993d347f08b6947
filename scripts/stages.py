"""Run the stages of ``make test``, ``make lint`` and ``make bench``; say what each took against its budget.

A stage that takes longer than its budget is told, not failed: machines differ. The last line is the sum of what
pytest counted, over all stages.

Stages that mostly wait (for clusters, browsers, processes that were killed) run side by side in lanes, each with a
database of its own; what a lane's stage prints is shown when it ends.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
FIGURE = "bench: "
"""How a bench's line for the table begins (tests/bench/line.py)."""
COUNT = re.compile(r"(\d+) (passed|failed|skipped|error|errors|xfailed|xpassed)\b")


@dataclass
class Stage:
    """One command line, or several in a row, with a budget in seconds (two cores)."""

    name: str
    budget: int
    commands: list[list[str]]
    counts: bool = False
    seconds: float = 0.0
    failed: bool = False
    lane: str = ""
    """Stages of different lanes that follow one another run side by side; those of one lane in their order."""
    tally: dict[str, int] = field(default_factory=dict)
    figures: list[list[str]] = field(default_factory=list)


def python(*args: str) -> list[str]:
    """A command line of the virtual environment's Python."""
    return [str(BIN / "python"), *args]


def pytest(*args: str) -> list[str]:
    """A command line of pytest with the options that all stages share."""
    return python("-m", "pytest", "-q", "--tb=short", "--show-capture=no", "--durations=8", "--durations-min=5", *args)


LINT = [
    Stage(
        "lint",
        60,
        [
            [str(BIN / "ruff"), "check", "-q", "."],
            [str(BIN / "ruff"), "format", "--check", "-q", "."],
            [str(BIN / "lint-imports"), "--no-cache"],
        ],
    ),
    Stage("types", 180, [[str(BIN / "mypy"), "."]]),
]

TESTS = [
    Stage("system", 120, [python("scripts/system_packages.py")]),
    *LINT,
    Stage("checks", 60, [python("scripts/django_checks.py")]),
    Stage("unit", 300, [pytest("-n", "2", "tests/unit")], counts=True),
    Stage(
        "services and pages",
        240,
        [pytest("-n", "2", "tests/api", "tests/web", "tests/billing", "tests/tenants")],
        counts=True,
    ),
    Stage("control plane", 540, [python("-m", "controlplane", "build"), python("-m", "controlplane", "prometheus")]),
    Stage("clusters", 600, [pytest("tests/cluster")], counts=True, lane="one"),
    Stage("concurrency and chaos", 900, [pytest("tests/concurrency", "tests/chaos")], counts=True, lane="two"),
    Stage("sign-in", 120, [pytest("tests/signin")], counts=True, lane="one"),
    # It mostly waits: for a history to grow, and for bookmarks.
    Stage("adoption", 300, [pytest("tests/story/test_adoption.py")], counts=True, lane="three"),
    Stage("story", 360, [pytest("tests/story/test_real_parts.py")], counts=True, lane="one"),
    Stage("browser", 360, [pytest("tests/browser")], counts=True, lane="two"),
    Stage("deploy", 120, [pytest("tests/deploy")], counts=True, lane="two"),
]

BENCHES = [
    Stage("placement", 60, [python("tests/bench/bench_placement.py")]),
    Stage("placement and ledger", 90, [python("tests/bench/bench_ledger.py")]),
    Stage("pages", 120, [python("tests/bench/bench_pages.py")]),
    Stage("close", 180, [python("tests/bench/bench_close.py")]),
    Stage("control plane", 540, [python("-m", "controlplane", "build")]),
    Stage("resync", 180, [python("tests/bench/bench_resync.py")]),
    Stage("converge", 600, [python("tests/bench/bench_converge.py")]),
    Stage("meter", 120, [python("tests/bench/bench_meter.py")]),
]


def run_all(stages: Sequence[Stage], extra: list[str]) -> None:
    """Run them in order; neighbours with lanes side by side."""
    rest = list(stages)
    while rest:
        if not rest[0].lane:
            run(rest.pop(0), extra, lambda line: print(line, end="", flush=True))
            continue
        lanes: dict[str, list[Stage]] = {}
        while rest and rest[0].lane:
            stage = rest.pop(0)
            lanes.setdefault(stage.lane, []).append(stage)
        print(f"\n=== side by side: {', '.join(s.name for one in lanes.values() for s in one)}", flush=True)
        threads = [threading.Thread(target=_lane, args=(one, extra)) for one in lanes.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


_printing = threading.Lock()


def _lane(stages: list[Stage], extra: list[str]) -> None:
    for stage in stages:
        lines: list[str] = []
        run(stage, extra, lines.append)
        with _printing:
            print("".join(lines), end="", flush=True)


def run(stage: Stage, extra: list[str], say: Callable[[str], object]) -> None:
    """Run a stage, its output given to ``say``; note the time and what pytest counted."""
    say(f"\n=== {stage.name}\n")
    began = time.monotonic()
    env = dict(os.environ)
    if stage.lane:
        env["AIF_TEST_WORKER"] = f"{env.get('AIF_TEST_WORKER') or 'main'}_{stage.lane}"
    for command in stage.commands:
        full = command + (extra if stage.counts else [])
        with subprocess.Popen(
            full, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as child:
            assert child.stdout is not None
            last = ""
            for line in child.stdout:
                say(line)
                if COUNT.search(line) and " in " in line:
                    last = line
                if line.startswith(FIGURE):
                    stage.figures.append(line.removeprefix(FIGURE).strip().split(" | "))
        if child.returncode != 0:
            stage.failed = True
        for number, word in COUNT.findall(last):
            stage.tally[word] = stage.tally.get(word, 0) + int(number)
    stage.seconds = time.monotonic() - began
    over = f" (over by {stage.seconds - stage.budget:.0f} s)" if stage.seconds > stage.budget else ""
    say(f"=== {stage.name}: {stage.seconds:.1f} s of {stage.budget} s{over}\n")


def report(stages: list[Stage]) -> int:
    """Print the table of stages and the sum of the counts; the exit status."""
    print("\nstage                     took    budget")
    for stage in stages:
        mark = "FAILED" if stage.failed else ("over" if stage.seconds > stage.budget else "")
        print(f"{stage.name:<24}{stage.seconds:>6.1f} s {stage.budget:>6} s  {mark}")
    failed = sum(s.tally.get(word, 0) for s in stages for word in ("failed", "error", "errors"))
    broken = [s.name for s in stages if s.failed and not any(s.tally.get(w) for w in ("failed", "error", "errors"))]
    passed = sum(s.tally.get("passed", 0) for s in stages)
    skipped = sum(s.tally.get("skipped", 0) for s in stages)
    if broken:
        print(f"Failed stages: {', '.join(broken)}.")
    print(f"{passed} passed, {failed + len(broken)} failed, {skipped} skipped")
    return 1 if any(stage.failed for stage in stages) else 0


def table(stages: list[Stage]) -> int:
    """Print what the benches measured; the exit status: 0 also where a figure was not reached (machines differ)."""
    rows = [["what", "ours", "yardstick", "ratio", "reach", "reached"], *(row for s in stages for row in s.figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    print()
    for row in rows:
        print(" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    failed = [stage.name for stage in stages if stage.failed]
    if failed:
        print(f"Failed: {', '.join(failed)}.")
    return 1 if failed else 0


def main() -> int:
    """Command line: ``stages.py test|lint|bench [--only NAME] [pytest options]``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["test", "lint", "bench"])
    parser.add_argument("--only", help="run only the stages whose name contains this")
    options, extra = parser.parse_known_args()
    stages = {"test": TESTS, "lint": LINT, "bench": BENCHES}[options.what]
    if options.only:
        stages = [stage for stage in stages if options.only in stage.name]
    if not shutil.which(str(BIN / "python")):
        print("The virtual environment is missing: run `make setup-dev`.", file=sys.stderr)
        return 2
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings.testing")
    # Each stage starts many processes: where bytecode is not kept beside the source, it is kept here.
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(BIN.parent / "bytecode"))
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(ROOT / ".hypothesis"))
    # What mypy found out about a file holds for the next clone too: it compares contents.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ai-factory-portal"
    os.environ.setdefault("MYPY_CACHE_DIR", str(cache / "mypy"))
    began = time.monotonic()
    run_all(stages, extra)
    print(f"\nin all {time.monotonic() - began:.0f} s")
    return table(stages) if options.what == "bench" else report(stages)


if __name__ == "__main__":
    sys.exit(main())
