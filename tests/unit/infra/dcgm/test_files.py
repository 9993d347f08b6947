"""Every recorded shape of dcgm-exporter's rows, with its right outcome."""

from __future__ import annotations

from decimal import Decimal

from infra.dcgm import Workload, energy_steps, latest, read_cards, unmapped_nodes, xid_edges
from infra.dcgm.names import ENERGY, ENGINE_ACTIVE, FB_USED, GPU_UTIL, POWER, XID
from tests.unit.infra.dcgm.rows import answer_file, csv_file, text_file

CARD = "GPU-00000000-0000-4000-8000-0000000000"


def test_plain_file_one_card_is_held_and_the_other_free_and_idle_is_a_known_zero() -> None:
    reading = read_cards(text_file("dcgm-plain-two-gpus-one-pod.prom"), {"node-a"})
    by_card = {(one.uuid, one.metric): one for one in latest(reading.series)}
    held, free = by_card[CARD + "a0", GPU_UTIL], by_card[CARD + "a1", GPU_UTIL]
    assert (held.workload, held.value, held.node) == (Workload("tenant-a", "trainer-0", "trainer"), 0, "node-a")
    assert (free.workload, free.value) == (None, 0)
    assert by_card[CARD + "a0", FB_USED].value == 508
    assert [(one.uuid, one.workload.pod) for one in reading.held] == [(CARD + "a0", "trainer-0")]
    assert not reading.dropped
    assert reading.cards[CARD + "a1"].index == 1
    assert reading.cards[CARD + "a1"].model == "NVIDIA H100 80GB HBM3"


def test_empty_labels_are_no_pod_and_a_blank_is_unknown_not_zero() -> None:
    reading = read_cards(text_file("dcgm-empty-pod-labels.prom"), {"node-b"})
    assert not reading.held
    temperature = next(one for one in latest(reading.series) if one.metric == "DCGM_FI_DEV_MEMORY_TEMP")
    assert temperature.value is None
    assert reading.dropped == {"DCGM_FI_DEV_MEMORY_TEMP": 1}
    # The host label is the exporter's pod, which is no node.
    assert {one.node for one in reading.series} == {""}


def test_copies_of_virtual_gpus_are_the_cards_value_once() -> None:
    reading = read_cards(text_file("dcgm-timeslicing-virtual-gpus.prom"))
    engine = [one for one in latest(reading.series) if one.metric == ENGINE_ACTIVE]
    assert [(one.scope, one.workload, one.value) for one in engine if one.scope == "card"] == [
        ("card", None, Decimal("0.714"))
    ]
    # What each pod did is not known: the rows repeat the card's value.
    assert {(one.workload.pod, one.value) for one in engine if one.scope == "pod" and one.workload} == {
        ("gpu-workload-1", None),
        ("gpu-workload-2", None),
        ("gpu-workload-3", None),
    }


def test_values_of_single_processes_stand_beside_the_cards_and_an_idle_pod_is_a_known_zero() -> None:
    reading = read_cards(text_file("dcgm-timeslicing-virtual-gpus.prom"))
    util = [one for one in latest(reading.series) if one.metric == GPU_UTIL]
    assert [one.value for one in util if one.scope == "card"] == [71]
    assert {one.workload.pod: one.value for one in util if one.scope == "pod" and one.workload} == {
        "gpu-workload-1": 45,
        "gpu-workload-2": 26,
        "gpu-workload-3": 0,
    }
    assert {one.workload.namespace for one in reading.held} == {"tenant-a", "tenant-b"}
    assert all(one.shared and one.pod_uid for one in reading.held)
    assert {one.node for one in util} == {"node-c"}  # hostname in lower case


def test_power_and_energy_that_each_mig_instance_repeats_are_counted_once() -> None:
    reading = read_cards(text_file("dcgm-mig-a30-parent-values-repeated.prom"))
    found = {
        one.metric: [each for each in latest(reading.series) if each.metric == one.metric] for one in reading.series
    }
    assert [(one.mig, one.value) for one in found[POWER]] == [(None, Decimal("52.746"))]
    assert [(one.mig, one.value) for one in found[ENERGY]] == [(None, 126272101025)]
    assert [(one.mig, one.value) for one in found[XID]] == [(None, 0)]


def test_an_xid_that_stays_is_one_event_and_the_first_value_tells_no_time() -> None:
    reading = read_cards(text_file("dcgm-xid.prom"))
    values = {one.uuid: one.value for one in latest(reading.series) if one.metric == XID}
    assert values == {CARD + "e2": 45, CARD + "e3": 0}
    sticky = [(0, Decimal(0)), (30, Decimal(79)), (60, Decimal(79)), (90, None), (120, Decimal(79)), (150, Decimal(0))]
    assert [(edge.xid, edge.after_ms, edge.at_ms) for edge in xid_edges(sticky)] == [
        (0, None, 0),
        (79, 0, 30),
        (0, 120, 150),
    ]


def test_a_counter_that_falls_tells_nothing_of_the_time_between() -> None:
    reading = read_cards(csv_file("dcgm-counter-decreases.csv"))
    series = {one.metric: one.samples for one in reading.series}
    rows = series["DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"]
    assert [step.millijoule for step in energy_steps(rows)] == [None]  # not 21, as a reset would be
    assert [step.millijoule for step in energy_steps(series[ENERGY])] == [None]


def test_honor_labels_false_the_workload_is_in_exported_labels() -> None:
    reading = read_cards(answer_file("prom-query-honorlabels-false.json"), {"worker1"})
    assert {one.uuid: one.workload for one in latest(reading.series)} == {
        CARD + "f0": Workload("tenant-a", "train-1", "main"),
        CARD + "f1": None,
    }
    assert {one.node for one in reading.series} == {"worker1"}


def test_honor_labels_true_the_free_card_carries_the_exporters_pod_and_is_free() -> None:
    reading = read_cards(answer_file("prom-query-honorlabels-true.json"), {"worker1"})
    assert {one.uuid: one.workload for one in latest(reading.series)} == {
        CARD + "f0": Workload("tenant-a", "train-1", "main"),
        CARD + "f1": None,
    }
    assert [one.workload.pod for one in reading.held] == ["train-1"]


def test_a_node_that_names_no_pod_though_pods_hold_cards_is_unmapped() -> None:
    mapped = read_cards(text_file("dcgm-plain-two-gpus-one-pod.prom"))
    bare = read_cards(answer_file("prom-query-honorlabels-true.json")[1:])
    assert unmapped_nodes(mapped.series, mapped.held, {"node-a"}) == frozenset()
    assert unmapped_nodes(bare.series, bare.held, {"worker1"}) == {"worker1"}
    assert unmapped_nodes(bare.series, bare.held, ()) == frozenset()  # nobody holds a card: it is free
