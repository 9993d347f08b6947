"""A small Prometheus for tests: samples in memory, and as much of PromQL as our own questions use.

Instant selectors with the look-back of 5 minutes and stale markers, ``timestamp``, ``… == n``, ``and`` / ``or`` /
``unless`` (``on (…)``), ``max`` / ``min`` / ``count`` / ``group`` (``by (…)``), ``min|max_over_time`` of a range or of
a subquery (``[1h:1m]``, points on multiples of the step). What it does not know raises. A real Prometheus answers the
same questions in ``tests/cluster/test_history_real.py``.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl

LOOKBACK = 300_000
Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, Decimal]
Expression = Callable[[int], Vector]

_TOKEN = re.compile(
    r"\s*(?:(?P<name>[a-zA-Z_]\w*)|(?P<number>\d+(?:ms|s|m|h|d)?)|(?P<text>\"(?:\\.|[^\"\\])*\")|(?P<op>=~|==|!=|[{}()\[\],:=]))"
)
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass
class Store:
    """Series by labels: (ms, value), ascending; ``None`` is a stale marker."""

    series: dict[Labels, list[tuple[int, Decimal | None]]] = field(default_factory=dict)

    def add(self, name: str, labels: Mapping[str, str], at: int, value: object) -> None:
        """A sample; empty labels are no labels. A later one than all before."""
        key = frozenset({("__name__", name), *((k, v) for k, v in labels.items() if v)})
        self.series.setdefault(key, []).append((at, None if value is None else Decimal(str(value))))

    def instant(self, query: str, at: int) -> Vector:
        """The query's value."""
        return _Parser(self, query).parse()(at)

    def answer(self, path: str, params: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """What the HTTP API answers."""
        asked = dict(params)
        if path.endswith("/query_range"):
            start, end, step = (_ms(asked[name]) for name in ("start", "end", "step"))
            if (end - start) // step > 11_000:
                return {
                    "status": "error",
                    "errorType": "bad_data",
                    "error": "exceeded maximum resolution of 11,000 points per timeseries",
                }
            expression = _Parser(self, asked["query"]).parse()
            found: dict[Labels, list[list[Any]]] = {}
            for at in range(start, end + 1, step):
                for labels, value in expression(at).items():
                    found.setdefault(labels, []).append([at / 1000, str(value)])
            matrix = [{"metric": dict(labels), "values": values} for labels, values in found.items()]
            return {"status": "success", "data": {"resultType": "matrix", "result": matrix}}
        if path.endswith("/query"):
            at = _ms(asked["time"]) if "time" in asked else 0
            if asked["query"] == "vector(1)":
                return {
                    "status": "success",
                    "data": {"resultType": "vector", "result": [{"metric": {}, "value": [0, "1"]}]},
                }
            rows: list[dict[str, Any]] = [
                {"metric": dict(k), "value": [at / 1000, str(v)]} for k, v in self.instant(asked["query"], at).items()
            ]
            return {"status": "success", "data": {"resultType": "vector", "result": rows}}
        if path.endswith("/buildinfo"):
            return {"status": "success", "data": {"version": "2.42.0"}}
        return {"status": "error", "errorType": "not_found", "error": path}

    def body(self, path: str, query: str) -> bytes:
        """The answer to an address as bytes."""
        return json.dumps(self.answer(path, parse_qsl(query))).encode()


def _ms(seconds: str) -> int:
    return int(Decimal(seconds) * 1000)


class _Parser:
    def __init__(self, store: Store, text: str) -> None:
        self.store, self.tokens, self.at = store, [], 0
        position = 0
        text = text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError(f"PromQL that is not known here: {text[position : position + 40]!r}")
            kind = str(match.lastgroup)
            self.tokens.append((kind, match.group(kind)))
            position = match.end()

    def parse(self) -> Expression:
        found = self.operation(0)
        if self.at != len(self.tokens):
            raise ValueError(f"left over: {self.tokens[self.at :]}")
        return found

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        text = self.peek()
        if wanted and text not in wanted:
            raise ValueError(f"{wanted} expected, not {text!r} ({self.tokens[max(0, self.at - 6) : self.at + 3]})")
        self.at += 1
        return text

    # precedence: or, then and/unless, then ==
    LEVELS = (("or",), ("and", "unless"), ("==",))

    def operation(self, level: int) -> Expression:
        if level == len(self.LEVELS):
            return self.term()
        left = self.operation(level + 1)
        while self.peek() in self.LEVELS[level]:
            name = self.take()
            on: tuple[str, ...] | None = None
            if self.peek() == "on":
                self.take()
                on = self.names()
            left = _joined(name, left, self.operation(level + 1), on)
        return left

    def names(self) -> tuple[str, ...]:
        self.take("(")
        found = []
        while self.peek() != ")":
            found.append(self.take())
            if self.peek() == ",":
                self.take()
        self.take(")")
        return tuple(found)

    def term(self) -> Expression:
        kind, text = self.tokens[self.at]
        if kind == "number":
            self.take()
            return lambda at: {frozenset(): Decimal(text)}
        if text == "(":
            self.take()
            inner = self.operation(0)
            self.take(")")
            return inner
        if text in ("max", "min", "count", "group"):
            self.take()
            by: tuple[str, ...] = ()
            if self.peek() == "by":
                self.take()
                by = self.names()
            self.take("(")
            inner = self.operation(0)
            self.take(")")
            return _aggregated(text, by, inner)
        if text == "timestamp":
            self.take()
            self.take("(")
            inner = self.operation(0)
            self.take(")")
            raw = getattr(inner, "moments", None)
            if raw is not None:
                return lambda at: {_unnamed(k): Decimal(when) / 1000 for k, (when, _) in raw(at).items()}
            return lambda at: {_unnamed(k): Decimal(at) / 1000 for k in inner(at)}
        if text in ("min_over_time", "max_over_time"):
            self.take()
            self.take("(")
            found = self.over_time(min if text.startswith("min") else max)
            self.take(")")
            return found
        return self.selector()

    def over_time(self, which: Callable[..., Decimal]) -> Expression:
        inner = self.term()
        self.take("[")
        length = _length(self.take())
        if self.peek() == "]":
            self.take()
            samples = inner.samples  # type: ignore[attr-defined]  # a selector
            return lambda at: {_unnamed(k): which(values) for k, values in samples(at - length, at).items()}
        self.take(":")
        step = _length(self.take())
        self.take("]")

        def value(at: int) -> Vector:
            found: dict[Labels, list[Decimal]] = {}
            for point in range(-(-(at - length) // step) * step, at + 1, step):
                for labels, one in inner(point).items():
                    found.setdefault(_unnamed(labels), []).append(one)
            return {labels: which(values) for labels, values in found.items()}

        return value

    def selector(self) -> Expression:
        conditions: list[Callable[[Mapping[str, str]], bool]] = []
        if self.peek() != "{":
            name = self.take()
            conditions.append(lambda labels: labels["__name__"] == name)
        if self.peek() == "{":
            self.take()
            while self.peek() != "}":
                label, operator, text = self.take(), self.take("=", "=~"), json.loads(self.take())
                conditions.append(_condition(label, operator, text))
                if self.peek() == ",":
                    self.take()
            self.take("}")
        matching = [
            (labels, [when for when, _ in samples], [value for _, value in samples])
            for labels, samples in self.store.series.items()
            if all(one(dict(labels)) for one in conditions)
        ]

        def moments(at: int) -> dict[Labels, tuple[int, Decimal]]:
            found = {}
            for labels, times, values in matching:
                number = bisect_right(times, at) - 1
                if number >= 0 and times[number] > at - LOOKBACK:
                    one = values[number]
                    if one is not None:
                        found[labels] = (times[number], one)
            return found

        def samples(start: int, end: int) -> dict[Labels, list[Decimal]]:
            found = {}
            for labels, times, values in matching:
                inside = values[bisect_right(times, start) : bisect_right(times, end)]
                known = [one for one in inside if one is not None]
                if known:
                    found[labels] = known
            return found

        def value(at: int) -> Vector:
            return {labels: one for labels, (_, one) in moments(at).items()}

        value.moments, value.samples = moments, samples  # type: ignore[attr-defined]
        return value


def _condition(label: str, operator: str, text: str) -> Callable[[Mapping[str, str]], bool]:
    if operator == "=":
        return lambda labels: labels.get(label, "") == text
    pattern = re.compile(text)
    return lambda labels: pattern.fullmatch(labels.get(label, "")) is not None


def _length(text: str) -> int:
    match = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    if match is None:
        raise ValueError(f"{text!r} is no length of time")
    return int(match[1]) * _UNITS[match[2]]


def _unnamed(labels: Labels) -> Labels:
    return frozenset(pair for pair in labels if pair[0] != "__name__")


def _key(labels: Labels, on: tuple[str, ...] | None) -> object:
    if on is None:
        return _unnamed(labels)
    known = dict(labels)
    return tuple(known.get(name, "") for name in on)


def _joined(name: str, left: Expression, right: Expression, on: tuple[str, ...] | None) -> Expression:
    def value(at: int) -> Vector:
        first, second = left(at), right(at)
        if name == "==":
            wanted = second[frozenset()]
            return {labels: one for labels, one in first.items() if one == wanted}
        if name == "or":
            known = {_key(labels, on) for labels in first}
            return {**first, **{labels: one for labels, one in second.items() if _key(labels, on) not in known}}
        known = {_key(labels, on) for labels in second}
        return {labels: one for labels, one in first.items() if (_key(labels, on) in known) == (name == "and")}

    return value


def _aggregated(name: str, by: tuple[str, ...], inner: Expression) -> Expression:
    which: dict[str, Callable[[list[Decimal]], Decimal]] = {
        "max": max, "min": min, "count": lambda values: Decimal(len(values)), "group": lambda values: Decimal(1),
    }  # fmt: skip

    def value(at: int) -> Vector:
        found: dict[Labels, list[Decimal]] = {}
        for labels, one in inner(at).items():
            found.setdefault(frozenset(pair for pair in labels if pair[0] in by), []).append(one)
        return {labels: which[name](values) for labels, values in found.items()}

    return value
