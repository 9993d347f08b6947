"""From sums to a bill: exact amounts, what is unpriced, and lines that add up."""

import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing.rates import CPU, MEMORY, Rate, RateKey, Resource
from billing.rating import Credit, HostPart, Kind, Line, Subject, UsageSum, credit_lines, draw_up, rate
from portal.kernel.clock import Interval
from tests.unit.infra.pods import at

HOUR = 3_600_000
CARD = 1_000_000
TEAM = Subject("acme", "t-acme", "dep-1", "cc-1")
H100 = RateKey(Resource.GPU, "h100", "whole")
SHARE = RateKey(Resource.GPU, "a100", "hami")
SLICE = RateKey(Resource.GPU, "h100", "mig", "1g.10gb")
DAY = Interval(at(0), at(1440))


def priced(key: RateKey, price: str | None, **more: Any) -> Rate:
    return Rate(f"rate-{key}", key, None if price is None else Decimal(price), at(-10_000), **more)


def used(key: RateKey, ms: int, share: int = CARD, hosts: tuple[HostPart, ...] = (), **more: Any) -> UsageSum:
    return UsageSum(more.pop("subject", TEAM), key, more.pop("segment", DAY), ms, ms * share, hosts, **more)


def test_a_card_for_an_hour() -> None:
    (line,) = rate([used(H100, HOUR)], [priced(H100, "2.50")])
    assert (line.kind, line.quantity, line.unit) == (Kind.GPU, Decimal("1.000000000000"), "gpu-hour")
    assert (line.unit_price, line.amount, line.rate_id) == (Decimal("2.5000000000"), Decimal("2.5"), "rate-h100 whole")


def test_a_share_pays_its_part_and_a_slice_its_own_price() -> None:
    lines = rate(
        [used(SHARE, 4 * HOUR, 250_000), used(SLICE, 2 * HOUR, 142_857)], [priced(SHARE, "2"), priced(SLICE, "0.40")]
    )
    assert [(line.unit, line.quantity, line.amount) for line in lines] == [
        ("gpu-hour", Decimal(1), Decimal(2)),
        ("instance-hour", Decimal(2), Decimal("0.8")),
    ]


def test_a_price_that_does_not_divide_stays_exact_to_sixteen_decimals() -> None:
    (line,) = rate([used(H100, 1000)], [priced(H100, "1")])
    assert line.amount == Decimal("0.0002777777777778")
    assert line.quantity == Decimal("0.000277777778")


def test_the_price_on_the_line_is_the_one_that_was_used() -> None:
    (line,) = rate([used(H100, 3 * HOUR)], [priced(H100, "1.0000000001", margin=Decimal("0.1234"))])
    assert line.unit_price == Decimal("1.1234000001")
    assert line.amount == 3 * Decimal("1.1234000001")


def test_without_a_rate_the_time_is_unpriced_not_free() -> None:
    lines = rate([used(H100, HOUR), used(SHARE, HOUR)], [priced(SHARE, "0")])
    bill = draw_up(lines, "EUR")
    assert [line.line.key for line in bill.lines] == [SHARE]
    assert [line.key for line in bill.unpriced] == [H100]
    assert not bill.can_close
    assert bill.unpriced[0].reason == (
        "h100 whole is not in the rate card from 2026-05-04T10:00:00Z until 2026-05-05T10:00:00Z; "
        "enter a rate, then the period can be closed"
    )
    assert (
        draw_up(rate([used(H100, HOUR)], [priced(H100, None)]), "EUR")
        .unpriced[0]
        .reason.startswith("h100 whole has no price")
    )


HOST = HostPart(cpu_millicores=12_000, memory_mib=100 * 1024, share=CARD, milliseconds=HOUR)


def test_only_what_goes_beyond_the_included_host_is_charged() -> None:
    gpu = priced(H100, "2", included_cpu_millicores=8_000, included_memory_mib=64 * 1024)
    rates = [gpu, priced(CPU, "0.02"), priced(MEMORY, "0.003")]
    lines = rate([used(H100, HOUR, hosts=(HOST,))], rates)
    assert [(line.kind, line.quantity, line.amount) for line in lines] == [
        (Kind.GPU, Decimal(1), Decimal(2)),
        (Kind.CPU, Decimal(4), Decimal("0.08")),
        (Kind.MEMORY, Decimal(36), Decimal("0.108")),
    ]
    assert [line.gpu_rate_id for line in lines] == ["", "rate-h100 whole", "rate-h100 whole"]


def test_a_share_brings_along_its_part_of_the_included_host() -> None:
    gpu = priced(SHARE, "2", included_cpu_millicores=8_000, included_memory_mib=None)
    host = HostPart(cpu_millicores=3_000, memory_mib=10**6, share=250_000, milliseconds=HOUR)
    lines = rate([used(SHARE, HOUR, 250_000, (host,))], [gpu, priced(CPU, "1")])
    assert [(line.kind, line.quantity) for line in lines] == [(Kind.GPU, Decimal("0.25")), (Kind.CPU, Decimal(1))]


def test_one_small_device_does_not_pay_for_a_large_one() -> None:
    """Excess is found per shape, not on the sum: 2 cores too many and 2 too few are 2 too many."""
    gpu = priced(H100, "2", included_cpu_millicores=8_000, included_memory_mib=None)
    hosts = (HostPart(10_000, 0, CARD, HOUR), HostPart(6_000, 0, CARD, HOUR))
    lines = rate([used(H100, 2 * HOUR, hosts=hosts)], [gpu, priced(CPU, "1")])
    assert lines[1].quantity == 2


def test_excess_without_a_price_blocks_the_close() -> None:
    lines = rate([used(H100, HOUR, hosts=(HOST,))], [priced(H100, "2", included_cpu_millicores=0)])
    assert [line.kind for line in draw_up(lines, "EUR").unpriced] == [Kind.CPU]


def test_equal_sums_become_one_line_and_nothing_used_none() -> None:
    lines = rate([used(H100, HOUR), used(H100, HOUR), used(SHARE, 0)], [priced(H100, "2")])
    assert [(line.quantity, line.amount) for line in lines] == [(Decimal(2), Decimal(4))]
    idle = rate([used(H100, HOUR, kind=Kind.IDLE), used(H100, HOUR)], [priced(H100, "2")])
    assert [line.kind for line in idle] == [Kind.GPU, Kind.IDLE]


def test_a_price_change_is_two_lines() -> None:
    morning, evening = Interval(at(0), at(720)), Interval(at(720), at(1440))
    rates = [
        Rate("old", H100, Decimal(2), at(-99), at(720)),
        Rate("new", H100, Decimal(3), at(720)),
    ]
    sums = [used(H100, HOUR, segment=morning), used(H100, HOUR, segment=evening)]
    assert [(line.rate_id, line.amount) for line in rate(sums, rates)] == [("old", Decimal(2)), ("new", Decimal(3))]
    with pytest.raises(ValueError, match="cut the usage there"):
        rate([used(H100, HOUR)], rates)


def test_corrections_are_signed() -> None:
    earlier = Interval(at(-3000), at(-1560))
    lines = rate([used(H100, -HOUR, segment=earlier), used(H100, 2 * HOUR)], [priced(H100, "2.50")])
    assert draw_up(lines, "EUR").total == Decimal("2.50")
    assert [line.amount for line in lines] == [Decimal("-2.5"), Decimal(5)]


def test_credits_are_lines_of_their_own() -> None:
    credit = Credit(TEAM, DAY, Decimal("0.333"), "card fell off the bus at 10:12")
    bill = draw_up(rate([used(H100, HOUR)], [priced(H100, "2.50")]) + credit_lines([credit]), "EUR")
    assert [line.amount for line in bill.lines] == [Decimal("2.50"), Decimal("-0.33")]
    assert bill.total == Decimal("2.17")
    assert bill.lines[1].line.reason == "card fell off the bus at 10:12"
    with pytest.raises(ValueError, match="positive"):
        Credit(TEAM, DAY, Decimal(0), "")


def test_a_bill_in_yen() -> None:
    bill = draw_up(rate([used(H100, HOUR), used(SHARE, HOUR)], [priced(H100, "300.4"), priced(SHARE, "200.4")]), "JPY")
    assert [line.amount for line in bill.lines] == [201, 300]
    assert bill.total == 501


# --- always ---

KEYS = [H100, SHARE, SLICE]
usage_sums = st.lists(
    st.builds(
        used,
        key=st.sampled_from(KEYS),
        ms=st.integers(-(10**9), 10**12),
        share=st.integers(1, CARD),
        hosts=st.lists(
            st.builds(
                HostPart, st.integers(0, 10**5), st.integers(0, 10**6), st.integers(1, CARD), st.integers(0, 10**10)
            ),
            max_size=3,
        ).map(tuple),
        subject=st.builds(Subject, st.sampled_from(["acme", "blue"]), st.sampled_from(["n", "m"])),
    ),
    max_size=12,
)
RATES = [
    priced(H100, "2.5137", included_cpu_millicores=8000, included_memory_mib=65536),
    priced(SHARE, "1.99", margin=Decimal("0.07")),
    priced(SLICE, "0.41", included_cpu_millicores=0, included_memory_mib=0),
    priced(CPU, "0.0213"),
    priced(MEMORY, "0.00317"),
]


def amount(line: Line) -> Fraction:
    assert line.amount is not None
    return Fraction(line.amount)


@settings(max_examples=200)
@given(usage_sums, st.sampled_from(["EUR", "JPY", "KWD"]), st.lists(st.decimals("0.0001", 999, places=4), max_size=3))
def test_the_lines_add_up_to_the_total(sums: list[UsageSum], currency: str, credited: list[Decimal]) -> None:
    lines = rate(sums, RATES) + credit_lines(Credit(TEAM, DAY, value, "credit") for value in credited)
    bill = draw_up(lines, currency)
    unit = Fraction(1, 10 ** {"EUR": 2, "JPY": 0, "KWD": 3}[currency])
    assert bill.can_close
    assert sum((Fraction(line.amount) for line in bill.lines), Fraction(0)) == Fraction(bill.total)
    assert Fraction(bill.total) == round(sum(map(amount, lines), Fraction(0)) / unit) * unit
    assert all(abs(Fraction(line.amount) - amount(line.line)) < unit for line in bill.lines)


@settings(max_examples=100)
@given(usage_sums, st.randoms(use_true_random=False))
def test_the_same_sums_in_any_order_give_the_same_bill(sums: list[UsageSum], order: random.Random) -> None:
    shuffled = list(sums)
    order.shuffle(shuffled)
    assert rate(shuffled, RATES) == rate(sums, RATES)


@settings(max_examples=100)
@given(usage_sums, st.lists(st.integers(0, 1), min_size=12, max_size=12))
def test_rating_the_parts_is_rating_the_whole(sums: list[UsageSum], sides: list[int]) -> None:
    """Exact amounts are additive, up to the sixteenth decimal of each line."""
    parts = [[one for one, side in zip(sums, sides, strict=False) if side == which] for which in (0, 1)]
    lines = [rate(part, RATES) for part in parts]
    whole = rate(sums, RATES)
    together = sum((amount(line) for part in lines for line in part), Fraction(0))
    slack = Fraction(len(whole) + sum(map(len, lines)), 10**16)
    assert abs(together - sum(map(amount, whole), Fraction(0))) <= slack
