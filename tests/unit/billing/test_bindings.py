"""Which card a device is: written once, and never more than was seen."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from billing.metering.holdings import Holding, Mode
from billing.services.bindings import Card, Device, Seen, bound

GPU = "nvidia.com/gpu"


def whole(count: int) -> list[Holding]:
    return [Holding(GPU, ordinal, Mode.WHOLE, "h100", Fraction(1)) for ordinal in range(count)]


def slices(profile: str, count: int) -> list[Holding]:
    resource = f"nvidia.com/mig-{profile}"
    return [Holding(resource, n, Mode.MIG, "h100", Fraction(1, 7), profile=profile) for n in range(count)]


def seen(*names: str, last: float = 0) -> list[Seen]:
    return [Seen(Card(name), "", last) for name in names]


def test_cards_go_to_ordinals_in_the_order_of_their_names() -> None:
    assert bound(whole(2), {}, seen("GPU-b", "GPU-a")) == {(GPU, 0): Card("GPU-a"), (GPU, 1): Card("GPU-b")}


def test_fewer_sightings_than_cards_bind_what_is_known_and_later_ones_the_rest() -> None:
    first = bound(whole(2), {}, seen("GPU-b"))
    assert first == {(GPU, 0): Card("GPU-b")}
    assert bound(whole(2), first, seen("GPU-a", "GPU-b")) == {(GPU, 0): Card("GPU-b"), (GPU, 1): Card("GPU-a")}


def test_more_sightings_than_cards_bind_the_latest() -> None:
    found = [*seen("GPU-a", last=1), *seen("GPU-b", last=2)]
    assert bound(whole(1), {}, found) == {(GPU, 0): Card("GPU-b")}


def test_a_slice_takes_only_an_instance_of_its_profile() -> None:
    instances = [
        Seen(Card("GPU-a", "7"), "2g.20gb", 0), Seen(Card("GPU-a", "9"), "1g.10gb", 0), Seen(Card("GPU-b"), "", 0)
    ]  # fmt: skip
    assert bound(slices("1g.10gb", 2), {}, instances) == {("nvidia.com/mig-1g.10gb", 0): Card("GPU-a", "9")}
    assert bound(whole(1), {}, instances) == {(GPU, 0): Card("GPU-b")}


def test_shares_of_hami_and_of_time_are_left_alone() -> None:
    held = [Holding(GPU, 0, mode, "h100", Fraction(1, 2)) for mode in (Mode.HAMI, Mode.TIMESLICE)]
    assert bound(held, {}, seen("GPU-a")) == {}


names = st.lists(st.sampled_from("abcdef"), max_size=8)


@given(st.integers(1, 4), st.lists(names, max_size=5))
def test_whatever_is_seen_a_binding_never_changes_and_no_card_is_bound_twice(
    count: int, rounds: list[list[str]]
) -> None:
    written: dict[Device, Card] = {}
    ever: list[Seen] = []
    for number, found in enumerate(rounds):
        ever += [Seen(Card(name), "", number) for name in found]
        after = bound(whole(count), written, ever)
        assert written.items() <= after.items()
        assert len(set(after.values())) == len(after) <= count
        assert len(after) == min(count, len({one.card for one in ever}))
        written = after
