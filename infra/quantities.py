"""Kubernetes quantities, read exactly: `20k` is 20000, `64Gi` is 64 * 2³⁰, `250m` is 1/4.

Never read one with `int()`: the API server writes them back in another form (`gpumem: 20000` comes back as
`20k`). Format: k8s.io/apimachinery, pkg/api/resource/quantity.go. No Django here.
"""

from __future__ import annotations

import re
from fractions import Fraction

_QUANTITY = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i))?", re.ASCII)
_SUFFIX: dict[str, Fraction] = {
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", start=1)},
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}
MIB = 1024**2


def parse_quantity(value: str | int) -> Fraction:
    """The exact number. Raises ValueError with the text where it is no quantity, TypeError for a float."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(f"a quantity is text or an integer, not {type(value).__name__}: {value!r}")
    match = _QUANTITY.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"{value!r} is no Kubernetes quantity; write it like 2, 500m, 20k or 64Gi")
    sign, digits, exponent, suffix = match.groups()
    number = Fraction(digits if digits[-1] != "." else digits[:-1])
    if exponent:
        number *= Fraction(10) ** int(exponent[1:])
    elif suffix:
        number *= _SUFFIX[suffix]
    return -number if sign == "-" else number


def whole(value: Fraction) -> int:
    """Rounded up to a whole number, as Kubernetes' own `Value()` does."""
    return -(-value.numerator // value.denominator)
