"""Long times in bounded windows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.prometheus import PrometheusError, Window, windows
from infra.prometheus.selector import one_of

T = datetime(2026, 1, 1, 0, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_windows_end_on_the_same_grid_whenever_reading_began() -> None:
    found = [window for window, _ in windows(T, T + 10 * MINUTE, lambda window: None, size=5 * MINUTE)]
    assert [(window.start.minute, window.end.minute) for window in found] == [(2, 5), (5, 10), (10, 12)]


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 900))
def test_windows_cover_the_time_without_gap_or_overlap(start: int, length: int, size: int) -> None:
    begin, end = T + timedelta(seconds=start), T + timedelta(seconds=start + length)
    found = [window for window, _ in windows(begin, end, lambda window: None, size=timedelta(seconds=size))]
    assert sum((window.length for window in found), timedelta()) == end - begin
    assert all(a.end == b.start for a, b in pairwise(found))
    assert all(timedelta() < window.length <= timedelta(seconds=size) for window in found)


def test_what_is_too_large_is_halved_and_grows_again() -> None:
    lengths: list[float] = []

    def ask(window: Window) -> None:
        if window.length > MINUTE * 2.5 and window.start < T + 10 * MINUTE:
            raise PrometheusError("too many samples", False, kind="too_large")
        lengths.append(window.length / MINUTE)

    list(windows(T, T + 20 * MINUTE, ask, size=5 * MINUTE))
    assert sum(lengths) == 20
    assert max(lengths) == 5
    assert min(lengths) < 2.5


def test_what_stays_too_large_is_told() -> None:
    def ask(window: Window) -> None:
        raise PrometheusError("too many samples", False, kind="too_large")

    with pytest.raises(PrometheusError, match="too many samples"):
        list(windows(T, T + MINUTE, ask, size=MINUTE))


def test_what_may_pass_is_tried_again_ever_later_and_as_the_server_says() -> None:
    waits: list[float] = []
    failures = [
        PrometheusError("busy", True),
        PrometheusError("busy", True),
        PrometheusError("busy", True, retry_after=9),
    ]

    def ask(window: Window) -> str:
        if failures:
            raise failures.pop(0)
        return "done"

    found = list(windows(T, T + MINUTE, ask, size=5 * MINUTE, pause=1, sleep=waits.append))
    assert [answer for _, answer in found] == ["done"]
    assert waits == [1, 2, 9]


def test_it_gives_up_after_the_tries_and_at_once_where_nothing_will_change() -> None:
    asked: list[Window] = []

    def ask(window: Window) -> None:
        asked.append(window)
        raise PrometheusError("busy", True)

    with pytest.raises(PrometheusError):
        list(windows(T, T + MINUTE, ask, tries=3, sleep=lambda seconds: None))
    assert len(asked) == 3

    def refuse(window: Window) -> None:
        asked.append(window)
        raise PrometheusError("no", False)

    with pytest.raises(PrometheusError):
        list(windows(T, T + MINUTE, refuse, tries=3))
    assert len(asked) == 4


def test_a_regular_expression_of_names_matches_them_alone() -> None:
    assert one_of(["a.b", "c|d", "e-f"]) == r"a\.b|c\|d|e-f"
