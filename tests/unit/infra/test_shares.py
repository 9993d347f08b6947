"""Shares of cards: charged, physical, MIG profiles, HAMi's annotations."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.shares import (
    FULL,
    HamiFormatError,
    MigFormatError,
    capped_cores,
    floor_millionths,
    hami_fraction,
    hami_share,
    judge_allocation,
    mig_fraction,
    mig_share,
    parse_allocated,
    parse_cordon,
    parse_handshake,
    parse_mig,
    parse_register,
    physical_fractions,
    physical_shares,
    slices_per_card,
    whole_share,
)

DATA = Path(__file__).parents[2] / "data"
PODS = json.loads((DATA / "hami-pod-annotations.json").read_text())
NODES = json.loads((DATA / "hami-node-annotations.json").read_text())
CARD = "GPU-00000000-0000-4000-8000-000000000030"


# ------------------------------------------------------------------------------------------------- charged


@pytest.mark.parametrize(
    ("memory", "cores", "physical", "fraction", "millionths"),
    [
        (20_000, 25, 81_920, Fraction(1, 4), 250_000),
        (60_000, 10, 81_920, Fraction(375, 512), 732_421),
        (40_960, 0, 81_920, Fraction(1, 2), 500_000),
        (10_000, 30, 81_920, Fraction(3, 10), 300_000),
        (0, 0, 81_920, Fraction(1, FULL), 1),
        (1, 0, 10**9, Fraction(1, FULL), 1),
        (147_456, 10, 81_920, Fraction(1), FULL),
        (1, 250, 81_920, Fraction(1), FULL),
    ],
)
def test_hami_share(memory: int, cores: int, physical: int, fraction: Fraction, millionths: int) -> None:
    share = hami_share(memory, cores, physical)
    assert (share.fraction, share.millionths) == (fraction, millionths)
    assert share.compute_uncapped == (cores == 0)
    assert floor_millionths(fraction) == millionths


def test_the_recorded_card_is_exact() -> None:
    assert hami_fraction(60_000, 10, 81_920) == Fraction("0.732421875")


@pytest.mark.parametrize(("memory", "cores", "physical"), [(1, 1, 0), (1, 1, -5), (-1, 1, 10), (1, -1, 10)])
def test_a_share_needs_a_card_and_amounts(memory: int, cores: int, physical: int) -> None:
    with pytest.raises(ValueError, match=r"physical memory|negative"):
        hami_share(memory, cores, physical)


def test_whole_cards_and_capped_cores() -> None:
    assert whole_share(8) == 8 * FULL
    with pytest.raises(ValueError, match="negative"):
        whole_share(-1)
    assert capped_cores(20_000, 81_920) == 25
    assert capped_cores(1, 81_920) == 1
    assert capped_cores(200_000, 81_920) == 100


@given(st.integers(0, 200_000), st.integers(0, 200), st.integers(1, 200_000))
def test_the_charged_share_is_a_floor_between_a_millionth_and_a_card(memory: int, cores: int, physical: int) -> None:
    share = hami_share(memory, cores, physical)
    assert 1 <= share.millionths <= FULL
    assert Fraction(share.millionths, FULL) <= share.fraction < Fraction(share.millionths + 1, FULL)


# --------------------------------------------------------------------------------------------------- MIG


@pytest.mark.parametrize(
    ("text", "compute", "instance", "memory", "attributes", "canonical"),
    [
        ("1g.10gb", 1, 1, 10, (), "1g.10gb"),
        ("nvidia.com/mig-1g.10gb", 1, 1, 10, (), "1g.10gb"),
        ("nvidia.com/mig-1g.10gb.me", 1, 1, 10, ("me",), "1g.10gb+me"),
        ("1g.10gb+me", 1, 1, 10, ("me",), "1g.10gb+me"),
        ("1g.12gb+me.all", 1, 1, 12, ("me.all",), "1g.12gb+me.all"),
        ("1g.24gb+gfx", 1, 1, 24, ("gfx",), "1g.24gb+gfx"),
        ("1c.2g.20gb", 1, 2, 20, (), "1c.2g.20gb"),
        ("7g.80gb", 7, 7, 80, (), "7g.80gb"),
    ],
)
def test_mig_profiles(
    text: str, compute: int, instance: int, memory: int, attributes: tuple[str, ...], canonical: str
) -> None:
    profile = parse_mig(text)
    assert (profile.compute_slices, profile.instance_slices) == (compute, instance)
    assert (profile.memory_gb, profile.attributes, str(profile)) == (memory, attributes, canonical)
    assert parse_mig(profile.resource) == profile


@pytest.mark.parametrize("text", ["", "1g", "10gb", "0g.10gb", "8x.10gb", "2c.1g.10gb", "1g.10gb+", "nvidia.com/gpu"])
def test_what_is_no_profile_is_told(text: str) -> None:
    with pytest.raises(MigFormatError, match=r"expected e\.g\.|do not fit"):
        parse_mig(text)


def test_mig_shares_are_slices_of_seven_or_of_four() -> None:
    assert mig_fraction("1g.10gb") == Fraction(1, 7)
    assert mig_share("1g.10gb").millionths == 142_857
    assert 7 * mig_share("1g.10gb").millionths == 999_999
    assert mig_share("1g.6gb", slices_per_card("NVIDIA A30")).millionths == 250_000
    assert slices_per_card("NVIDIA-H100-80GB-HBM3") == slices_per_card("NVIDIA A300X") == 7
    assert mig_fraction("1c.2g.20gb") == Fraction(1, 7)
    with pytest.raises(ValueError, match="more compute slices"):
        mig_share("7g.24gb", 4)


# --------------------------------------------------------------------------------------------- conservation


def test_physical_shares_of_an_overfull_card() -> None:
    charged = {"a": 600_000, "b": 800_000}
    assert physical_shares(charged) == {"a": 428_571, "b": 571_429}
    assert physical_shares({"a": 600_000, "b": 400_000}) == {"a": 600_000, "b": 400_000}
    exact = physical_fractions({"a": Fraction(6, 10), "b": Fraction(8, 10)})
    assert exact == {"a": Fraction(3, 7), "b": Fraction(4, 7)}


@given(st.dictionaries(st.text(max_size=5), st.integers(1, FULL), max_size=20), st.randoms())
def test_physical_shares_never_exceed_the_card_and_lose_nothing(charged: dict[str, int], rng: object) -> None:
    physical = physical_shares(charged)
    assert sum(physical.values()) == min(FULL, sum(charged.values()))
    assert all(0 <= physical[key] <= charged[key] for key in charged)
    shuffled = list(charged.items())
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert physical_shares(dict(shuffled)) == physical


@given(st.dictionaries(st.text(max_size=5), st.fractions(Fraction(1, FULL), 1), max_size=20))
def test_exact_physical_shares_add_up(charged: dict[str, Fraction]) -> None:
    physical = physical_fractions(charged)
    assert sum(physical.values()) == min(Fraction(1), sum(charged.values()))


# ---------------------------------------------------------------------------------------------------- HAMi


@pytest.mark.parametrize("case", PODS, ids=[case["case"] for case in PODS])
def test_pod_annotations(case: dict) -> None:  # type: ignore[type-arg]
    parsed = parse_allocated(case["value"])
    shown = [[[d.id, d.vendor, d.memory_mib, d.cores] for d in devices] for devices in parsed]
    assert shown == case["containers"]


def test_a_mig_slot_belongs_to_its_card() -> None:
    ((device,),) = parse_allocated(f"{CARD}[1-0],NVIDIA,10240,14:;")
    assert (device.uuid, device.slot) == (CARD, "1-0")
    ((plain,),) = parse_allocated(f"{CARD},NVIDIA,500,5:;")
    assert (plain.uuid, plain.slot) == (CARD, "")


@pytest.mark.parametrize(
    "value",
    ["a,b,c", "a,NVIDIA,-5,0:;", "a,NVIDIA,20k,0:;", "a,NVIDIA,1,2,3:;", "a,NVIDIA,17592186044134,0:;"],
)
def test_a_broken_annotation_says_where(value: str) -> None:
    with pytest.raises(HamiFormatError, match="container 0, device 0"):
        parse_allocated(value)


def test_node_registers() -> None:
    legacy, cut, current = (parse_register(NODES[i]["value"]) for i in range(3))
    assert [(d.devmem_mib, d.split, d.devcore, d.healthy, d.index) for d in legacy.devices] == [
        (32_768, 10, 100, True, 0),
        (32_768, 10, 100, True, 1),
    ]
    assert legacy.problems == ()
    # A record that was cut short: what it says is kept, its health is unknown, and that is told.
    assert [d.healthy for d in cut.devices] == [False, None]
    assert "cut short" in cut.problems[0]
    # Zero values are left out of the JSON: no health is unhealthy, no index is 0.
    assert [(d.healthy, d.index, d.numa, d.mode) for d in current.devices] == [
        (True, 0, 0, "hami-core"),
        (False, 1, 0, "hami-core"),
    ]


def test_bad_registers() -> None:
    with pytest.raises(HamiFormatError, match="not JSON"):
        parse_register("[{")
    with pytest.raises(HamiFormatError, match="no record could be read"):
        parse_register("a,b:")
    register = parse_register('[{"devmem": 1}, {"id": "GPU-1", "devmem": "x"}, {"id": "GPU-2", "devmem": 5}]')
    assert [d.uuid for d in register.devices] == ["GPU-2"]
    assert len(register.problems) == 2
    assert parse_register("").devices == ()
    nine = parse_register("GPU-1,10,5,100,T,1,true,3,mig:").devices[0]
    assert (nine.index, nine.mode, nine.numa) == (3, "mig", 1)


def test_handshake_and_cordon() -> None:
    reported = parse_handshake(NODES[3]["value"])
    requesting = parse_handshake(NODES[4]["value"])
    assert requesting.at == datetime(2026, 1, 1, 4, 6, 57, tzinfo=UTC)
    late = datetime(2026, 1, 1, 4, 30, tzinfo=UTC)
    assert reported.available(late)
    assert not requesting.available(late)
    assert requesting.available(requesting.at + timedelta(minutes=5))
    assert not parse_handshake("Deleted_2026.01.01 00:00:00").available(late)
    assert parse_handshake("Reported").available(late)
    with pytest.raises(HamiFormatError, match="starts with none"):
        parse_handshake("Hello")
    with pytest.raises(HamiFormatError, match="not a time"):
        parse_handshake("Reported_yesterday")
    assert len(parse_cordon(NODES[5]["value"])) == 2
    assert parse_cordon("") == frozenset()


def test_an_allocation_is_trusted_only_when_everything_speaks_for_it() -> None:
    good = {"hami.io/vgpu-devices-allocated": f"{CARD},NVIDIA,500,5:;", "hami.io/bind-phase": "success"}
    verdict = judge_allocation(annotations=good, scheduler_name="hami-scheduler", registered={CARD})
    assert verdict.trusted
    assert verdict.containers[0][0].memory_mib == 500
    for written, scheduler, registered, says in (
        (good, "default-scheduler", {CARD}, "not by HAMi"),
        (good | {"hami.io/bind-phase": "allocating"}, "hami-scheduler", {CARD}, "bind-phase"),
        ({**good, "hami.io/bind-phase": "failed"}, "hami-scheduler", {CARD}, "'failed'"),
        (good, "hami-scheduler", {"GPU-other"}, "does not know"),
        (good | {"hami.io/vgpu-devices-allocated": "x"}, "hami-scheduler", {CARD}, "cannot be read"),
    ):
        verdict = judge_allocation(annotations=written, scheduler_name=scheduler, registered=registered)
        assert not verdict.trusted
        assert any(says in reason for reason in verdict.reasons), (says, verdict.reasons)
