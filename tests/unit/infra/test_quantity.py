"""Quantities against what Kubernetes' parser answered, and their arithmetic."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.quantity import (
    QuantityError,
    parse_quantity,
    quantity_decimal,
    quantity_int,
    quantity_mib,
    quantity_mib_up,
    quantity_millis,
)

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "quantities-kubernetes-0.37.json").read_text())["rows"]


def test_the_recording_is_there() -> None:
    assert len(RECORDED) > 300
    assert {row[1] for row in RECORDED} == {True, False}


def test_every_recorded_answer() -> None:
    wrong = []
    for text, is_quantity, is_integer in RECORDED:
        try:
            answer = (True, parse_quantity(text).is_integer)
        except QuantityError:
            answer = (False, False)
        if answer != (is_quantity, is_integer):
            wrong.append((text, (is_quantity, is_integer), answer))
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20k", 20_000),
        ("80Gi", 80 * 2**30),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("500m", Decimal("0.5")),
        ("-0.1n", Decimal("-1e-9")),
        ("0.5Gi", 2**29),
        ("+1Gi", 2**30),
        ("10Ei", 2**63 - 1),
        ("-10Ei", -(2**63 - 1)),
        ("1e-30", Decimal("1e-9")),
    ],
)
def test_values(text: str, value: int | Decimal) -> None:
    assert quantity_decimal(text) == value


def test_rounding_to_whole_units() -> None:
    assert quantity_int("1500m") == 2
    assert quantity_int(8) == 8
    assert quantity_millis("1.5") == 1500
    assert quantity_millis("100u") == 1
    assert quantity_mib("81559Mi") == 81_559
    assert quantity_mib("1500Ki") == 1
    assert quantity_mib_up("1500Ki") == 2


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1GB", "1K", "0x10", "NaN", "\u0661", "1e", "1e+", "1,5", "--1"])
def test_what_is_no_quantity_is_told_with_what_to_write(text: str) -> None:
    with pytest.raises(QuantityError, match="no Kubernetes quantity: write a number"):
        parse_quantity(text)


def test_an_absurd_exponent_is_refused_at_once() -> None:
    with pytest.raises(QuantityError, match="exponents above"):
        parse_quantity("1e999999999999")
    assert parse_quantity("1e-999999999999").nanos == 1


@given(st.integers(-(10**12), 10**12), st.sampled_from(["", "m", "k", "Ki", "Gi", "u"]))
def test_sums_and_comparisons_are_exact(number: int, suffix: str) -> None:
    one, other = parse_quantity(f"{number}{suffix}"), parse_quantity("3")
    assert (one + other - other).nanos == one.nanos
    assert one.compare(one + other) == -1
    assert (one + other).compare(one) == 1


def test_integers_are_told_as_kubernetes_tells_them() -> None:
    assert parse_quantity("50k").as_integer() == 50_000
    assert not parse_quantity("2000m").is_integer
    with pytest.raises(QuantityError, match="cannot convert"):
        parse_quantity("1500m").as_integer()
    assert parse_quantity("9" * 400).as_float() == float("inf")
