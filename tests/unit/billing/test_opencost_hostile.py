"""Answers in OpenCost's place that would stop the reading of a cluster, or cost time without end."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from billing.opencost.answers import read_allocation
from billing.opencost.bodies import Refused
from portal.kernel.clock import Interval
from portal.kernel.text import storable

START = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = Interval(START, START + timedelta(hours=1))
EDGES = {"start": "2026-11-01T00:00:00Z", "end": "2026-11-01T01:00:00Z"}
FIGURES = (
    "gpuHours", "gpuCost", "cpuCoreHours", "cpuCost", "ramByteHours", "ramCost", "pvByteHours", "pvCost", "networkCost",
    "loadBalancerCost",
)  # fmt: skip


def body(namespace: str = "vision", pod: str = "train-0", **more: Any) -> bytes:
    row = {
        "window": EDGES, **EDGES, "minutes": 60, **dict.fromkeys(FIGURES, 1),
        "properties": {"namespace": namespace, "pod": pod}, **more,
    }  # fmt: skip
    return json.dumps({"code": 200, "data": [{f"{namespace}/{pod}": row}]}).encode()


def test_the_plain_answer_is_read_and_a_name_can_be_stored() -> None:
    assert read_allocation(200, body(), HOUR).rows[0].namespace == "vision"
    (row,) = read_allocation(200, body("vis\x00ion", "a\ud800"), HOUR).rows
    assert (row.namespace, row.pod) == ("vis\ufffdion", "a\ufffd")


@pytest.mark.parametrize("number", ["1e20", "1e999999", "1" * 5000, "-1e999999"])
@pytest.mark.parametrize("name", ["gpuCost", "gpuCostAdjustment", "ramByteHours"])
def test_figures_that_nothing_costs(number: str, name: str) -> None:
    if name.endswith("Adjustment") or not number.startswith("-"):
        text = body(**{name: "HERE"}).replace(b'"HERE"', number.encode())
        with pytest.raises(Refused) as caught:
            read_allocation(200, text, HOUR)
        assert len(caught.value.sentence) < 500


def test_digits_that_say_nothing_are_left_out() -> None:
    text = body(gpuCost="HERE").replace(b'"HERE"', b"1e-999999")
    assert read_allocation(200, text, HOUR).rows[0].gpu_cost == 0


@pytest.mark.parametrize("names", [("a" * 64, "p"), ("a", "p" * 254)])
def test_names_longer_than_there_are(names: tuple[str, str]) -> None:
    with pytest.raises(Refused, match="longer name"):
        read_allocation(200, body(*names), HOUR)


@pytest.mark.parametrize(
    "said", [b"<" * 4_000_000, b"{" * 1_000_000, b"\x00 {", b'{"code":500,"message":"\\u0000"}', b"[" * 500_000]
)
@pytest.mark.parametrize("status", [200, 500])
def test_what_a_failure_says_is_short_and_can_be_stored(said: bytes, status: int) -> None:
    with pytest.raises(Refused) as caught:
        read_allocation(status, said, HOUR)
    assert storable(caught.value.sentence)
    assert len(caught.value.sentence) < 500
