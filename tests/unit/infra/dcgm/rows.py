"""Files of the exporter, and rows by hand."""

from __future__ import annotations

import csv
import json
from decimal import Decimal
from pathlib import Path

from infra.outbound.client import Reply
from infra.prometheus import Series
from infra.prometheus.decoding import decoded, series_of
from infra.prometheus.exposition import series_of_text
from portal.kernel.clock import epoch_ms, parse_rfc3339

DATA = Path(__file__).resolve().parents[3] / "data" / "metering"


def text_file(name: str, at_ms: int = 0) -> list[Series]:
    """The series of an exporter's text."""
    return series_of_text((DATA / name).read_text(), at_ms)


def answer_file(name: str) -> list[Series]:
    """The series of an API's answer."""
    reply = Reply(200, {"content-type": "application/json"}, (DATA / name).read_bytes())
    return series_of(decoded(reply, "Prometheus"), "Prometheus")


def csv_file(name: str) -> list[Series]:
    """The series of a table of samples."""
    found: dict[tuple[str, str], list[tuple[int, Decimal | None]]] = {}
    with (DATA / name).open() as lines:
        for row in csv.DictReader(lines):
            samples = found.setdefault((row["metric"], row["UUID"]), [])
            samples.append((epoch_ms(parse_rfc3339(row["ts"])), Decimal(row["value"])))
    return [Series({"__name__": name, "UUID": uuid}, tuple(samples)) for (name, uuid), samples in found.items()]


def row(metric: str, *values: float | None, step: int = 30_000, start: int = 0, **labels: str) -> Series:
    """A series with a sample each ``step`` ms."""
    samples = tuple(
        (start + step * number, None if value is None else Decimal(str(value))) for number, value in enumerate(values)
    )
    return Series({"__name__": metric, "UUID": "GPU-1", "Hostname": "node-a", **labels}, samples)


def answer(result: list[dict[str, object]], kind: str = "matrix") -> bytes:
    """An API's answer."""
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()
