"""Decimal money: no float, no lost unit."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.kernel import money
from portal.kernel.money import THIN_SPACE, Money

amounts = st.lists(
    st.decimals(min_value=-(10**15), max_value=10**15, places=12, allow_nan=False, allow_infinity=False),
    max_size=40,
)
places = st.sampled_from([0, 2, 3])


def exact(values: list[Decimal]) -> Fraction:
    return sum((Fraction(value) for value in values), Fraction(0))


@given(amounts, places)
def test_rounded_lines_add_up_to_the_rounded_total(lines: list[Decimal], digits: int) -> None:
    rounded = money.largest_remainder(lines, digits)
    unit = Fraction(1, 10**digits)
    assert exact(rounded) == round(exact(lines) / unit) * unit
    assert all(abs(Fraction(after) - Fraction(before)) < unit for before, after in zip(lines, rounded, strict=True))
    assert all(value.as_tuple().exponent == -digits for value in rounded)


@given(amounts, places)
def test_what_is_whole_stays_as_it_is(lines: list[Decimal], digits: int) -> None:
    whole = money.largest_remainder(lines, digits)
    assert money.largest_remainder(whole, digits) == whole


def test_ties_go_to_the_earlier_line() -> None:
    third = Decimal("0.005")
    assert money.largest_remainder([third, third, third], 2) == [
        Decimal("0.01"),
        Decimal("0.01"),
        Decimal("0.00"),
    ]
    assert money.largest_remainder([Decimal("-0.005"), Decimal("0.005")], 2) == [
        Decimal("0.00"),
        Decimal("0.00"),
    ]
    assert money.largest_remainder([], 2) == []


def test_credits_are_rounded_with_the_rest() -> None:
    lines = [Decimal("10.004"), Decimal("-3.337"), Decimal("0.336")]
    assert money.largest_remainder(lines, 2) == [Decimal("10.00"), Decimal("-3.34"), Decimal("0.34")]
    assert sum(money.largest_remainder(lines, 2)) == Decimal("7.00")


def test_yen_and_dinar() -> None:
    assert Money(Decimal("1234.5"), "JPY").quantize().amount == Decimal(1234)
    assert Money(Decimal("1235.5"), "JPY").quantize().amount == Decimal(1236)
    assert Money(Decimal("1.23450001"), "KWD").quantize().amount == Decimal("1.235")
    assert [money.minor_units(code) for code in ("EUR", "JPY", "KWD")] == [2, 0, 3]
    with pytest.raises(ValueError, match="ISO 4217"):
        money.minor_units("eur")


@pytest.mark.parametrize("value", [0.1, 1.0, True, None, [1]])
def test_no_float_comes_in(value: object) -> None:
    with pytest.raises(TypeError):
        Money(value, "EUR")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Money(Decimal(1), "EUR") * value  # type: ignore[operator]
    with pytest.raises(TypeError):
        money.largest_remainder([value], 2)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        money.split_exact(Decimal(1), [value, 1], 2) if value is not True else money.decimal_of(True)  # type: ignore[list-item]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "12,5", "", "ten"])
def test_no_other_text_comes_in(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|finite"):
        money.decimal_of(text)


def test_currencies_do_not_mix() -> None:
    with pytest.raises(ValueError, match="EUR and USD"):
        Money(Decimal(1), "EUR") + Money(Decimal(1), "USD")
    with pytest.raises(ValueError, match="can't be combined"):
        assert Money(Decimal(1), "EUR") < Money(Decimal(2), "USD")
    assert Money(Decimal(1), "EUR") != Money(Decimal(1), "USD")


@given(
    st.decimals(-(10**20), 10**20, places=10),
    st.decimals(-(10**20), 10**20, places=10),
    st.integers(0, 10**9),
)
def test_arithmetic_is_exact(left: Decimal, right: Decimal, factor: int) -> None:
    a, b = Money(left, "EUR"), Money(right, "EUR")
    assert Fraction((a + b).amount) == Fraction(left) + Fraction(right)
    assert Fraction((a - b).amount) == Fraction(left) - Fraction(right)
    assert Fraction((a * factor).amount) == Fraction(left) * factor
    assert Fraction((a * right).amount) == Fraction(left) * Fraction(right)
    assert a + (-a) == Money(Decimal(0), "EUR")


@given(
    st.integers(-(10**18), 10**18),
    st.lists(st.fractions(min_value=0, max_value=1000), min_size=1, max_size=20).filter(lambda w: sum(w) > 0),
    places,
)
def test_a_split_loses_nothing(units: int, weights: list[Fraction], digits: int) -> None:
    total = Decimal(units).scaleb(-digits)
    parts = money.split_exact(total, weights, digits)
    assert exact(parts) == Fraction(total)
    unit = Fraction(1, 10**digits)
    for part, weight in zip(parts, weights, strict=True):
        assert abs(Fraction(part) - Fraction(total) * weight / sum(weights)) < unit
    mirrored = money.split_exact(-total, weights, digits)
    assert [-part for part in mirrored] == parts


def test_a_split_that_can_not_be_is_refused() -> None:
    assert money.split_exact(Decimal("1.00"), [1, 1, 1], 2) == [
        Decimal("0.34"),
        Decimal("0.33"),
        Decimal("0.33"),
    ]
    with pytest.raises(ValueError, match="all weights are 0"):
        money.split_exact(Decimal(1), [0, 0], 2)
    with pytest.raises(ValueError, match="negative"):
        money.split_exact(Decimal(1), [2, -1], 2)
    with pytest.raises(ValueError, match="more than 2 decimals"):
        money.split_exact(Decimal("0.001"), [1], 2)


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        ("1234567.891", "EUR", "1 234 567.891 EUR"),
        ("1234567.8", "EUR", "1 234 567.80 EUR"),
        ("-1234", "JPY", "-1 234 JPY"),
        ("0.0000000001", "KWD", "0.0000000001 KWD"),
        ("5", "KWD", "5.000 KWD"),
        ("-0.00", "EUR", "0.00 EUR"),
        ("1E+3", "USD", "1 000.00 USD"),
        (
            "123456789012345678901234567890.123456789012",
            "USD",
            "123 456 789 012 345 678 901 234 567 890.123456789012 USD",
        ),
    ],
)
def test_display_is_exact(amount: str, currency: str, text: str) -> None:
    assert str(Money(Decimal(amount), currency)) == text.replace(" ", THIN_SPACE)
