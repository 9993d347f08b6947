"""The truth table: a recorded watch of a cluster, replayed, against the GPU-seconds that are known to be
true.

`tests/data/recorded/truth.json` was computed from the pods' own times: whole cards, HAMi shares, MIG slices,
a job of 40 s, pods of 6 s, one deleted and made again under its name, a slow start, one that never ran. Its
figures are compared as exact fractions; its MIG figures are slices, 7 to a card.
"""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing.metering.buckets import Account, Capacity, account, load_of
from billing.metering.holdings import CardFacts, Mode, NodeCards, holdings
from billing.metering.intervals import Allocation, Bucket, Claim, Surroundings, allocations, held_ms
from billing.metering.usage import cut
from infra.evidence import PodEvidence, merge_all
from infra.pod_reading import dump_evidence, load_evidence, read_pod
from portal.kernel.clock import Interval, parse_rfc3339

RECORDED = Path(__file__).parents[2] / "data" / "recorded"
WATERMARK = datetime(2026, 11, 29, 16, 45, 42, tzinfo=UTC)
START = datetime(2026, 11, 29, 16, 31, tzinfo=UTC)
CLAIM = Claim("tenant", datetime(2026, 11, 1, tzinfo=UTC))

Event = dict[str, Any]


@cache
def truth() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((RECORDED / "truth.json").read_text(), parse_float=Decimal)
    return data


@cache
def events() -> tuple[Event, ...]:
    return tuple(json.loads(line) for line in (RECORDED / "pods-watch.jsonl").read_text().splitlines())


@cache
def nodes() -> dict[str, NodeCards]:
    """The cards of the recorded nodes, from their labels, HAMi's register and their resources."""
    found = {}
    for node in json.loads((RECORDED / "nodes.json").read_text())["items"]:
        meta, labels = node["metadata"], node["metadata"]["labels"]
        register = json.loads(meta["annotations"].get("hami.io/node-nvidia-register", "[]"))
        is_mig = any(key.startswith("nvidia.com/mig-") for key in node["status"]["allocatable"])
        found[meta["name"]] = NodeCards(
            node=meta["name"],
            gpu_type=labels["nvidia.com/gpu.product"],
            mode=Mode.HAMI if register else Mode.MIG if is_mig else Mode.WHOLE,
            memory_mib=int(labels["nvidia.com/gpu.memory"]),
            cards=tuple(CardFacts(card["id"], int(card["devmem"])) for card in register),
        )
    return found


def sight(event: Event) -> PodEvidence:
    """An event as the watcher reads it; the recording does not tell when each arrived."""
    return read_pod(event["object"], seen_at=WATERMARK, deleted=event["type"] == "DELETED")


def metered(pods: dict[str, PodEvidence]) -> list[Allocation]:
    around = Surroundings(until=WATERMARK, claims=(CLAIM,))
    return [
        allocation
        for pod in pods.values()
        if pod.asks_for_gpus and pod.node
        for allocation in allocations(pod, holdings(pod, nodes().get(pod.node)), around)
    ]


def gpu_seconds(found: list[Allocation], uid: str, window: Interval) -> Fraction:
    return sum(
        (
            allocation.holding.share * held_ms(allocation, window) / 1000
            for allocation in found
            if allocation.pod_uid == uid
        ),
        Fraction(0),
    )


def check(pods: dict[str, PodEvidence]) -> None:
    """Every pod, every namespace, every window: exactly the truth."""
    found = metered(pods)
    assert {pod["uid"] for pod in truth()["pods"]} <= set(pods)
    for name, window in truth()["windows"].items():
        span = Interval(parse_rfc3339(window["start"]), parse_rfc3339(window["end"]))
        for namespace, figures in window["namespaces"].items():
            per_card = 7 if namespace == "team-mig" else 1
            ours = {pod["uid"]: gpu_seconds(found, pod["uid"], span) for pod in figures["pods"]}
            for pod in figures["pods"]:
                assert ours[pod["uid"]] * per_card == Fraction(pod["gpu_seconds"]), (
                    name,
                    namespace,
                    pod["pod"],
                )
            assert sum(ours.values()) * per_card == Fraction(figures["gpu_seconds"]), (name, namespace)


def test_the_recording_holds_what_the_table_speaks_of() -> None:
    assert len(truth()["windows"]) == 4
    assert len(truth()["pods"]) == 19
    assert sum(len(window["namespaces"]) for window in truth()["windows"].values()) == 32
    assert {event["type"] for event in events()} == {"ADDED", "MODIFIED", "DELETED"}


def test_the_watch_gives_the_truth() -> None:
    check(merge_all(map(sight, events())))


def test_a_wrong_share_or_time_is_seen() -> None:
    """The comparison itself: one card too many, or one second too long, fails."""
    pods = merge_all(map(sight, events()))
    slow = next(pod for pod in pods.values() if pod.name == "slow")
    with pytest.raises(AssertionError, match="slow"):
        check({**pods, slow.uid: read_pod_with(slow, gpus=3)})
    last = [event for event in events() if event["object"]["metadata"]["name"] == "blink-vg9kg"][:-2]
    rest = [event for event in events() if event["object"]["metadata"]["name"] != "blink-vg9kg"]
    with pytest.raises(AssertionError, match="blink-vg9kg"):
        check(merge_all(map(sight, chain(rest, last))))


def read_pod_with(pod: PodEvidence, gpus: int) -> PodEvidence:
    dumped = dump_evidence(pod)
    dumped["requests"]["nvidia.com/gpu"] = str(gpus)
    return load_evidence(dumped)


@pytest.mark.parametrize(
    "arrange",
    [
        pytest.param(lambda all_: [*all_, *all_], id="twice"),
        pytest.param(lambda all_: [event for event in all_ for _ in range(2)], id="each-twice"),
        pytest.param(lambda all_: list(reversed(all_)), id="backwards"),
        pytest.param(lambda all_: [*all_[55:], *all_[:55]], id="second-half-first"),
        pytest.param(lambda all_: [*all_[:70], *all_[40:]], id="cut-in-two-with-overlap"),
    ],
)
def test_the_order_and_number_of_events_do_not_matter(arrange: Callable[[list[Event]], list[Event]]) -> None:
    check(merge_all(map(sight, arrange(list(events())))))


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 110))
def test_shuffled_duplicated_and_cut_in_two(order: random.Random, at: int) -> None:
    """Two watchers, each with a part, in any order, some events twice; the first one's evidence was stored
    meanwhile."""
    shuffled = list(events()) + order.sample(events(), 30)
    order.shuffle(shuffled)
    stored = {uid: dump_evidence(pod) for uid, pod in merge_all(map(sight, shuffled[:at])).items()}
    known = [load_evidence(json.loads(json.dumps(pod))) for pod in stored.values()]
    check(merge_all(chain(known, map(sight, shuffled[at:]))))


def test_a_restart_of_the_watch_from_a_list() -> None:
    """The watch breaks after the first half; the list taken at the end is read before the second half is
    replayed."""
    listed = json.loads((RECORDED / "pods.json").read_text())["items"]
    sights = [read_pod(pod, seen_at=WATERMARK) for pod in listed]
    check(merge_all(chain(map(sight, events()[:60]), sights, map(sight, events()[60:]))))


def test_the_list_alone_does_not_give_the_truth() -> None:
    """Both `trainer` pods and the first `blink` are in no later list: without the watch 276 GPU-seconds are
    lost."""
    listed = json.loads((RECORDED / "pods.json").read_text())["items"]
    pods = merge_all(read_pod(pod, seen_at=WATERMARK) for pod in listed)
    window = truth()["windows"]["10 minutes"]
    lost = {uid for ns in window["namespaces"].values() for uid in [pod["uid"] for pod in ns["pods"]]} - set(pods)
    missing = sum(
        Fraction(pod["gpu_seconds"]) for ns in window["namespaces"].values() for pod in ns["pods"] if pod["uid"] in lost
    )
    assert missing == 276


def test_the_time_before_a_start_is_not_charged() -> None:
    """`slow` was bound 90 s before it started: the platform carries them."""
    found = [one for one in metered(merge_all(map(sight, events()))) if one.pod == "slow"]
    everything = Interval(START, WATERMARK)
    assert [held_ms(one, everything, Bucket.STARTING) for one in found] == [90_000, 90_000]
    assert [segment.bucket for segment in found[0].life.segments] == [Bucket.STARTING, Bucket.TENANTS]


def test_what_is_charged_differs_from_the_truth_by_less_than_a_millionth_of_a_card() -> None:
    for allocation in metered(merge_all(map(sight, events()))):
        exact = allocation.holding.share * 1_000_000
        assert 0 <= exact - allocation.holding.share_millionths < 1


def accounts(window: Interval) -> dict[str, Account]:
    found = metered(merge_all(map(sight, events())))
    return {
        name: account(
            window,
            [Capacity(Interval(START, WATERMARK), 8)],
            [load_of(piece) for one in found if one.node == name for piece in cut(one, window)],
        )
        for name in nodes()
    }


def test_the_buckets_are_the_time_in_service() -> None:
    """48 cards for ten minutes; the rest of 28,800 GPU-seconds is idle, as the recording's README computes
    it."""
    by_node = accounts(Interval(datetime(2026, 11, 29, 16, 35, tzinfo=UTC), datetime(2026, 11, 29, 16, 45, tzinfo=UTC)))
    unit = 1_000_000 * 1000
    assert all(one.difference == 0 and one.overbooked == 0 and one.outside == 0 for one in by_node.values())
    assert sum(one.in_service for one in by_node.values()) == 48 * 600 * unit
    tenants = Fraction(sum(one.buckets[Bucket.TENANTS] for one in by_node.values()), unit)
    assert abs(tenants - (Fraction(4908) + Fraction("1109.078125") + Fraction(750, 7))) < Fraction(1, 100)
    assert sum(one.buckets[Bucket.STARTING] for one in by_node.values()) == 2 * 90 * unit
    assert by_node["hami-0001"].per_card
    assert not by_node["whole-0000"].per_card
