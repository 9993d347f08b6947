"""A server that speaks as much of Prometheus' API as reading raw samples takes, over series that a test gives."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from portal.kernel.clock import epoch_ms
from tests.support.answering import Answer, AnsweringServer, Asked, answering

_SELECTOR = re.compile(r'\{(?P<inside>.*?)__name__=~"(?P<names>[^"]+)"\}\[(?P<length>\d+)ms\]')


class MetricsApi:
    """``give`` series; ``url`` is for an endpoint. ``warnings`` and ``failure`` (an answer) can be set."""

    def __init__(self, server: AnsweringServer) -> None:
        self.server = server
        self.url = server.url
        self.series: list[tuple[dict[str, str], list[tuple[int, float | str]]]] = []
        self.warnings: list[str] = []
        self.failure: Answer | None = None
        self.selectors: list[str] = []
        server.say("/api/v1/query", self._answer)
        server.say("/api/v1/status/buildinfo", body={"status": "success", "data": {"version": "3.0.0"}})

    def give(
        self, metric: str, start: datetime, values: Iterable[float | str | None], *, step: int = 30, **labels: str
    ) -> None:
        """A series with a value each ``step`` seconds; ``None``: no sample then."""
        samples = [
            (epoch_ms(start) + 1000 * step * number, value) for number, value in enumerate(values) if value is not None
        ]
        self.series.append(({"__name__": metric, **labels}, samples))

    def _answer(self, asked: Asked) -> Answer:
        if self.failure is not None:
            return self.failure
        query = asked.query["query"]
        found = _SELECTOR.fullmatch(query)
        if found is None:
            return self._success({"resultType": "vector", "result": []})
        self.selectors.append(found["inside"])
        end = round(float(asked.query["time"]) * 1000)
        start = end - int(found["length"])
        names = found["names"].split("|")
        rows = []
        for labels, samples in self.series:
            inside = [[moment / 1000, str(value)] for moment, value in samples if start < moment <= end]
            if labels["__name__"] in names and inside:
                rows.append({"metric": labels, "values": inside})
        return self._success({"resultType": "matrix", "result": rows})

    def _success(self, data: Mapping[str, object]) -> Answer:
        body = {"status": "success", "data": data, **({"warnings": self.warnings} if self.warnings else {})}
        return Answer(body=json.dumps(body).encode(), headers={"Content-Type": "application/json"})


@contextlib.contextmanager
def metrics_api() -> Iterator[MetricsApi]:
    """A running one."""
    with answering() as server:
        yield MetricsApi(server)
