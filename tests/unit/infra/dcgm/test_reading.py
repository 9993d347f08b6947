"""Shapes that no file holds, and what always holds."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.dcgm import UNMAPPED, Workload, read_cards
from infra.dcgm.names import ENERGY, ENGINE_ACTIVE, FB_USED, GPU_UTIL
from infra.dcgm.unmapped import marked
from infra.dcgm.values import believed
from infra.prometheus import Series
from tests.unit.infra.dcgm.rows import row

TARGET = {"job": "gpu", "instance": "192.0.2.1:9400", "container": "exporter", "namespace": "monitoring"}


@pytest.mark.parametrize(
    ("metric", "value", "good"),
    [
        (GPU_UTIL, "100", "100"),
        (GPU_UTIL, "101", None),
        (GPU_UTIL, "-1", None),
        (ENGINE_ACTIVE, "1", "1"),
        (ENGINE_ACTIVE, "1.01", None),
        ("DCGM_FI_DEV_MEMORY_TEMP", "2147483632", None),
        ("DCGM_FI_DEV_MEMORY_TEMP", "2147483635", None),
        (ENERGY, "2147483634", "2147483634"),  # a counter passes through it
        (ENERGY, "140737488355328", None),
        ("DCGM_FI_DEV_POWER_USAGE", "9223372036854775792", None),
    ],
)
def test_blanks_and_values_out_of_range_are_unknown(metric: str, value: str, good: str | None) -> None:
    assert believed(metric, Decimal(value)) == (None if good is None else Decimal(good))


def test_an_exporter_under_another_name_is_known_by_the_rows_that_were_moved() -> None:
    free = row(GPU_UTIL, 0, UUID="GPU-2", pod="metrics-of-cards-x7", **TARGET)
    held = row(
        GPU_UTIL,
        9,
        pod="metrics-of-cards-x7",
        exported_pod="a",
        exported_namespace="t",
        exported_container="c",
        **TARGET,
    )
    found = {one.uuid: one.workload for one in read_cards([free, held]).series}
    assert found == {"GPU-1": Workload("t", "a", "c"), "GPU-2": None}


def test_a_pod_whose_name_only_resembles_is_a_workload() -> None:
    series = row(GPU_UTIL, 9, pod="gpumetrics-0", namespace="t", container="c", job="gpu", instance="192.0.2.1:9400")
    assert read_cards([series]).held[0].workload.pod == "gpumetrics-0"


def test_two_replicas_of_prometheus_give_one_series_with_the_larger_value() -> None:
    one = row(GPU_UTIL, 10, 20, pod="a", namespace="t", container="c", prometheus_replica="0")
    two = row(GPU_UTIL, 12, 20, pod="a", namespace="t", container="c", prometheus_replica="1")
    (series,) = read_cards([one, two]).series
    assert [value for _, value in series.samples] == [12, 20]


def test_pods_one_after_another_hold_the_card_alone() -> None:
    before = row(GPU_UTIL, 10, 10, pod="a", namespace="t", container="c")
    after = row(GPU_UTIL, 20, 20, start=60_000, pod="b", namespace="t", container="c")
    reading = read_cards([before, after])
    assert {(one.workload.pod, one.scope) for one in reading.series if one.workload} == {("a", "card"), ("b", "card")}
    assert not any(one.shared for one in reading.held)


def test_mig_instances_are_apart_also_by_the_labels_of_a_dra_claim() -> None:
    classic = row(FB_USED, 5, GPU_I_ID="3", GPU_I_PROFILE="1g.10gb", pod="a", namespace="t", container="c")
    claim = row(
        FB_USED, 7, dra_mig_device_uuid="MIG-9", dra_mig_profile="2g.20gb", pod="b", namespace="t", container="c"
    )
    assert {one.mig for one in read_cards([classic, claim]).series} == {("3", "1g.10gb"), ("MIG-9", "2g.20gb")}


def test_rows_without_a_card_and_metrics_of_others_are_left_out() -> None:
    nameless = Series({"__name__": GPU_UTIL, "gpu": "0"}, ((0, Decimal(1)),))
    other = Series({"__name__": "node_load1", "UUID": "GPU-1"}, ((0, Decimal(1)),))
    assert not read_cards([nameless, other]).series
    old = Series({"__name__": GPU_UTIL, "uuid": "GPU-5", "gpu": "0"}, ((0, Decimal(1)),))
    assert read_cards([old]).series[0].uuid == "GPU-5"


def test_nobody_named_on_an_unmapped_node_is_not_nobody() -> None:
    reading = read_cards([row(GPU_UTIL, 50)])
    assert marked(reading.series, {"node-a"})[0].workload == UNMAPPED
    assert marked(reading.series, {"node-b"})[0].workload is None


workloads = st.sampled_from(["", "a", "b"])
points = st.lists(st.tuples(workloads, st.integers(0, 20), st.integers(0, 120)), max_size=40)


@given(points)
def test_a_card_has_one_value_at_an_instant_whatever_rows_say(found: list[tuple[str, int, int]]) -> None:
    rows: dict[str, dict[int, int]] = {}
    for pod, moment, value in found:
        rows.setdefault(pod, {})[moment] = value
    series = [
        Series(
            {
                "__name__": GPU_UTIL,
                "UUID": "GPU-1",
                "pod": pod,
                "namespace": "t" if pod else "",
                "vgpu": "1" if pod else "",
            },
            tuple((moment, Decimal(value)) for moment, value in sorted(samples.items())),
        )
        for pod, samples in rows.items()
    ]
    moments = [moment for one in read_cards(series).series if one.scope == "card" for moment, _ in one.samples]
    assert sorted(moments) == sorted({moment for _, moment, _ in found})
