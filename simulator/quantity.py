"""Kubernetes quantities: parsing, and the canonical text a server stores ('20000' becomes '20k')."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_FORM = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+|)$")


@lru_cache(maxsize=8192)
def parse(text: str | float) -> Fraction:
    """The value of a quantity; raises ValueError naming the text."""
    found = _FORM.match(str(text))
    if not found:
        raise ValueError(
            f"quantities must match the regular expression "
            f"'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$' (got {text!r})"
        )
    number, suffix = Fraction(found.group(1)), found.group(2)
    if suffix in _BINARY:
        return Fraction(number * 1024 ** _BINARY[suffix])
    if suffix in _DECIMAL:
        return Fraction(number * Fraction(10) ** _DECIMAL[suffix])
    return Fraction(number * Fraction(10) ** int(suffix[1:]))


@lru_cache(maxsize=8192)
def canonical(text: str | float) -> str:
    """The text a server stores: the largest suffix of the same family that leaves a whole number."""
    found = _FORM.match(str(text))
    if not found:
        parse(text)
    assert found
    value = parse(text)
    return _binary(value) if found.group(2) in _BINARY else decimal(value)


def decimal(value: Fraction | int) -> str:
    """A value in the decimal family, rounded up to a billionth."""
    value = Fraction(value)
    if value == 0:
        return "0"
    nanos = value * 10**9
    whole = -((-nanos.numerator) // nanos.denominator)
    power = -9
    while power < 18 and whole % 1000 == 0:
        whole //= 1000
        power += 3
    return f"{whole}{_SUFFIX[power]}"


def like(value: Fraction | int, text: str) -> str:
    """A value written in the family of the given text: binary beside '64Gi', decimal beside '4'."""
    found = _FORM.match(text)
    binary = found is not None and found.group(2) in _BINARY
    return _binary(Fraction(value)) if binary else decimal(value)


def _binary(value: Fraction) -> str:
    if value == 0:
        return "0"
    if value.denominator != 1 or abs(value) < 1024:
        return decimal(value)
    whole, steps = value.numerator, 0
    while steps < 6 and whole % 1024 == 0:
        whole //= 1024
        steps += 1
    suffix = next((name for name, step in _BINARY.items() if step == steps), "")
    return f"{whole}{suffix}"
