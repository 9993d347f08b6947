"""Money: Decimal amounts with a currency, and the two ways of rounding that lose nothing.

A float is refused everywhere (TypeError): it has already lost what it cannot give back. Amounts stay
unrounded until a bill is drawn up; then they are rounded once, together, by largest remainder, so that the
lines add up to the total.

This module imports no Django.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

# ISO 4217: minor units other than 2, and the codes in use. Funds and precious metals are left out.
_MINOR_UNITS = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF",
    3: "BHD IQD JOD KWD LYD OMR TND",
    2: "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF "
    "CHF CNY COP CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD "
    "HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK "
    "MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD "
    "RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS "
    "UAH USD UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG",
}
MINOR_UNITS: dict[str, int] = {code: units for units, codes in _MINOR_UNITS.items() for code in codes.split()}

THIN_SPACE = "\u202f"
"""Between groups of three digits: the narrow space at which no line breaks."""


def minor_units(currency: str) -> int:
    """Decimal places of a currency by ISO 4217: EUR 2, JPY 0, KWD 3. An unknown code raises ValueError."""
    try:
        return MINOR_UNITS[currency]
    except KeyError:
        raise ValueError(f"{currency!r} is no ISO 4217 currency code; write it like EUR, USD or JPY") from None


def decimal_of(value: Decimal | int | str) -> Decimal:
    """An exact Decimal. A float (or bool) raises TypeError, a text that is no finite number ValueError."""
    if isinstance(value, float | bool) or not isinstance(value, Decimal | int | str):
        raise TypeError(f"money takes Decimal, int or str, not {type(value).__name__}: {value!r}")
    try:
        amount = Decimal(value)
    except ArithmeticError:
        raise ValueError(f"{value!r} is no decimal number") from None
    if not amount.is_finite():
        raise ValueError(f"{value!r} is no finite amount")
    return amount


def _scaled(units: int, places: int) -> Decimal:
    """`units` of 10^-places as a Decimal with exactly that many places; exact at any size."""
    return (
        Decimal(units).scaleb(-places)
        if abs(units) < 10**27
        else Decimal((int(units < 0), tuple(int(digit) for digit in str(abs(units))), -places))
    )


def decimal_from(value: Fraction, places: int) -> Decimal:
    """A Fraction as a Decimal of that many places, half to even; exact where it fits."""
    return _scaled(round(value * 10**places), places)


def quantize(amount: Decimal | int | str, places: int) -> Decimal:
    """`amount` at `places` decimals, half to even. Negative zero becomes zero."""
    return decimal_from(Fraction(decimal_of(amount)), places)


def exact_sum(amounts: Sequence[Decimal]) -> Decimal:
    """Σ without loss: not rounded to the 28 digits of Python's default decimal context."""
    values = [decimal_of(amount) for amount in amounts]
    places = max((max(0, -int(value.as_tuple().exponent)) for value in values), default=0)
    return decimal_from(sum((Fraction(value) for value in values), Fraction(0)), places)


def largest_remainder(amounts: Sequence[Decimal], places: int) -> list[Decimal]:
    """Each amount rounded to `places`, so that Σ of them is exactly Σ amounts rounded (half to even).

    Every amount goes down (towards minus infinity), then the units that are missing go to the largest
    remainders; among equal ones to the earlier. So no amount moves by a whole unit, a whole amount does not
    move at all, and credits (negative amounts) need no rule of their own.
    """
    scaled = [Fraction(decimal_of(amount)) * 10**places for amount in amounts]
    floors = [value.numerator // value.denominator for value in scaled]
    missing = round(sum(scaled, Fraction(0))) - sum(floors)
    by_remainder = sorted(range(len(scaled)), key=lambda index: (floors[index] - scaled[index], index))
    for index in by_remainder[:missing]:
        floors[index] += 1
    return [_scaled(units, places) for units in floors]


def split_units(total: int, weights: Sequence[int | Fraction]) -> list[int]:
    """An integer shared out in proportion to weights ≥ 0, by largest remainder: Σ parts = total.

    Equal remainders go to the earlier part. A negative total is the mirror image of the positive one. Raises
    ValueError for a negative weight, and where all weights are 0 but the total is not.
    """
    if any(weight < 0 for weight in weights):
        raise ValueError("a weight can't be negative")
    whole = sum(weights, Fraction(0))
    if whole == 0:
        if total:
            raise ValueError(f"{total} can't be shared out: all weights are 0")
        return [0] * len(weights)
    if len(weights) == 1:
        return [total]
    sign, size = (-1, -total) if total < 0 else (1, total)
    exact = [size * Fraction(weight) / whole for weight in weights]
    parts = [value.numerator // value.denominator for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: (parts[index] - exact[index], index))
    for index in by_remainder[: size - sum(parts)]:
        parts[index] += 1
    return [sign * part for part in parts]


def split_exact(total: Decimal, weights: Sequence[int | Decimal | Fraction], places: int) -> list[Decimal]:
    """`total` shared out in proportion to weights, each part at `places` decimals: Σ parts == total.

    `total` must be whole at `places` decimals (ValueError otherwise). See `split_units` for ties and errors.
    """
    for weight in weights:
        if not isinstance(weight, int | Decimal | Fraction):
            raise TypeError(f"a weight is an int, Decimal or Fraction, not {type(weight).__name__}")
    scaled = Fraction(decimal_of(total)) * 10**places
    if scaled.denominator != 1:
        raise ValueError(f"{total} has more than {places} decimals; round it before it is shared out")
    parts = split_units(scaled.numerator, [Fraction(weight) for weight in weights])
    return [_scaled(units, places) for units in parts]


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in one currency. Sums and comparisons across currencies raise ValueError: there is no
    implicit rate."""

    amount: Decimal
    currency: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "amount", decimal_of(self.amount))
        minor_units(self.currency)

    def _same(self, other: Money) -> Money:
        if not isinstance(other, Money):
            raise TypeError(f"money can't be combined with {type(other).__name__}")
        if other.currency != self.currency:
            raise ValueError(f"{self.currency} and {other.currency} can't be combined; convert one of them first")
        return other

    def __add__(self, other: Money) -> Money:
        return Money(exact_sum([self.amount, self._same(other).amount]), self.currency)

    def __sub__(self, other: Money) -> Money:
        return self + (-self._same(other))

    def __neg__(self) -> Money:
        return Money(self.amount.copy_negate() if self.amount else self.amount, self.currency)

    def __mul__(self, factor: Decimal | int) -> Money:
        left, right = self.amount, decimal_of(factor)
        places = max(0, -int(left.as_tuple().exponent)) + max(0, -int(right.as_tuple().exponent))
        return Money(decimal_from(Fraction(left) * Fraction(right), places), self.currency)

    __rmul__ = __mul__

    def __lt__(self, other: Money) -> bool:
        return self.amount < self._same(other).amount

    def __le__(self, other: Money) -> bool:
        return self.amount <= self._same(other).amount

    def quantize(self) -> Money:
        """Rounded to the currency's minor units, half to even."""
        return Money(quantize(self.amount, minor_units(self.currency)), self.currency)

    def __str__(self) -> str:
        return format_money(self)


def format_decimal(amount: Decimal | int | str, places: int) -> str:
    """The exact number, with at least `places` decimals and thin spaces between thousands.

    Nothing is rounded away: what has more decimals is shown with all of them.
    """
    number = decimal_of(amount)
    sign = "-" if number < 0 else ""
    digits, _, fraction = f"{number.copy_abs():f}".partition(".")
    fraction = fraction.rstrip("0").ljust(places, "0")
    grouped = f"{int(digits):,}".replace(",", THIN_SPACE)
    return f"{sign}{grouped}.{fraction}" if fraction else f"{sign}{grouped}"


def format_money(money: Money) -> str:
    """`1 234 567.89 EUR` with thin spaces; exact (see `format_decimal`)."""
    return f"{format_decimal(money.amount, minor_units(money.currency))}{THIN_SPACE}{money.currency}"
