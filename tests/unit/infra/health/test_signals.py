"""What signals mean: XIDs by class, the gauge that sticks, conditions with their polarity."""

from __future__ import annotations

import csv
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.health import (
    CREDITED,
    MEANINGS,
    WITHHELD,
    XIDS,
    FaultClass,
    GaugeState,
    class_names,
    node_findings,
    parse_classes,
    xid_class,
    xid_events,
    xid_name,
)

CATALOG = Path(__file__).resolve().parents[5] / "shared" / "data" / "metering" / "xid-catalog.csv"
CLASSES = {
    "application": [13, 31, 32, 43, 45, 68, 69, 94],
    "watch": [63, 92, 121, 137, 157, 160, 161],
    "reset": [46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158],
    "memory": [48],
    "link": [74, 144, 145, 146, 147, 148, 149, 150],
    "node": [54, 79, 151],
    "info": [154, 171, 172],
}


def test_the_table() -> None:
    found: dict[str, list[int]] = {}
    for code in sorted(XIDS):
        found.setdefault(xid_class(code).value, []).append(code)
    assert found == CLASSES
    assert xid_class(1) is FaultClass.UNKNOWN
    assert xid_name(79) == "XID 79: the card has fallen off the bus"
    assert set(MEANINGS) == set(FaultClass)


def test_never_credited() -> None:
    """What a program does to itself is not given back."""
    assert not {xid_class(code) for code in (13, 31, 32, 43, 45, 68, 69, 94)} & (CREDITED | WITHHELD)
    assert {xid_class(code) for code in (79, 95, 119, 140)} <= CREDITED


def test_operators_change_single_codes() -> None:
    changed = parse_classes(["94:reset", "500:node"])
    assert (xid_class(94, changed), xid_class(500, changed), xid_class(79, changed)) == ("reset", "node", "node")
    for wrong in ("94", "94:bad", "x:reset", ":reset"):
        with pytest.raises(ValueError, match="write it like 94:reset"):
            parse_classes([wrong])
    assert class_names([], WITHHELD) == {"reset", "node", "link"}
    assert class_names(["node"], WITHHELD) == {"node"}
    with pytest.raises(ValueError, match="no class of faults"):
        class_names(["nodes"], WITHHELD)


@pytest.mark.skipif(not CATALOG.exists(), reason="needs ../shared/data/metering/xid-catalog.csv")
def test_the_table_agrees_with_nvidias_catalogue() -> None:
    with CATALOG.open(newline="") as lines:
        actions = {int(row["xid"]): row["immediate_action"] for row in csv.DictReader(lines)}
    assert set(XIDS) <= set(actions)
    resets = {code for code, action in actions.items() if action == "RESET_GPU"}
    assert resets <= set(CLASSES["reset"]) | {48}, "what NVIDIA resets is in the class, or unknown"
    assert {code for code, action in actions.items() if action.startswith("WORKFLOW_NVLINK")} == set(CLASSES["link"])
    machines = ("RESTART_BM", "RESTART_VM", "CHECK_MECHANICALS")
    assert {code for code, action in actions.items() if action in machines} == set(CLASSES["node"])
    for code in CLASSES["application"]:
        assert actions[code] in ("RESTART_APP", "IGNORE", "WORKFLOW_XID_45", "CHECK_UVM"), code


def samples(*values: int | None) -> list[tuple[int, Decimal | None]]:
    return [(1000 * n, None if value is None else Decimal(value)) for n, value in enumerate(values, 1)]


def seen(*values: int | None, known: GaugeState | None = None) -> list[tuple[int, int]]:
    return [(event.xid, event.at_ms) for event in xid_events(samples(*values), known)[0]]


def test_a_gauge_that_sticks_is_read_by_its_edges() -> None:
    assert seen(0, 0, 79, 79, 79) == [(79, 3000)]
    assert seen(79, 79) == [], "what it shows at first is no event: when it happened is not known"
    assert seen(79, known=GaugeState(0, 0)) == [(79, 1000)]
    assert seen(79, known=GaugeState(79, 0)) == [], "the window before has told it"
    assert seen(0, 31, 79, None, 0, 79) == [(31, 2000), (79, 3000), (79, 6000)], "after a start the same one counts"
    assert seen(79, 0, 0) == [], "0 is no XID"


def test_a_count_tells_the_same_xid_twice() -> None:
    counts = [(1000, Decimal(1)), (2000, Decimal(1)), (3000, Decimal(2))]
    events, state = xid_events(samples(43, 43, 43), GaugeState(0, 0, 0), counts=counts)
    assert [(one.xid, one.at_ms) for one in events] == [(43, 1000), (43, 3000)]
    assert state == GaugeState(43, 3000, 2)


@given(st.lists(st.sampled_from([0, 13, 79, None]), max_size=12), st.integers(0, 12))
def test_windows_may_overlap_or_repeat(values: list[int | None], cut: int) -> None:
    """Read in one piece, in two that overlap, or twice: the same events, each once."""
    everything = samples(*values)
    once, last = xid_events(everything, GaugeState(0, 0))
    first, state = xid_events(everything[:cut], GaugeState(0, 0))
    second, after = xid_events(everything[max(0, cut - 3) :], state)
    assert first + second == once
    assert after == last
    assert xid_events(everything, last)[0] == []


def condition(kind: str, status: str, **more: str) -> dict[str, Any]:
    return {"type": kind, "status": status, **more}


def test_polarity_of_conditions() -> None:
    found = node_findings(
        [
            condition("GpuSmWatch", "True", message="SM fault"),
            condition("GpuMemWatch", "False"),
            condition("GpuThermalWatch", "Unknown"),
            condition("AcceleratedHardwareReady", "False", lastTransitionTime="2026-11-01T10:00:00Z"),
            condition("Ready", "False"),
            condition("SomebodysOwn", "True"),
        ]
    )
    assert [(one.code, one.fault_class.value) for one in found] == [
        ("AcceleratedHardwareReady", "node"), ("GpuSmWatch", "reset"),
    ]  # fmt: skip
    assert found[0].since is not None
    assert node_findings([condition("AcceleratedHardwareReady", "True")]) == ()


def test_cards_and_heartbeats() -> None:
    found = node_findings([], unhealthy=["GPU-1"], held_back=["GPU-2"], missing="1 of 8 not allocatable", lost=True)
    assert [(one.kind, one.device) for one in found] == [
        ("allocatable", ""), ("heartbeat", ""), ("hami", "GPU-1"), ("hami", "GPU-2"),
    ]  # fmt: skip
