"""What can go wrong between the portal and a Prometheus-compatible API."""

from __future__ import annotations

from typing import Literal

Kind = Literal[
    "bad_data",  # the query is wrong
    "execution",  # the query failed there
    "timeout",
    "unavailable",
    "overloaded",  # it asked to wait
    "too_large",  # ask for a smaller window
    "unauthorized",
    "not_found",  # nothing at this address speaks the API
    "unreadable",  # an answer of another shape
    "unreachable",
]


class PrometheusError(Exception):
    """No answer that can be used. ``sentence`` is for people.

    Attributes:
        retry: later may do, with nobody changing anything.
        retry_after: seconds that the server asked for; ``None``: it did not say.
        kind: what went wrong, as a word for programs.
    """

    def __init__(
        self, sentence: str, retry: bool, *, kind: Kind = "execution", retry_after: float | None = None
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.retry = retry
        self.kind: Kind = kind
        self.retry_after = retry_after

    @property
    def too_large(self) -> bool:
        """Whether a smaller window may do."""
        return self.kind == "too_large"
