"""What a Prometheus-compatible API answers with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

Sample = tuple[int, Decimal | None]
"""Milliseconds since the epoch, and the value; ``None`` is no number (NaN, Inf): not known, never 0."""


@dataclass(frozen=True)
class Series:
    """One time series: its labels (``__name__`` among them, where the query kept it) and samples in time's order."""

    labels: Mapping[str, str]
    samples: tuple[Sample, ...]

    @property
    def name(self) -> str:
        """The metric's name; empty after an aggregation."""
        return self.labels.get("__name__", "")
