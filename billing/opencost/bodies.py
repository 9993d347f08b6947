"""The envelope of OpenCost's answers: JSON without a float, or a reason why the answer can't be used. Pure.

Shapes (OpenCost core/pkg/opencost/allocation_json.go, pkg/costmodel/router.go, and recorded answers):

- ``{"code": 200, "status": "success", "data": …}``; newer builds leave ``status`` out.
- A failure is ``{"code": 500, "message": "Error: …"}`` with HTTP 500; a window it can't read is HTTP 400 with a line of
  text *followed by* such a JSON body.
- A figure that is NaN or infinite is written as ``null``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from infra.kube.decoding import loads
from portal.kernel.clock import Interval, format_rfc3339, parse_rfc3339

LONGEST_QUOTE = 200
LONGEST_REFUSAL = 16 * 1024
"""Characters of a failed answer that are looked at."""
LARGEST, FINEST = 19, -30
"""Powers of ten: no cost, hour or byte-hour is as large as the first; digits below the second say nothing."""

Obj = Mapping[str, Any]


class Refused(Exception):
    """An answer that can't be used. ``sentence`` says why; ``retry``: asking again later may help."""

    def __init__(self, sentence: str, *, retry: bool = True) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.retry = retry


def data_of(status: int, body: bytes) -> Any:
    """The ``data`` of an answer; ``None`` where it is null or missing (which means "no data").

    Raises:
        Refused: HTTP status or ``code`` other than 200, no JSON (a login page, text), no object.
    """
    text = body.decode("utf-8", "replace")
    if status != 200:
        raise Refused(
            f"OpenCost answered with HTTP status {status}: {_message(text)}.",
            retry=status >= 500 or status in (401, 403, 404, 408, 429),
        )
    try:
        answer = _parse(body)
    except ValueError:
        what = "a web page (a login page of a proxy?)" if text.lstrip()[:1] == "<" else "no JSON"
        raise Refused(f"OpenCost answered with {what}: {_quote(text)}.") from None
    if not isinstance(answer, dict):
        raise Refused(f"OpenCost's answer is no JSON object: {_quote(text)}.")
    code = answer.get("code", 200)
    if code != 200:
        raise Refused(f"OpenCost answered with code {code}: {_quote(str(answer.get('message') or 'no message'))}.")
    return answer.get("data")


class NotANumber:
    """What ``NaN`` and ``Infinity`` become: no figure, and not zero."""

    def __repr__(self) -> str:
        return "not a number"


NOT_A_NUMBER = NotANumber()


def _parse(body: bytes) -> Any:
    return loads(body, parse_float=Decimal, parse_int=Decimal, parse_constant=lambda _: NOT_A_NUMBER)


def _message(text: str) -> str:
    """What a failed answer says: the message of its JSON body, wherever that begins, or its text."""
    text = text[:LONGEST_REFUSAL]
    start = text.find("{")
    if start >= 0:
        try:
            found = _parse(text[start:].encode())
        except ValueError:
            found = None
        if isinstance(found, dict) and found.get("message"):
            before = text[:start].strip()
            return _quote(f"{before} ({found['message']})" if before else str(found["message"]))
    return _quote(re.sub(r"<[^>]*>", " ", text)) or "nothing"


def _quote(text: str) -> str:
    words = " ".join(text[:LONGEST_REFUSAL].replace("\x00", "\ufffd").split())
    return words if len(words) <= LONGEST_QUOTE else words[:LONGEST_QUOTE] + "…"


def figure(row: Obj, name: str, what: str, *, empty: bool = False) -> Decimal:
    """A figure of a row.

    Args:
        what: the row's name, for the reason.
        empty: the row lasted no time: null means 0 there.

    Raises:
        Refused: it is missing, null, not a number, or negative. Unknown is not zero.
    """
    value = row.get(name)
    if value is None and empty:
        return Decimal(0)
    if not isinstance(value, Decimal) or not value.is_finite():
        wrong = "is missing" if name not in row else "is null (what OpenCost writes for NaN)" if value is None else ""
        raise Refused(f"{name} of {what} {wrong or f'is {_quote(repr(value))}, which is no number'}.")
    if value and value.adjusted() >= LARGEST:
        raise Refused(f"{name} of {what} is {value:.3e}, which is more than it can be.")
    if value.as_tuple().exponent < FINEST:  # type: ignore[operator]  # finite: a number
        value = round(value, -FINEST)
    if value < 0:
        raise Refused(f"{name} of {what} is negative: {value:f}.")
    return value


def amount(row: Obj, name: str, what: str, *, empty: bool = False) -> Decimal:
    """A cost with its adjustment, as OpenCost's own totals have it. Raises Refused as :func:`figure`."""
    adjustment = row.get(f"{name}Adjustment")
    change = adjustment if isinstance(adjustment, Decimal) and adjustment.is_finite() else Decimal(0)
    if change and not FINEST <= change.adjusted() < LARGEST:
        raise Refused(f"{name}Adjustment of {what} is {change:.3e}, which it can't be.")
    total = figure(row, name, what, empty=empty) + change
    if total < 0:
        raise Refused(f"{name} of {what} is negative with its adjustment: {total:f}.")
    return total


def interval(row: Obj, what: str, window: Interval) -> tuple[Interval, bool]:
    """When a row lasted, cut to the window, and whether it had to be cut.

    Raises:
        Refused: its window is not the one that was asked for; it ends before it begins.
    """
    own = row.get("window")
    if not isinstance(own, dict):
        raise Refused(f"{what} has no window, so nobody knows what its figures are for.")
    answered = (_instant(own, "start", f"the window of {what}"), _instant(own, "end", f"the window of {what}"))
    if answered != (window.start, window.end):
        raise Refused(
            f"{what} is for the window from {format_rfc3339(answered[0])} to {format_rfc3339(answered[1])}, but "
            f"{format_rfc3339(window.start)} to {format_rfc3339(window.end)} was asked for."
        )
    start, end = _instant(row, "start", what), _instant(row, "end", what)
    if end < start:
        raise Refused(f"{what} ends at {format_rfc3339(end)}, before it starts at {format_rfc3339(start)}.")
    first, last = (min(max(edge, window.start), window.end) for edge in (start, end))
    return Interval(first, last), (first, last) != (start, end)


def _instant(row: Obj, name: str, what: str) -> Any:
    try:
        return parse_rfc3339(str(row.get(name)))
    except ValueError:
        raise Refused(f"{name} of {what} is {row.get(name)!r}, which is no instant.") from None
