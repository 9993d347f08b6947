"""What HAMi writes on pods and nodes: the records, and which of them are believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.hami_record import HamiGrant, HamiRecord, believed_record, parse_record
from infra.hami_register import CORDON, cordoned, parse_register
from infra.holdings import Hold, held_by
from tests.unit.infra.pods import container, pod, seen

DATA = Path(__file__).parents[2] / "data"
PODS = json.loads((DATA / "hami-pod-annotations.json").read_text())
NODES = json.loads((DATA / "hami-node-annotations.json").read_text())
CARD = "GPU-00000000-0000-4000-8000-000000000030"
RECORD = f"{CARD},NVIDIA,500,5:;"


# --- the record of a pod ---


@pytest.mark.parametrize("case", PODS, ids=[case["case"] for case in PODS])
def test_records(case: dict[str, Any]) -> None:
    shown = [
        [[f"{d.uuid}[{d.slot}]" if d.slot else d.uuid, d.vendor, d.memory_mib, d.cores] for d in devices]
        for devices in parse_record(case["value"])
    ]
    assert shown == case["containers"]


def test_no_record_has_no_grants() -> None:
    assert parse_record("") == ()
    assert HamiRecord().grants == ()


def test_a_mig_slot_belongs_to_its_card() -> None:
    assert parse_record(f"{CARD}[1-0],NVIDIA,10240,14:;") == ((HamiGrant(CARD, "NVIDIA", 10240, 14, "1-0"),),)
    assert parse_record(RECORD) == ((HamiGrant(CARD, "NVIDIA", 500, 5),),)


@pytest.mark.parametrize(
    "value",
    [
        "GPU-1,NVIDIA,5", "GPU-1,NVIDIA,-5,0:;", "GPU-1,NVIDIA,20k,0:;", "GPU-1,NVIDIA,17592186044134,5:;",
        "GPU-1,N,5,101:;", "GPU-1,N,\u0665,1:;",
    ],
)  # fmt: skip
def test_a_malformed_record_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="HAMi device"):
        parse_record(value)


# --- whether it is believed ---


def granted(record: str = RECORD, phase: str = "success", scheduler: str = "hami-scheduler") -> Any:
    annotations = {"hami.io/vgpu-devices-allocated": record, "hami.io/bind-phase": phase}
    requests = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "500"}
    asking = pod(scheduled=0, scheduler=scheduler, containers=[container(requests=requests)], annotations=annotations)
    return seen(asking)


def test_a_record_that_everything_speaks_for_is_believed() -> None:
    record = believed_record(granted(), {CARD})
    assert (record.grants, record.doubt) == ((HamiGrant(CARD, "NVIDIA", 500, 5),), "")


@pytest.mark.parametrize(
    ("evidence", "registered", "says"),
    [
        (granted(scheduler="default-scheduler"), {CARD}, "scheduler is 'default-scheduler', not HAMi's"),
        (granted(scheduler="default-scheduler", phase="allocating"), {CARD}, "not HAMi's"),
        (granted(phase="failed"), {CARD}, "hami.io/bind-phase is 'failed'"),
        (granted(phase=""), {CARD}, "hami.io/bind-phase is ''"),
        (granted(), {"GPU-other"}, f"does not know {CARD}"),
        (granted(), frozenset(), f"does not know {CARD}"),
        (granted(record="x"), {CARD}, "can't be read"),
    ],
)
def test_a_record_that_something_speaks_against_is_not(evidence: Any, registered: set[str], says: str) -> None:
    record = believed_record(evidence, registered)
    assert record.grants == ()
    assert says in record.doubt


def test_a_pod_that_is_still_being_bound_has_no_record_yet() -> None:
    assert believed_record(granted(phase="allocating"), {CARD}) == HamiRecord()
    assert believed_record(granted(record=""), {CARD}) == HamiRecord()


@pytest.mark.parametrize(
    ("evidence", "holds"),
    [
        (granted(), (Hold(uuid=CARD, memory_mib=500, cores=5),)),
        (granted(scheduler="default-scheduler"), (Hold(unpinned=1),)),
        (granted(phase="allocating"), (Hold(unpinned=1),)),
        (granted(phase="failed"), (Hold(unpinned=1),)),
        (granted(record="x"), (Hold(unpinned=1),)),
    ],
)
def test_the_ledger_takes_a_record_that_is_not_believed_for_a_share_of_an_unknown_card(
    evidence: Any, holds: tuple[Hold, ...]
) -> None:
    assert held_by(evidence) == holds


# --- the register of a node ---


def test_recorded_registers() -> None:
    legacy, current = parse_register(NODES[0]["value"]), parse_register(NODES[2]["value"])
    assert [(card.memory_mib, card.slots, card.cores, card.healthy, card.index) for card in legacy] == [
        (32_768, 10, 100, True, 0),
        (32_768, 10, 100, True, 1),
    ]
    # Zero values are left out of the JSON: no health is unhealthy, no index is 0.
    assert [(card.healthy, card.index, card.mode) for card in current] == [
        (True, 0, "hami-core"),
        (False, 1, "hami-core"),
    ]


def test_a_register_that_was_cut_short_is_refused_as_a_whole() -> None:
    with pytest.raises(ValueError, match="expected UUID,count,MiB,cores,type,numa,health"):
        parse_register(NODES[1]["value"])


def test_the_long_form_has_index_and_mode() -> None:
    (card,) = parse_register("GPU-1,10,5,100,T,1,true,3,mig:")
    assert (card.index, card.mode) == (3, "mig")


def test_the_recorded_cordon() -> None:
    assert len(cordoned({CORDON: NODES[5]["value"]})) == 2
