"""Samples into hours: what a sample stands for, and what never happens."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from infra.dcgm import read_cards
from infra.dcgm.names import ENERGY, ENGINE_ACTIVE, FB_USED, GPU_UTIL
from infra.telemetry import HourRow, Subject, Track, fold, gaps_of, interval_of, tracks_of_cards
from infra.telemetry.hours import HOUR_MS
from tests.unit.infra.dcgm.rows import row, text_file

S = 1000
CARD = Subject("GPU-1", "", "card", "", "", "")


def track(*samples: tuple[int, int | None], figure: str = "busy_percent", subject: Subject = CARD) -> Track:
    return Track(subject, figure, tuple((at, None if v is None else Decimal(v)) for at, v in samples))  # type: ignore[arg-type]


def only(rows: list[HourRow]) -> HourRow:
    (found,) = rows
    return found


def test_a_sample_stands_for_the_time_since_the_one_before() -> None:
    found = only(fold([track((0, 0), (30 * S, 50), (60 * S, 100))], 1, 90 * S, 30 * S))
    assert (found.busy_ms, found.figures.observed_ms) == (45 * S, 60 * S)


def test_one_missed_scrape_is_bridged_and_a_longer_silence_is_not_known() -> None:
    bridged = only(fold([track((0, 0), (60 * S, 100))], 1, 90 * S, 30 * S))
    assert (bridged.busy_ms, bridged.figures.observed_ms) == (60 * S, 60 * S)
    silent = only(fold([track((0, 0), (90 * S, 100))], 1, 120 * S, 30 * S))
    assert (silent.busy_ms, silent.figures.observed_ms) == (30 * S, 30 * S)


def test_unknown_values_are_in_neither_figure() -> None:
    found = only(fold([track((0, 0), (30 * S, None), (60 * S, 100))], 1, 90 * S, 30 * S))
    assert (found.busy_ms, found.figures.observed_ms) == (30 * S, 30 * S)
    assert fold([track((30 * S, None))], 0, 90 * S, 30 * S) == []


def test_time_is_cut_at_hours_and_so_is_energy() -> None:
    level = track((HOUR_MS - 20 * S, 0), (HOUR_MS + 10 * S, 100))
    energy = track((HOUR_MS - 20 * S, 1000), (HOUR_MS + 10 * S, 1300), figure="energy_mj")
    first, second = fold([level, energy], HOUR_MS, HOUR_MS + 60 * S, 30 * S)
    assert (first.hour_ms, first.busy_ms, first.figures.energy_mj) == (0, 20 * S, 200)
    assert (second.hour_ms, second.busy_ms, second.figures.energy_mj) == (HOUR_MS, 10 * S, 100)


def test_an_energy_counter_that_fell_adds_nothing_and_goes_on_from_there() -> None:
    samples = ((0, 5000), (30 * S, 5600), (60 * S, 10), (90 * S, 40))
    found = only(fold([track(*samples, figure="energy_mj")], 1, 120 * S, 30 * S))
    assert found.figures.energy_mj == 630


def test_pods_that_follow_each_other_do_not_tell_the_same_time_twice() -> None:
    before = row(GPU_UTIL, 100, 100, 100, pod="a", namespace="t", container="c")
    after = row(GPU_UTIL, 100, 100, start=75_000, pod="b", namespace="t", container="c")
    rows = fold(tracks_of_cards(read_cards([before, after]).series), 1, 120 * S, 30 * S)
    by_pod = {one.subject.pod: one.busy_ms for one in rows}
    assert by_pod == {"a": 60 * S, "b": 45 * S}  # b's first sample stands for the 15 s since a's last


def test_three_pods_with_the_cards_value_are_one_card() -> None:
    rows = fold(
        tracks_of_cards(read_cards(text_file("dcgm-timeslicing-virtual-gpus.prom", 30 * S)).series), 0, 60 * S, 30 * S
    )
    assert [one.busy_ms for one in rows if one.subject.scope == "card"] == [int(30 * S * 0.71)]
    assert {one.subject.pod: one.busy_ms for one in rows if one.subject.scope == "pod"} == {
        "gpu-workload-1": 13_500,
        "gpu-workload-2": 7_800,
        "gpu-workload-3": 0,
    }


def test_a_mig_instance_is_as_busy_as_its_engine_and_energy_is_the_cards() -> None:
    mig = {"GPU_I_ID": "1", "GPU_I_PROFILE": "1g.10gb", "pod": "a", "namespace": "t", "container": "c"}
    other = {**mig, "GPU_I_ID": "2", "pod": "b"}
    rows = [row(ENGINE_ACTIVE, 0.5, 0.5, **mig), row(FB_USED, 100, 300, **mig)]
    rows += [row(ENERGY, 1000, 1600, **mig), row(ENERGY, 1000, 1600, **other)]
    found = {one.subject[1:]: one for one in fold(tracks_of_cards(read_cards(rows).series), 1, 60 * S, 30 * S)}
    instance = found["1", "card", "t", "a", "c"]
    assert (instance.busy_ms, instance.figures.memory_max, instance.mig_profile) == (15 * S, 300, "1g.10gb")
    assert found["", "card", "", "", ""].figures.energy_mj == 600
    assert len(found) == 2


samples = st.lists(st.tuples(st.integers(0, 7200), st.one_of(st.none(), st.integers(0, 100))), max_size=60)
cuts = st.lists(st.integers(1, 7200), max_size=6)


@given(samples, cuts)
def test_windows_add_up_to_the_whole_and_busy_is_never_more_than_observed(
    found: list[tuple[int, int | None]], edges: list[int]
) -> None:
    points = sorted(dict(found).items())
    line = [track(*((at * S, value) for at, value in points))]
    whole = _sums(fold(line, 0, 7201 * S, 30 * S))
    bounds = [0, *sorted(set(edges)), 7201]
    parts = [_sums(fold(line, a * S, b * S, 30 * S)) for a, b in pairwise(bounds)]
    assert tuple(map(sum, zip(*parts, strict=True))) == whole
    assert 0 <= whole[0] <= whole[1] <= 7230 * S


def _sums(rows: list[HourRow]) -> tuple[Decimal, int]:
    return sum((one.figures.busy or Decimal(0) for one in rows), Decimal(0)), sum(
        one.figures.observed_ms or 0 for one in rows
    )


@given(st.lists(st.integers(0, 300)), st.integers(1, 60))
def test_gaps_lie_within_the_window_and_hold_no_sample(moments: list[int], interval: int) -> None:
    gaps = gaps_of([at * S for at in moments], 100 * S, 200 * S, interval * S)
    assert all(100 * S <= gap.start_ms < gap.end_ms <= 200 * S for gap in gaps)
    assert not any(gap.start_ms < at * S < gap.end_ms for gap in gaps for at in moments)


def test_gaps_of_a_silent_source_of_a_late_one_and_of_one_that_stopped() -> None:
    assert gaps_of([], 0, 300 * S, 30 * S) == [(0, 300 * S)]
    assert gaps_of([200 * S, 230 * S, 260 * S, 290 * S], 0, 300 * S, 30 * S) == [(0, 170 * S)]
    assert gaps_of([0, 30 * S, 60 * S], 0, 300 * S, 30 * S) == [(60 * S, 300 * S)]
    assert gaps_of([0, 60 * S, 120 * S], 0, 150 * S, 30 * S) == []


def test_the_interval_is_what_most_series_show() -> None:
    assert interval_of([[0, 15_000, 30_000], [0, 15_000, 45_000], [5]], 30_000) == 15_000
    assert interval_of([[0]], 30_000) == 30_000
