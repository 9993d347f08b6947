"""`docs/opencost-compared.md` is what this computes from the recorded answers and our own meter: it can't drift.

After a change on purpose: ``AIF_UPDATE_DOCS=1 pytest tests/billing/test_opencost_compared.py`` writes it anew.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from billing.models import DeviceAllocation
from billing.selectors.allocations import device_time
from billing.services.metering import meter_cluster
from portal.kernel.clock import Interval, format_rfc3339, parse_rfc3339
from portal.kernel.money import decimal_from
from portal.kernel.scoping import system_scope
from tests.billing.factories import claim_namespaces, make_tenant
from tests.support.replay import DATA, recorded_cluster, replay, truth

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "opencost-compared.md"
ANSWERS = [
    "opencost-namespace.json",
    "opencost-namespace-first-5m.json",
    "opencost-namespace-second-5m.json",
    "opencost-namespace-off-grid.json",
]
ROUNDING = Fraction(5, 100)
"""OpenCost rounds hours to five decimals: so many seconds a row are no difference."""
GRID = timedelta(minutes=5)
ITS_RENEWAL = timedelta(minutes=1)
"""How often OpenCost renews its metric of GPUs."""

HEAD = """# Our GPU-seconds beside OpenCost's

One recorded run (Kubernetes 1.35, HAMi, OpenCost of 2025-02; whole cards, HAMi shares and MIG slices) was metered by
both. The true figures come from the pods' own start and end times. *Ours* is what the watcher and the meter make of
the recorded watch; it equals the truth in every row, as fractions, and a test compares them. *OpenCost* is its
answer of `/allocation` for the same window, in card-seconds (`gpuHours` x 3600). The ratio is OpenCost's figure to
the truth.

This page is written by `tests/billing/test_opencost_compared.py`, and the test fails where they differ.
"""

TAIL = """
## The classes

| class | what happens | what we do |
| --- | --- | --- |
| the same | | |
| share counted as a whole card | `nvidia.com/gpu: 1` of a HAMi pod is read as a card | max(memory, cores) of the card |
| MIG not counted | resources `nvidia.com/mig-*` are not known | compute slices of the card, by profile |
| edges on a grid | starts and ends lie on samples minutes apart | the container's own times, to the millisecond |
| too short to be seen | a run between two samples leaves no row | the watch holds every start and end |
| one row for one name | a pod made again under its name is merged with the first | the pod's uid is the key |
| window off the grid | a window that is not on 5-minute marks loses what lies beyond them | any window |
"""


@dataclass(frozen=True)
class Row:
    """One namespace in one window: card-seconds."""

    namespace: str
    ours: Fraction
    theirs: Fraction | None
    classes: list[str]


@pytest.mark.django_db
def test_the_page_is_what_we_compute() -> None:
    cluster = recorded_cluster()
    replay(cluster)
    with system_scope("test"):
        tenant = make_tenant("ml-team")
        claim_namespaces(cluster, tenant, sorted({pod["namespace"] for pod in truth()["pods"]}))
    meter_cluster(cluster.pk)
    sections = []
    for (name, window), answer in zip(truth()["windows"].items(), ANSWERS, strict=True):
        interval = Interval(parse_rfc3339(window["start"]), parse_rfc3339(window["end"]))
        rows = compare(interval, window["namespaces"], json.loads((DATA / answer).read_text()))
        sections.append(section(name, interval, rows))
    page = HEAD + "".join(sections) + TAIL
    if os.environ.get("AIF_UPDATE_DOCS"):
        DOCUMENT.write_text(page)
    assert DOCUMENT.read_text() == page
    # The figures that the README quotes, of the ten minutes.
    ratios = [line.split("|")[4].strip() for line in sections[0].splitlines() if line.startswith("| team-")]
    assert ratios == ["no row", "4.00", "1.18", "0", "no row", "0.71", "0.70", "1.00"]


def compare(interval: Interval, namespaces: dict[str, Any], answer: dict[str, Any]) -> list[Row]:
    """Our figures and OpenCost's; the window of its answer is the one that was asked for."""
    with system_scope("test"):
        ours: dict[str, Fraction] = defaultdict(Fraction)
        for row in device_time(interval):
            ours[row.namespace] += row.card_seconds
        modes = dict(DeviceAllocation.objects.values_list("namespace", "sharing").distinct())
    found = answer["data"][0]
    rows = []
    for namespace in sorted(namespaces):
        theirs = None
        if namespace in found:
            assert parse_rfc3339(found[namespace]["window"]["start"]) == interval.start
            theirs = Fraction(str(found[namespace]["gpuHours"])) * 3600
        pods = [pod for pod in truth()["pods"] if pod["namespace"] == namespace]
        rows.append(Row(namespace, ours[namespace], theirs, classes_of(interval, ours[namespace], theirs, pods, modes)))
    return rows


def classes_of(
    interval: Interval, ours: Fraction, theirs: Fraction | None, pods: list[dict[str, Any]], modes: dict[str, str]
) -> list[str]:
    """Why the figures differ, from how the pods held their cards, when they ran, and where the window lies."""
    if abs((theirs or Fraction(0)) - ours) <= ROUNDING:
        return ["the same"]
    runs = [run for pod in pods if (run := running(pod, interval)) is not None]
    mode = modes.get(pods[0]["namespace"], "")
    if mode == "mig":
        return ["MIG not counted"]
    classes = ["share counted as a whole card"] if mode == "hami" and theirs else []
    whole = sum((Fraction(str(run.end.timestamp() - run.start.timestamp())) * pod["nvidia_gpu_limit"]
                 for pod, run in ((pod, running(pod, interval)) for pod in pods) if run), Fraction(0))  # fmt: skip
    if on_grid(interval.start) and on_grid(interval.end):
        if all(run.end - run.start < ITS_RENEWAL for run in runs):
            return ["too short to be seen"]
        if abs((theirs or Fraction(0)) - whole) > ROUNDING:
            classes.append("edges on a grid")
        if any(run.end - run.start < ITS_RENEWAL for run in runs):
            classes.append("too short to be seen")
        if len({pod["pod"] for pod in pods}) < len(runs):
            classes.append("one row for one name")
    else:
        classes.append("window off the grid")
    return classes


def running(pod: dict[str, Any], interval: Interval) -> Interval | None:
    """When the pod ran within the window."""
    if pod["startedAt"] is None:
        return None
    start = max(parse_rfc3339(pod["startedAt"]), interval.start)
    end = min(parse_rfc3339(pod["finishedAt"]) if pod["finishedAt"] else interval.end, interval.end)
    return Interval(start, end) if start < end else None


def on_grid(instant: datetime) -> bool:
    return instant.timestamp() % GRID.total_seconds() == 0


def section(name: str, interval: Interval, rows: list[Row]) -> str:
    lines = [
        f"\n## {name[0].upper()}{name[1:]}: {format_rfc3339(interval.start)} to {format_rfc3339(interval.end)}\n",
        "| namespace | ours = truth | OpenCost | ratio | class |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        theirs = "no row" if row.theirs is None else figure(row.theirs)
        if row.theirs is None:
            ratio = "no row"
        elif row.ours:
            ratio = f"{decimal_from(row.theirs / row.ours, 2):f}" if row.theirs else "0"
        else:
            ratio = "-"
        lines.append(f"| {row.namespace} | {figure(row.ours)} | {theirs} | {ratio} | {', '.join(row.classes)} |")
    return "\n".join(lines) + "\n"


def figure(value: Fraction) -> str:
    text = f"{decimal_from(value, 2):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
