"""Asking a Prometheus-compatible API. Only reads; every question is bounded in time and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from infra.outbound.client import LONGEST_ADDRESS, EndpointClient, EndpointError, Reply
from infra.prometheus.decoding import decoded, series_of, warnings_of
from infra.prometheus.errors import Kind, PrometheusError
from infra.prometheus.product import Product, product_of
from infra.prometheus.selector import matchers_text, selector
from infra.prometheus.types import Series
from portal.kernel.clock import epoch_ms

QUERY_SECONDS = 30.0


class PrometheusClient:
    """Questions to one API.

    Args:
        client: of the endpoint (:func:`infra.outbound.open_endpoint`).
        matchers: labels that pick this cluster out of a store of many. :meth:`selector` writes them, and a query
            without them is refused: it would read other clusters.
    """

    def __init__(self, client: EndpointClient, matchers: Mapping[str, str] | None = None) -> None:
        self._client = client
        self._matchers = dict(matchers or {})
        self._required = matchers_text(self._matchers)
        self.label = client.label
        self.warnings: tuple[str, ...] = ()
        """What the server warned of in its last answer. See :attr:`partial`."""

    @property
    def partial(self) -> bool:
        """Whether the last answer may lack data: a store of Thanos or Mimir did not answer. Hints on the query's own
        style (``PromQL warning: …``, ``PromQL info: …``) do not count."""
        return any(not text.startswith("PromQL ") for text in self.warnings)

    def selector(
        self,
        metric: str | Iterable[str],
        *,
        equal: Mapping[str, str] | None = None,
        regex: Mapping[str, str] | None = None,
    ) -> str:
        """A selector of one metric, or of several, with the endpoint's matchers. See :func:`selector`."""
        return selector(metric, self._matchers, equal=equal, regex=regex)

    def instant(self, query: str, at: datetime, *, timeout: float = QUERY_SECONDS) -> list[Series]:
        """The query's value at an instant. A query that ends in ``[5m]`` gives the raw samples (see :meth:`raw`).

        Raises:
            PrometheusError: no usable answer.
        """
        return self._query("/api/v1/query", [("query", self._checked(query)), ("time", _instant(at))], timeout)

    def range(
        self, query: str, start: datetime, end: datetime, step: timedelta, *, timeout: float = QUERY_SECONDS
    ) -> list[Series]:
        """The query's value at start, start + step, … up to *and with* ``end``, as the API does it.

        Each value may be as old as the server's look-back (5 minutes by default). For what really was sampled, and
        when, use :meth:`raw`.

        Raises:
            PrometheusError: no usable answer; ``too_large``: ask for a smaller window.
        """
        params = [
            ("query", self._checked(query)),
            ("start", _instant(start)),
            ("end", _instant(end)),
            ("step", _seconds(step)),
        ]
        return self._query("/api/v1/query_range", params, timeout)

    def raw(self, which: str, start: datetime, end: datetime, *, timeout: float = QUERY_SECONDS) -> list[Series]:
        """The samples of a selector as they were scraped, with their own times, in ``[start, end)``.

        A series that ended (Prometheus' stale marker) simply has no samples after that.

        Raises:
            PrometheusError: no usable answer; ``too_large``: ask for a smaller window.
        """
        first, last = epoch_ms(start), epoch_ms(end)
        if last <= first:
            return []
        # A range selector is open on the left (closed in Prometheus 2) and closed on the right.
        params = [("query", f"{self._checked(which)}[{last - first}ms]"), ("time", _seconds_of_ms(last - 1))]
        found = []
        for series in self._query("/api/v1/query", params, timeout):
            inside = tuple(sample for sample in series.samples if first <= sample[0] < last)
            if inside:
                found.append(Series(series.labels, inside))
        return found

    def series(
        self, selectors: Sequence[str], start: datetime, end: datetime, *, timeout: float = QUERY_SECONDS
    ) -> list[Mapping[str, str]]:
        """The label sets of all series of the selectors that had a sample in the time, roughly.

        Raises:
            PrometheusError: no usable answer.
        """
        params = [("match[]", self._checked(which)) for which in selectors]
        params += [("start", _instant(start)), ("end", _instant(end))]
        answer = self._ask("/api/v1/series", params, timeout)
        data = answer.get("data")
        if not isinstance(data, list) or not all(isinstance(row, dict) for row in data):
            raise PrometheusError(
                f"{self.label} answered with something that is no list of series.", False, kind="unreadable"
            )
        return [{str(key): str(value) for key, value in row.items()} for row in data]

    def product(self) -> Product:
        """What answers, and its version.

        Raises:
            PrometheusError: no usable answer to a query: this is no Prometheus-compatible API.
        """
        self._ask("/api/v1/query", [("query", "vector(1)")], 10)
        try:
            reply = self._reply("/api/v1/status/buildinfo", [], 10)
            build = decoded(reply, self.label).get("data")
        except PrometheusError:  # old products have no such page
            return Product("prometheus", "")
        try:
            stores = self._reply("/api/v1/stores", [], 10).status == 200
        except PrometheusError:
            stores = False
        return product_of(build if isinstance(build, dict) else {}, reply.headers, has_stores=stores)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _checked(self, query: str) -> str:
        if self._required and self._required not in query:
            raise ValueError(f"The query lacks the endpoint's matchers {self._required}: build it with selector().")
        return query

    def _query(self, path: str, params: Sequence[tuple[str, str]], timeout: float) -> list[Series]:
        params = [*params, ("timeout", f"{max(timeout - 2, 1):g}s")]
        return series_of(self._ask(path, params, timeout), self.label)

    def _ask(self, path: str, params: Sequence[tuple[str, str]], timeout: float) -> dict[str, Any]:
        self.warnings = ()
        answer = decoded(self._reply(path, params, timeout), self.label)
        self.warnings = warnings_of(answer)
        return answer

    def _reply(self, path: str, params: Sequence[tuple[str, str]], timeout: float) -> Reply:
        long = self._client.can_post and len(path) + len(urlencode(params)) > LONGEST_ADDRESS
        ask = self._client.post_form if long else self._client.get
        try:
            return ask(path, params, timeout=timeout)
        except EndpointError as error:
            if error.cause == "too_large":
                raise PrometheusError(error.sentence, False, kind="too_large") from None
            kind: Kind = "unreachable"
            if error.cause in ("timeout", "unauthorized"):
                kind = "timeout" if error.cause == "timeout" else "unauthorized"
            raise PrometheusError(error.sentence, error.retry, kind=kind) from None


def _instant(moment: datetime) -> str:
    return _seconds_of_ms(epoch_ms(moment))


def _seconds_of_ms(ms: int) -> str:
    return f"{ms // 1000}.{ms % 1000:03d}"


def _seconds(length: timedelta) -> str:
    return _seconds_of_ms(round(length / timedelta(milliseconds=1)))
