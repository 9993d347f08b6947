"""A quantity is read in the time that its length takes: manifests and pods may hold any text in its place."""

from __future__ import annotations

import pytest

from infra.quantity import QuantityError, parse_quantity


@pytest.mark.timeout(60)  # it took minutes, with every other thread of the process held up
@pytest.mark.parametrize(
    "text", ["1" * 250_000 + "x", "1." + "1" * 250_000 + "x", "e" + "1" * 250_000 + "x", "1" + "e" * 250_000]
)
def test_a_long_text_is_refused_at_once(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1-5", "1+5", "1.5-3", "--1", "1e", "1e-", "1ee5", "1Kii", "1 Gi"])
def test_what_is_none_stays_none(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text)
