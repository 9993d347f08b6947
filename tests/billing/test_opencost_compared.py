"""`docs/opencost-compared.md` is what this computes from the recorded answers and our own meter: it can't drift.

After a change on purpose: ``AIF_UPDATE_DOCS=1 pytest tests/billing/test_opencost_compared.py`` writes it anew.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from billing.models import DeviceAllocation
from billing.opencost.answers import Allocation, read_allocation
from billing.opencost.compare import ROUNDING, WORDS, Class, Difference, Run, compare, together
from billing.selectors.allocations import overlapping
from billing.services.metering import meter_cluster
from portal.kernel.clock import Interval, clip, format_rfc3339, parse_rfc3339
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
HEAD = """# Our GPU-seconds beside OpenCost's

One recorded run (Kubernetes 1.35, HAMi, OpenCost of 2025-02; whole cards, HAMi shares and MIG slices) was metered by
both. The true figures come from the pods' own start and end times. *Ours* is what the watcher and the meter make of
the recorded watch; it equals the truth in every row, as fractions, and a test compares them. *OpenCost* is its
answer of `/allocation` for the same window, its pods added up, in card-seconds (`gpuHours` x 3600). The ratio is
OpenCost's figure to the truth. Each class says in brackets how many card-seconds of the difference it is; they are
computed from evidence by `billing/opencost/compare.py`, as on the page *Beside OpenCost*, and add up to the difference.

This page is written by `tests/billing/test_opencost_compared.py`, and the test fails where they differ.
"""

TAIL = """
## The classes

| class | what happens | what we do |
| --- | --- | --- |
| the same | but for rounding: hours have five decimals | |
| share counted as a whole card | `nvidia.com/gpu: 1` of a HAMi pod is read as a card | max(memory, cores) of the card |
| MIG not counted | resources `nvidia.com/mig-*` are not known | compute slices of the card, by profile |
| held while starting or ending | only running containers count | the card is held from the first container on |
| too short to be seen | a run between two samples leaves no row | the watch holds every start and end |
| one row for one name | a pod made again under its name is merged with the first | the pod's uid is the key |
| edges on a grid | starts and ends lie on samples minutes apart | the container's own times, to the millisecond |
| window off the grid | a window that is not on 5-minute marks loses what lies beyond them | any window |
| its row is missing | a pod that ran over several samples has no row | the watch saw it |
| before we watched | it knows of time before the cluster was connected | history can be rebuilt, marked *retroactive* |
| unexplained | no evidence for any of these | shown as such |
"""


@dataclass(frozen=True)
class Row:
    """One namespace in one window."""

    namespace: str
    found: Difference


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
        whole = read_allocation(200, (DATA / answer).read_bytes(), interval, ("namespace",))
        rows = compare_window(interval, window["namespaces"], pods_of(answer, interval), whole)
        sections.append(section(name, interval, rows))
    page = HEAD + "".join(sections) + TAIL
    if os.environ.get("AIF_UPDATE_DOCS"):
        DOCUMENT.write_text(page)
    assert DOCUMENT.read_text() == page
    # The figures that the README quotes, of the ten minutes.
    ratios = [line.split("|")[4].strip() for line in sections[0].splitlines() if line.startswith("| team-")]
    assert ratios == ["no row", "4.00", "1.18", "0", "no row", "0.71", "0.70", "1.00"]


def pods_of(answer: str, interval: Interval) -> Allocation | None:
    """The window's answer by pod. A step of 5 minutes answers as the window of those 5 minutes does; off the grid
    nothing was recorded by pod."""
    if answer == "opencost-namespace.json":
        return read_allocation(200, (DATA / "opencost-namespace-pod.json").read_bytes(), interval)
    steps = json.loads((DATA / "opencost-pod-step-5m.json").read_text(), parse_float=str)
    for one in steps["data"]:
        first = next(iter(one.values()))["window"]
        if (first["start"], first["end"]) == (format_rfc3339(interval.start), format_rfc3339(interval.end)):
            body = json.dumps({"code": 200, "data": [one]})
            exact = re.sub(r'"(-?[0-9]+\.[0-9]+)"', r"\1", body)  # decimals as they were written, never a float
            return read_allocation(200, exact.encode(), interval, ("pod",))
    return None


def compare_window(
    interval: Interval, namespaces: dict[str, Any], pods: Allocation | None, by_name: Allocation
) -> list[Row]:
    """Each namespace's pods compared by name, and added up; without an answer by pod, all of a namespace at once."""
    with system_scope("test"):
        runs: dict[tuple[str, str], list[Run]] = defaultdict(list)
        for row in DeviceAllocation.objects.filter(overlapping(interval), bucket="tenants").order_by("pod_uid"):
            held = clip(Interval(row.started_at, row.ended_at or interval.end), interval)
            if held is not None and not held.is_empty:
                name = (row.namespace, row.pod_name if pods is not None else "")
                runs[name].append(Run(row.pod_uid, row.sharing, 1, row.exact_share, held))
    theirs = {(row.namespace, row.pod): row.gpu_hours for row in (pods or by_name).rows}
    spaces = {row.namespace: row.gpu_hours for row in by_name.rows}
    rows = []
    for namespace in sorted(namespaces):
        names = sorted({name for name in (*runs, *theirs) if name[0] == namespace})
        found = together(compare(interval, runs.get(name, []), seconds(theirs.get(name))) for name in names)
        # The rows of pods are rounded, too: what they lack to the row of their namespace is a difference of no meaning.
        assert abs((found.theirs or 0) - (seconds(spaces.get(namespace)) or 0)) <= ROUNDING * max(1, len(names))
        assert found.difference == sum((part for _, part in found.parts), Fraction(0))
        rows.append(Row(namespace, found))
    return rows


def seconds(hours: Decimal | None) -> Fraction | None:
    return None if hours is None else Fraction(hours) * 3600


def section(name: str, interval: Interval, rows: list[Row]) -> str:
    lines = [
        f"\n## {name[0].upper()}{name[1:]}: {format_rfc3339(interval.start)} to {format_rfc3339(interval.end)}\n",
        "| namespace | ours = truth | OpenCost | ratio | class |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        ours, theirs = row.found.ours, row.found.theirs
        shown = "no row" if theirs is None else figure(theirs)
        ratio = "no row" if theirs is None else "-" if not ours else "0"
        if theirs and ours:
            ratio = f"{decimal_from(theirs / ours, 2):f}"
        parts = [f"{WORDS[name]} {signed(part)}" for name, part in row.found.parts if name is not Class.ROUNDING]
        lines.append(f"| {row.namespace} | {figure(ours)} | {shown} | {ratio} | {', '.join(parts) or 'the same'} |")
    return "\n".join(lines) + "\n"


def signed(seconds: Fraction) -> str:
    return f"({'+' if seconds > 0 else '−'}{figure(abs(seconds))})"


def figure(value: Fraction) -> str:
    text = f"{decimal_from(value, 2):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
