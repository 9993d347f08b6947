"""Quantities against what Kubernetes' parser answered, and their arithmetic."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.quantity import MIB, Quantity, QuantityError, parse_quantity, whole

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "quantities-kubernetes-0.37.json").read_text())["rows"]


def test_the_recording_is_there() -> None:
    assert len(RECORDED) > 300
    assert {row[1] for row in RECORDED} == {True, False}


def test_every_recorded_answer() -> None:
    wrong = []
    for text, is_quantity, is_integer in RECORDED:
        try:
            answer = (True, Quantity.parse(text).is_integer)
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
        ("500m", Fraction(1, 2)),
        ("20000", 20_000),
        (8, 8),
        ("64Gi", 64 * 2**30),
        ("1.5Gi", 3 * 2**29),
        ("2e3", 2000),
        ("1Ei", 2**60),
        ("100n", Fraction(1, 10**7)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("-3", -3),
        ("-0.1n", Fraction(-1, 10**9)),
        ("0.5Gi", 2**29),
        ("+1Gi", 2**30),
        ("10Ei", 2**63 - 1),
        ("-10Ei", -(2**63 - 1)),
        ("1e-30", Fraction(1, 10**9)),
    ],
)
def test_values(text: str | int, value: int | Fraction) -> None:
    assert parse_quantity(text) == value


def test_rounding_to_whole_units() -> None:
    assert whole(parse_quantity("1500m")) == 2
    assert whole(parse_quantity(8)) == 8
    assert whole(parse_quantity("100u") * 1000) == 1
    assert whole(parse_quantity("1500Ki") / MIB) == 2
    assert whole(Fraction(-3, 2)) == -1


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1GB", "1K", "0x10", "NaN", "\u0661", "1e", "1e+", "1,5", "--1"])
def test_what_is_no_quantity_is_told_with_what_to_write(text: str) -> None:
    with pytest.raises(QuantityError, match="no Kubernetes quantity: write a number"):
        Quantity.parse(text)


def test_an_absurd_exponent_is_refused_at_once() -> None:
    with pytest.raises(QuantityError, match="exponents above"):
        Quantity.parse("1e999999999999")
    assert Quantity.parse("1e-999999999999").nanos == 1


@given(st.integers(-(10**12), 10**12), st.sampled_from(["", "m", "k", "Ki", "Gi", "u"]))
def test_sums_and_comparisons_are_exact(number: int, suffix: str) -> None:
    one, other = Quantity.parse(f"{number}{suffix}"), Quantity.parse("3")
    assert (one + other - other).nanos == one.nanos
    assert one.compare(one + other) == -1
    assert (one + other).compare(one) == 1


def test_integers_are_told_as_kubernetes_tells_them() -> None:
    assert Quantity.parse("50k").as_integer() == 50_000
    assert not Quantity.parse("2000m").is_integer
    with pytest.raises(QuantityError, match="cannot convert"):
        Quantity.parse("1500m").as_integer()
    assert Quantity.parse("9" * 400).as_float() == float("inf")


@pytest.mark.parametrize("written", ["", "k", "Mi", "1 Gi", "1GiB", "0x10", "1e", "1_000", "NaN", "1.2.3", "\u0663"])
def test_what_a_person_wrote_by_mistake_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="no Kubernetes quantity"):
        parse_quantity(written)


@pytest.mark.parametrize("value", [1.5, True, None])
def test_only_text_and_integers_are_quantities(value: object) -> None:
    with pytest.raises(TypeError, match="text or an integer"):
        parse_quantity(value)  # type: ignore[arg-type]
