"""HAMi's metrics: each recorded file with its right outcome, and what can't be believed."""

from __future__ import annotations

from decimal import Decimal

from infra.dcgm.workload import Workload
from infra.hami_metrics import HamiSeries, of_live_pods, read_hami, with_names
from infra.prometheus import Series
from tests.unit.infra.dcgm.rows import text_file

CARD = "GPU-00000000-0000-4000-8000-0000000000"


def _values(series: list[HamiSeries]) -> dict[tuple[str, str, str], Decimal | None]:
    return {
        (one.uuid.removeprefix(CARD), one.workload.pod if one.workload else "", one.figure): one.samples[-1][1]
        for one in series
    }


def test_scheduler_file_what_was_given_in_mib_and_percent_with_the_index_of_the_container() -> None:
    reading = read_hami(text_file("hami-scheduler-metrics.prom"))
    values = _values(reading.series)
    assert values["10", "share-a", "memory_given_mib"] == 3000
    assert values["10", "share-b", "memory_given_mib"] == 5000
    assert (values["10", "share-a", "cores_given"], values["10", "share-b", "cores_given"]) == (30, 50)
    assert (values["10", "", "memory_given_mib"], values["10", "", "cores_given"]) == (8000, 80)
    indexes = {one.workload.pod: one.container_index for one in reading.series if one.workload}
    assert indexes == {"share-a": 0, "share-b": 1}
    assert {one.node for one in reading.series} == {"node-a"}


def test_the_index_becomes_the_name_through_the_pods_containers() -> None:
    reading = read_hami(text_file("hami-scheduler-metrics.prom"))
    known = {("tenant-a", "share-a"): ("main",), ("tenant-b", "share-b"): ("init", "main")}
    named = with_names(reading.series, lambda namespace, pod: known.get((namespace, pod)))
    assert {one.workload for one in named if one.workload} == {
        Workload("tenant-a", "share-a", "main"),
        Workload("tenant-b", "share-b", "main"),
    }
    unknown = with_names(reading.series, lambda namespace, pod: ("only",))
    assert {one.container_index for one in unknown if one.workload} == {None, 1}  # no second container: not guessed


def test_monitor_file_what_is_used_by_name() -> None:
    reading = read_hami(text_file("hami-monitor-metrics.prom"))
    values = _values(reading.series)
    assert values["10", "share-a", "memory_used_mib"] == 220
    assert values["10", "share-a", "busy_percent"] == 0  # a known zero
    assert values["10", "", "busy_percent"] == 44
    assert {one.workload.container for one in reading.series if one.workload} == {"cuda"}


def test_legacy_file_old_names_and_labels_and_the_memory_beyond_the_card_as_told() -> None:
    reading = read_hami(text_file("hami-legacy-metrics.prom"))
    values = _values(reading.series)
    assert values["21", "llm-0", "memory_used_mib"] == Decimal(19876938752) / (1024 * 1024)
    assert values["22", "llm-0", "memory_used_mib"] == 0
    assert values["23", "", "memory_given_mib"] == 5000
    assert values["21", "", "busy_percent"] == 0
    assert {one.node for one in reading.series if not one.workload and one.figure == "memory_given_mib"} == {"node-b"}


def _row(metric: str, value: str, **labels: str) -> Series:
    base = {"__name__": metric, "device_uuid": "GPU-1", "namespace": "t", "pod": "a", "container": "c"}
    return Series({**base, **labels}, ((1000, Decimal(value)),))


def test_what_can_not_be_is_not_known() -> None:
    underflow = _row("hami_vgpu_memory_used_bytes", str(17592186044134 * 1024 * 1024))
    above = _row("hami_container_device_utilization_ratio", "180")
    reading = read_hami([underflow, above])
    assert [one.samples[0][1] for one in reading.series] == [None, None]
    assert sum(reading.dropped.values()) == 2


def test_new_and_legacy_names_side_by_side_are_one_figure() -> None:
    new = _row("hami_container_device_utilization_ratio", "40")
    old = Series(
        {"__name__": "Device_utilization_desc_of_container", "deviceuuid": "GPU-1", "podnamespace": "t", "podname": "a",
         "ctrname": "c"},
        ((1000, Decimal(40)),),
    )  # fmt: skip
    assert len(read_hami([new, old]).series) == 1


def test_labels_that_prometheus_moved_are_found() -> None:
    moved = _row(
        "hami_vgpu_memory_used_bytes", "1048576", namespace="kube-system", pod="hami-device-plugin-x",
        container="vgpu-monitor", exported_namespace="t", exported_pod="a", exported_container="c", job="hami",
    )  # fmt: skip
    assert read_hami([moved]).series[0].workload == Workload("t", "a", "c")


def test_rows_of_pods_that_are_gone_are_not_believed() -> None:
    reading = read_hami([_row("hami_vgpu_memory_used_bytes", "1048576")])
    assert of_live_pods(reading.series, lambda namespace, pod, at_ms: at_ms < 1000) == []
    assert len(of_live_pods(reading.series, lambda namespace, pod, at_ms: True)) == 1
