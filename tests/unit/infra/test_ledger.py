"""What is left of a node: never negative, and never more than there is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from infra.ledger import UNKNOWN_ZONE, CardCapacity, NodeCapacity, Taken, node_capacity, node_free, sole_zone

GPU = "nvidia.com/gpu"


def test_each_kind_hands_out_its_own() -> None:
    resources = {GPU: "2", "nvidia.com/mig-1g.10gb": "14"}
    assert node_capacity(sharing="whole", allocatable={GPU: "8"}, cards=8, unavailable=0).cards == 8
    mixed = node_capacity(sharing="mig", allocatable=resources, cards=4, unavailable=0)
    assert (mixed.cards, mixed.slices) == (2, {"1g.10gb": 14})
    single = node_capacity(sharing="mig", allocatable={GPU: "56"}, cards=8, unavailable=0, mig_profile="1g.18gb")
    assert (single.cards, single.slices) == (0, {"1g.18gb": 56})
    hami = node_capacity(sharing="hami", allocatable={GPU: "80"}, cards=8, unavailable=0, shared={})
    assert hami == NodeCapacity()
    assert node_capacity(sharing="timeslice", allocatable={GPU: "32"}, cards=8, unavailable=0) == NodeCapacity()
    assert node_capacity(sharing="whole", allocatable={}, cards=8, unavailable=1, dra=True).cards == 7


def test_slices_are_taken_by_profile() -> None:
    rows = [Taken(profile="1g.18gb", slices=2), Taken(profile="2g.35gb", slices=1)]
    free = node_free(NodeCapacity(slices={"1g.18gb": 56}), rows)
    assert free.slices == {"1g.18gb": 54}


def test_an_unhealthy_card_has_nothing_left() -> None:
    free = node_free(NodeCapacity(shared={"GPU-a": CardCapacity(100, 100, healthy=False)}), [])
    assert (free.shared["GPU-a"].memory_mib, free.shared["GPU-a"].slots) == (0, 0)


def test_who_shares_with_several_zones_shares_with_nobody() -> None:
    assert sole_zone(frozenset()) == ""
    assert sole_zone(frozenset({"z"})) == "z"
    assert sole_zone(frozenset({"z", "y"})) == UNKNOWN_ZONE


small = st.integers(0, 200)
taken = st.builds(Taken, uuid=st.sampled_from(["", "GPU-a", "GPU-b"]), cards=small, memory_mib=small, cores=small,
                  pods=st.integers(0, 12), zones=st.frozensets(st.sampled_from("yz")))  # fmt: skip


@given(st.integers(0, 16), st.lists(taken, max_size=6, unique_by=lambda t: t.uuid))
def test_left_plus_taken_is_at_least_what_there_is(cards: int, rows: list[Taken]) -> None:
    shared = {"GPU-a": CardCapacity(150, 100), "GPU-b": CardCapacity(100, 100)}
    free = node_free(NodeCapacity(cards=cards, shared=shared), rows)
    held = sum(row.cards for row in rows if not row.uuid)
    assert 0 <= free.cards <= cards
    assert free.cards == max(0, cards - held)
    for uuid, card in shared.items():
        mine = [row for row in rows if row.uuid == uuid]
        left = free.shared[uuid]
        assert 0 <= left.memory_mib <= card.memory_mib
        assert left.memory_mib + sum(row.memory_mib for row in mine) >= card.memory_mib
        assert left.cores + sum(row.cores for row in mine) >= card.cores
