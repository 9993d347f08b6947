"""The text that an exporter answers with (``/metrics``), as series of one sample each.

Format: prometheus/docs, content/docs/instrumenting/exposition_formats.md; read with ``prometheus_client.parser``.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from prometheus_client.parser import text_string_to_metric_families

from infra.prometheus.errors import PrometheusError
from infra.prometheus.types import Series


def series_of_text(text: str, at_ms: int) -> list[Series]:
    """Every sample of the text, dated ``at_ms``, with its name as ``__name__`` as an API would give it.

    Raises:
        PrometheusError: it is not in the format (a page, a truncated answer).
    """
    found = []
    # Without the comments: the parser adds _total to the samples of what is declared a counter.
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    try:
        for family in text_string_to_metric_families(bare):
            for sample in family.samples:
                value = Decimal(repr(float(sample.value)))
                number = value if value.is_finite() else None
                found.append(Series({**sample.labels, "__name__": sample.name}, ((at_ms, number),)))
    except (ValueError, KeyError, IndexError, InvalidOperation):
        raise PrometheusError(
            "What the exporter answered is not in Prometheus' text format, or it was cut off.", False, kind="unreadable"
        ) from None
    return found
