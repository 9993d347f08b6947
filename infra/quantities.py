"""Kubernetes quantities as exact fractions: `20k` is 20000, `64Gi` is 64 * 2³⁰, `250m` is 1/4.

Never read one with `int()`: the API server writes them back in another form (`gpumem: 20000` comes back as
`20k`). The grammar is in :mod:`infra.quantity`. No Django here.
"""

from __future__ import annotations

from fractions import Fraction

from infra import quantity

MIB = quantity.MIB


def parse_quantity(value: str | int) -> Fraction:
    """The exact number. Raises ValueError with the text where it is no quantity, TypeError for a float.

    Kubernetes reads a suffix alone ("Mi") as zero; what a person writes so is a slip, and refused.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(f"a quantity is text or an integer, not {type(value).__name__}: {value!r}")
    text = str(value).strip()
    if not any(character.isdigit() for character in text):
        raise ValueError(f"{value!r} is no Kubernetes quantity; write it like 2, 500m, 20k or 64Gi")
    return Fraction(quantity.parse_quantity(text).nanos, quantity.NANO)


def whole(value: Fraction) -> int:
    """Rounded up to a whole number, as Kubernetes' own `Value()` does."""
    return -(-value.numerator // value.denominator)
