"""The JSON of the API → :class:`~infra.prometheus.types.Series`, or a :class:`PrometheusError`.

Format: prometheus/prometheus, docs/querying/api.md. Numbers are read as Decimal: a sample's time is a JSON number
with milliseconds, its value a text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from infra.kube.decoding import loads
from infra.kube.errors import clean
from infra.outbound.client import Reply
from infra.prometheus.errors import PrometheusError
from infra.prometheus.types import Sample, Series

# Prometheus: too many samples, maximum resolution of 11,000 points; Mimir: err-mimir-max-…; VictoriaMetrics:
# -search.max…; Thanos: exceeded … limit.
_TOO_LARGE = re.compile(
    r"too many (samples|points|chunks|series)|maximum resolution|err-mimir-max-|-search\.max|"
    r"exceeded? [a-z ]*limit|exceeds the limit|response (is )?too large|cannot select more than",
    re.IGNORECASE,
)


LATEST = 253_402_300_799
"""Seconds since the epoch of the last instant that a date can have."""
LONGEST_WAIT = 3600.0
"""Seconds that a server may ask to be left alone, at most."""
LARGEST = sys.float_info.max_10_exp


def decoded(reply: Reply, label: str) -> dict[str, Any]:
    """The whole answer of a success: ``{"status": "success", "data": …, "warnings": […]}``.

    Raises:
        PrometheusError: it is none, or no answer of this API.
    """
    try:
        answer = loads(reply.body, parse_float=Decimal)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or answer.get("status") not in ("success", "error"):
        raise _foreign(reply, label, answer)
    if answer["status"] == "error" or not 200 <= reply.status < 300:
        raise _refused(reply, label, str(answer.get("errorType") or ""), clean(str(answer.get("error") or "")))
    return answer


def series_of(answer: Mapping[str, Any], label: str) -> list[Series]:
    """The series of a query's answer (vector, matrix or scalar), samples in time's order.

    Raises:
        PrometheusError: it has another shape.
    """
    try:
        data = answer["data"]
        kind, result = data["resultType"], data["result"]
        if kind == "scalar":
            return [Series({}, (_sample(result),))]
        if kind not in ("vector", "matrix"):
            raise TypeError(kind)
        found = []
        for row in result:
            labels = {str(key): str(value) for key, value in row["metric"].items()}
            pairs = row.get("values", []) if kind == "matrix" else [row["value"]] if "value" in row else []
            samples = sorted((_sample(pair) for pair in pairs), key=lambda sample: sample[0])
            found.append(Series(labels, tuple(samples)))
        return found
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise PrometheusError(
            f"{label} answered a query in a form that is not that of the Prometheus API.", False, kind="unreadable"
        ) from None


def warnings_of(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """What the server warned of, without what is only a hint on the query's style."""
    given = answer.get("warnings") or []
    return tuple(clean(str(text)) for text in given) if isinstance(given, list) else (clean(str(given)),)


def _sample(pair: Any) -> Sample:
    moment, text = pair
    if isinstance(moment, bool) or not isinstance(text, str):
        raise TypeError(pair)
    at, value = Decimal(moment), Decimal(text.replace("Inf", "Infinity") if text.lstrip("+-") == "Inf" else text)
    # Both are made of a float64 there. Larger ones would only cost time: 1e999999 as a whole number takes a minute.
    if not 0 <= at <= LATEST or (value.is_finite() and value.adjusted() > LARGEST):
        raise ValueError(pair)
    return int(at * 1000), value if value.is_finite() else None


def _foreign(reply: Reply, label: str, answer: object) -> PrometheusError:
    """An answer that is not of the API: a proxy, a sign-in page, a server that is just starting."""
    if isinstance(answer, dict) and reply.status >= 400:
        said = clean(str(answer.get("message") or answer.get("error") or ""))
    else:
        said = "" if reply.content_type == "text/html" else clean(reply.body[:300].decode("utf-8", "replace"))
    if 200 <= reply.status < 300:
        what = "a page (HTML), perhaps a sign-in page," if _is_page(reply) else "something"
        return PrometheusError(
            f"{label} answered with {what} that is not the Prometheus API. Give the address of the API itself.",
            False,
            kind="unreadable",
        )
    return _refused(reply, label, "", said)


def _is_page(reply: Reply) -> bool:
    return reply.content_type == "text/html" or reply.body.lstrip()[:1] == b"<"


def _refused(reply: Reply, label: str, error_type: str, said: str) -> PrometheusError:
    told = f" ({said})" if said else ""
    status = reply.status
    if _TOO_LARGE.search(said) or status == 413:
        return PrometheusError(f"{label} found the question too large{told}.", False, kind="too_large")
    if status in (401, 403):
        return PrometheusError(
            f"{label} does not accept the credentials or the tenant header (HTTP {status}){told}. Give others.",
            False,
            kind="unauthorized",
        )
    if status == 404 and error_type in ("", "not_found"):
        return PrometheusError(
            f"{label} has no Prometheus API at this address (HTTP 404). Check the path: Mimir's begins with "
            "/prometheus, VictoriaMetrics' cluster version with /select/0/prometheus.",
            False,
            kind="not_found",
        )
    if status == 429:
        return PrometheusError(
            f"{label} has too much to do and put the question off{told}.",
            True,
            kind="overloaded",
            retry_after=_retry_after(reply),
        )
    if error_type in ("timeout", "canceled"):
        return PrometheusError(f"{label} needed too long for the question{told}.", True, kind="timeout")
    if error_type == "bad_data" or status == 400:
        return PrometheusError(f"{label} found the question wrong{told}.", False, kind="bad_data")
    if error_type == "execution" or status == 422:
        return PrometheusError(f"{label} could not work the question out{told}.", False, kind="execution")
    if status >= 500 or status in (408, 425):
        return PrometheusError(
            f"{label} can't answer now (HTTP {status}){told}. It is asked again by itself.",
            True,
            kind="unavailable",
            retry_after=_retry_after(reply),
        )
    return PrometheusError(f"{label} refused the question (HTTP {status}){told}.", False, kind="execution")


def _retry_after(reply: Reply) -> float | None:
    text = reply.headers.get("retry-after", "").strip()
    return min(float(text), LONGEST_WAIT) if text.isascii() and text.isdigit() else None
