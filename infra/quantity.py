"""Kubernetes' resource quantities ("20k", "1.5Gi", "500m", "1e3"), exactly and without floats.

The grammar and the rounding are those of k8s.io/apimachinery `pkg/api/resource`: a value finer than a nano is
rounded away from zero, a value with a binary suffix saturates at the largest int64. `Quantity` is what a selector's
`quantity()` works with; for everything else `parse_quantity` gives the number. No Django here.

Never read one with `int()`: the API server writes them back in another form (`gpumem: 20000` comes back as `20k`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

__all__ = ["MIB", "Quantity", "QuantityError", "parse_quantity", "whole"]

NANO = 10**9
INT64_MAX = 2**63 - 1
MIB = 1 << 20

# [0-9], not \d: other scripts' digits are no quantity.
# A suffix begins with a letter, or a long row of digits could be cut in two anywhere, and is tried at each place.
_FORM = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?((?:[eEinumkKMGTP]+[-+]?[0-9]*)?)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
_MAX_EXPONENT = 10_000
# Kubernetes keeps up to 18 digits in an int64 with a scale and everything else in a big decimal, which never
# counts as an integer (`isInteger`), whatever its value.
_INT64_DIGITS = 18


class QuantityError(ValueError):
    """Not a quantity. The message says what was given and what is expected."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A parsed quantity: the exact value in nanos, and whether Kubernetes would give it as an int64."""

    nanos: int
    is_integer: bool

    @staticmethod
    def parse(text: str) -> Quantity:
        """Parse `text` as Kubernetes does.

        Raises QuantityError. As in Kubernetes a missing number is zero, so "Mi" is a quantity; spaces are not allowed.
        """
        return _parse(text)

    def __add__(self, other: Quantity) -> Quantity:
        return _combine(self, other, 1)

    def __sub__(self, other: Quantity) -> Quantity:
        return _combine(self, other, -1)

    def compare(self, other: Quantity) -> int:
        """-1, 0 or 1."""
        return (self.nanos > other.nanos) - (self.nanos < other.nanos)

    def as_integer(self) -> int:
        """The value as an int64; raises QuantityError where Kubernetes' asInteger does."""
        if not self.is_integer:
            raise QuantityError("cannot convert value to integer")
        return self.nanos // NANO

    def as_float(self) -> float:
        """The nearest float; infinite where it is out of range."""
        try:
            return self.nanos / NANO
        except OverflowError:
            return float("inf") if self.nanos > 0 else float("-inf")

    @staticmethod
    def of_int(value: int) -> Quantity:
        """An integer as a quantity."""
        return Quantity(value * NANO, abs(value) <= INT64_MAX)


def _combine(left: Quantity, right: Quantity, sign: int) -> Quantity:
    nanos = left.nanos + sign * right.nanos
    integers = (left.is_integer or not left.nanos) and (right.is_integer or not right.nanos)
    return Quantity(nanos, integers and abs(nanos) <= INT64_MAX * NANO)


@lru_cache(maxsize=8192)
def _parse(text: str) -> Quantity:
    match = _FORM.fullmatch(text)
    if not text or match is None:
        raise _error(text)
    sign, whole, fraction, suffix = match.group(1), match.group(2), match.group(3) or "", match.group(4)
    whole = whole.lstrip("0") or "0"
    mantissa = int(whole + fraction) if len(whole) + len(fraction) <= _MAX_EXPONENT else None
    if mantissa is None:
        raise QuantityError(f"quantity of {len(text)} characters is too long")
    negative = sign == "-"
    if suffix in _BINARY:
        shift = _BINARY[suffix]
        scaled = mantissa * NANO << shift
        nanos = -(-scaled // 10 ** len(fraction))
        fast = not fraction and len(whole) + shift * 3 // 10 + 1 <= 15
        is_integer = fast and nanos <= INT64_MAX * NANO
        nanos = min(nanos, INT64_MAX * NANO)
    else:
        exponent = _decimal_exponent(text, suffix)
        power = exponent - len(fraction) + 9
        nanos = mantissa * 10**power if power >= 0 else _shift_down(mantissa, -power)
        fast = exponent - len(fraction) >= -9 and len(whole) + len(fraction) <= _INT64_DIGITS
        is_integer = exponent >= len(fraction) and ((fast and nanos <= INT64_MAX * NANO) or not mantissa)
    if not fast and not match.group(2) and not fraction:
        raise _error(text)  # Kubernetes: "unable to parse numeric part", found by comparison with it
    return Quantity(-nanos if negative else nanos, is_integer)


def _shift_down(mantissa: int, places: int) -> int:
    """mantissa ÷ 10^places, rounded away from zero; without building a huge power for a tiny value."""
    if places > len(str(mantissa)):
        return 1 if mantissa else 0
    power: int = 10**places
    return -(-mantissa // power)


def _decimal_exponent(text: str, suffix: str) -> int:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        raise _error(text)
    digits = match.group(1)
    exponent = max(int(digits[:12]), -_MAX_EXPONENT)  # anything smaller is rounded to a nano as well
    if exponent > _MAX_EXPONENT:
        raise QuantityError(f"quantity {text!r}: exponents above {_MAX_EXPONENT} are not supported")
    return exponent


def _error(text: str) -> QuantityError:
    shown = text if len(text) <= 64 else text[:61] + "..."
    return QuantityError(
        f"{shown!r} is no Kubernetes quantity: write a number and one of n u m k M G T P E Ki Mi Gi Ti Pi Ei "
        "or an exponent, without spaces, e.g. 80Gi, 20k, 500m, 1e3"
    )


def parse_quantity(value: str | int) -> Fraction:
    """The exact number: `20k` is 20000, `64Gi` is 64 * 2³⁰, `250m` is 1/4. Spaces around it are ignored.

    Raises ValueError with the text where it is no quantity, TypeError for a float. Kubernetes reads a suffix alone
    ("Mi") as zero; what a person writes so is a slip, and refused.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(f"a quantity is text or an integer, not {type(value).__name__}: {value!r}")
    text = str(value).strip()
    if not any(character.isdigit() for character in text):
        raise QuantityError(f"{value!r} is no Kubernetes quantity; write it like 2, 500m, 20k or 64Gi")
    return Fraction(_parse(text).nanos, NANO)


def whole(value: Fraction) -> int:
    """Rounded up to a whole number, as Kubernetes' own `Value()` does."""
    return -(-value.numerator // value.denominator)
