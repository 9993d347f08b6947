"""Nodes as their objects say: kinds of sharing, physical cards, and what can't be handed out."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from infra.card_catalogue import instances_per_card, known_card, split_product
from infra.hami_register import cordoned, parse_register
from infra.node_reading import read_node
from tests.support.replay import DATA


def node(
    labels: dict[str, str] | None = None, resources: dict[str, str] | None = None, **changes: Any
) -> dict[str, Any]:
    resources = {"nvidia.com/gpu": "8"} if resources is None else resources
    return {
        "metadata": {
            "name": "n", "uid": "u", "resourceVersion": "7", "labels": {
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559",
                "nvidia.com/gpu.count": "8", **(labels or {}),
            }, "annotations": changes.pop("annotations", {}),
        },
        "spec": {"unschedulable": changes.pop("unschedulable", False), "taints": changes.pop("taints", None)},
        "status": {
            "capacity": resources, "allocatable": changes.pop("allocatable", resources),
            "conditions": [{"type": "Ready", "status": changes.pop("ready", "True"), "message": "because",
                            "lastTransitionTime": "2026-11-29T16:30:32Z"}],
        },
    }  # fmt: skip


def recorded(name: str) -> dict[str, Any]:
    items = json.loads((DATA / "nodes.json").read_text())["items"]
    return copy.deepcopy(next(item for item in items if item["metadata"]["name"] == name))


@pytest.mark.parametrize(("name", "sharing"), [("whole-0000", "whole"), ("hami-0001", "hami"), ("mig-0000", "mig")])
def test_recorded_nodes_have_eight_cards_each(name: str, sharing: str) -> None:
    facts = read_node(recorded(name))
    assert (facts.sharing, facts.cards, facts.unavailable, facts.ready) == (sharing, 8, 0, True)
    assert facts.architecture == ("Ampere" if sharing == "hami" else "Hopper")


def test_a_hami_nodes_split_number_is_no_number_of_cards() -> None:
    facts = read_node(recorded("hami-0000"))
    assert facts.capacity["nvidia.com/gpu"] == "80"
    assert facts.cards == len(facts.registered) == 8


def test_unhealthy_and_cordoned_hami_cards_are_unavailable() -> None:
    thing = recorded("hami-0000")
    register = json.loads(thing["metadata"]["annotations"]["hami.io/node-nvidia-register"])
    del register[3]["health"]
    thing["metadata"]["annotations"] |= {
        "hami.io/node-nvidia-register": json.dumps(register),
        "hami.io/device-cordon": register[5]["id"],
    }
    facts = read_node(thing)
    assert facts.unavailable == 2
    assert facts.reason == "1 of 8 cards unhealthy in HAMi's register; 1 of 8 cards cordoned in HAMi"
    assert [card.index for card in facts.registered if not card.healthy] == [3, 5]


def test_a_register_that_cannot_be_read_makes_the_cards_unavailable_not_gone() -> None:
    thing = recorded("hami-0000")
    thing["metadata"]["annotations"]["hami.io/node-nvidia-register"] = "[{"
    facts = read_node(thing)
    assert (facts.cards, facts.unavailable, facts.registered) == (8, 8, ())
    assert "can't be read" in facts.reason


def test_time_slicing_does_not_multiply_cards() -> None:
    facts = read_node(node({"nvidia.com/gpu.replicas": "4"}, {"nvidia.com/gpu": "32"}))
    assert (facts.sharing, facts.cards, facts.unavailable) == ("timeslice", 8, 0)


def test_strategy_single_counts_slices_as_cards_and_we_do_not() -> None:
    facts = read_node(
        node(
            {"nvidia.com/gpu.product": "NVIDIA-H200-MIG-1g.18gb", "nvidia.com/gpu.memory": "18000",
             "nvidia.com/gpu.count": "56"},
            {"nvidia.com/gpu": "56"}, allocatable={"nvidia.com/gpu": "49"},
        )
    )  # fmt: skip
    assert (facts.sharing, facts.mig_profile, facts.product) == ("mig", "1g.18gb", "NVIDIA-H200")
    assert (facts.cards, facts.unavailable, facts.memory_mib) == (8, 1, 143771)


def test_mixed_strategy_counts_cut_cards_and_whole_ones() -> None:
    resources = {"nvidia.com/gpu": "2", "nvidia.com/mig-1g.10gb": "28", "nvidia.com/mig-3g.40gb": "4"}
    facts = read_node(node({"nvidia.com/gpu.count": "8"}, resources))
    assert (facts.sharing, facts.cards, facts.unavailable) == ("mig", 8, 0)


def test_falling_allocatable_is_unavailable_cards() -> None:
    facts = read_node(node(allocatable={"nvidia.com/gpu": "7"}))
    assert (facts.cards, facts.unavailable, facts.reason) == (8, 1, "1 of 8 cards not allocatable")


def test_a_device_plugin_that_is_gone_leaves_the_cards_there_but_unavailable() -> None:
    facts = read_node(node(resources={"nvidia.com/gpu": "0"}))
    assert (facts.cards, facts.unavailable) == (8, 8)


@pytest.mark.parametrize(
    ("changes", "ready", "reason"),
    [
        ({"ready": "Unknown"}, None, "node lost: Ready is Unknown"),
        ({"ready": "False"}, False, "node suspect: Ready is False: because"),
        ({"unschedulable": True}, True, "node cordoned"),
    ],
)
def test_the_nodes_state_takes_all_its_cards(changes: dict[str, Any], ready: bool | None, reason: str) -> None:
    facts = read_node(node(**changes))
    assert (facts.ready, facts.unavailable, facts.reason) == (ready, 8, reason)


def test_labels_are_kept_by_allow_list() -> None:
    facts = read_node(node({"internal.example/owner": "x", "pool": "gpu"}))
    assert "internal.example/owner" not in facts.stored_labels()
    assert facts.stored_labels(frozenset({"pool"}))["pool"] == "gpu"


def test_another_version_of_the_same_is_no_change() -> None:
    one, two = node(), node()
    two["metadata"]["resourceVersion"] = "8"
    assert read_node(one).digest == read_node(two).digest
    assert read_node(node(ready="False")).digest != read_node(one).digest


def test_a_node_without_cards_has_none() -> None:
    thing = node(resources={})
    thing["metadata"]["labels"] = {}
    assert not read_node(thing).has_cards


def test_a_node_without_a_uid_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match="node n: metadata"):
        read_node({"metadata": {"name": "n"}})


# ---- HAMi's register ----------------------------------------------------------------------------------------


def test_both_forms_of_the_register_say_the_same() -> None:
    legacy = parse_register("GPU-a,10,32768,100,NVIDIA-Tesla V100,0,true:GPU-b,10,32768,100,NVIDIA-Tesla V100,0,false:")
    current = parse_register(
        '[{"id":"GPU-a","count":10,"devmem":32768,"devcore":100,"type":"NVIDIA-Tesla V100","health":true},'
        '{"id":"GPU-b","index":1,"count":10,"devmem":32768,"devcore":100,"type":"NVIDIA-Tesla V100"}]'
    )
    assert legacy == current
    assert [card.healthy for card in current] == [True, False]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("GPU-a,10,32768,100,V100,0,true:GPU-b,10,3,0,", "5 fields|4 fields"),
        ('[{"count": 1}]', "needs an id"),
        ('[{"id": "GPU-a", "devmem": "1"}]', "devmem is a whole number"),
        ('[{"id": "GPU-a"}, {"id": "GPU-a"}]', "registered twice"),
        ("[{", "no JSON"),
    ],
)
def test_a_malformed_register_is_told(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_register(text)


def test_the_cordon_is_a_list_of_cards() -> None:
    assert cordoned({"hami.io/device-cordon": "GPU-a, GPU-b,"}) == {"GPU-a", "GPU-b"}
    assert cordoned({}) == frozenset()


# ---- the catalogue ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "product", "count"),
    [
        ("1g.10gb", "NVIDIA-H100-80GB-HBM3", 7),
        ("1g.20gb", "NVIDIA-H100-80GB-HBM3", 4),
        ("2g.20gb", "NVIDIA-H100-80GB-HBM3", 3),
        ("3g.40gb", "NVIDIA-H100-80GB-HBM3", 2),
        ("4g.40gb", "NVIDIA-H100-80GB-HBM3", 1),
        ("7g.80gb", "NVIDIA-H100-80GB-HBM3", 1),
        ("1g.18gb", "NVIDIA-H200", 7),
        ("1g.5gb", "NVIDIA-A100-SXM4-40GB", 7),
        ("1g.6gb", "NVIDIA-A30", 4),
        ("2g.12gb", "NVIDIA-A30", 2),
    ],
)
def test_instances_of_a_profile_per_card(profile: str, product: str, count: int) -> None:
    assert instances_per_card(profile, product) == count


def test_products_are_known_with_dashes_and_blanks() -> None:
    dashed, blank = known_card("NVIDIA-L40S"), known_card("NVIDIA L40S")
    assert dashed is blank is not None
    assert known_card("NVIDIA-GeForce-RTX-9999") is None
    assert split_product("NVIDIA-H100-80GB-HBM3-SHARED") == ("NVIDIA-H100-80GB-HBM3", "")
