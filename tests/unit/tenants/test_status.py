"""The state of a whole deployment, and why it waits."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from infra.placement.model import Explanation, Plan, Rule
from tenants.status import overall
from tenants.waiting import waiting_reason, waiting_sentence


@dataclass
class Replica:
    index: int
    phase: str
    message: str = ""
    ready: bool = False


READY = Replica(0, "Ready", ready=True)
BROKEN = Replica(1, "Failed", "Image x cannot be pulled: not found.")
STARTING = Replica(1, "Pulling", "The node pulls x.")


@pytest.mark.parametrize(
    ("wanted", "replicas", "current", "short", "rollout", "phase", "waiting"),
    [
        (0, [], [], "", "", "Stopped", ""),
        (1, [READY], [True], "", "", "Ready", ""),
        (1, [READY], [False], "", "", "Progressing", ""),
        (2, [READY, STARTING], [True, True], "", "", "Progressing", "Replica 1: The node pulls x."),
        (2, [READY, BROKEN], [True, True], "", "", "Degraded", "Replica 1: Image x cannot be pulled: not found."),
        (1, [BROKEN], [True], "", "", "Failed", "Replica 1: Image x cannot be pulled: not found."),
        (2, [READY], [True], "1 of 2.", "", "Waiting", "1 of 2."),
        (1, [READY, STARTING], [True, True], "", "", "Progressing", "Replica 1: The node pulls x."),
        (2, [READY, STARTING], [False, True], "", "waits for 1", "Progressing", "waits for 1"),
    ],
)
def test_overall(
    wanted: int, replicas: list[Replica], current: list[bool], short: str, rollout: str, phase: str, waiting: str
) -> None:
    status = overall(
        wanted=wanted,
        replicas=replicas,
        current=current,
        leaving=0,
        short_reason="NoCapacity",
        short=short,
        rollout=rollout,
    )
    assert (status.phase, status.waiting) == (phase, waiting)
    assert status.ready_replicas == sum(replica.ready for replica in replicas)


def plan(wanted: int, *explanations: Explanation) -> Plan:
    return Plan(wanted, (), (), (), explanations)


def said(rule: Rule, pool: str = "a") -> Explanation:
    return Explanation(rule, "north", pool, f"{rule} of {pool}")


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ([Rule.LABEL, Rule.QUOTA, Rule.CAPACITY], "QuotaExceeded"),
        ([Rule.SITE, Rule.CAPACITY], "NoCapacity"),
        ([Rule.SELECTOR_ERROR, Rule.SELECTOR], "SelectorError"),
        ([Rule.SELECTOR], "NoMatchingDevice"),
        ([Rule.SHARING, Rule.ZONE], "OtherTrustZone"),
        ([Rule.SITE, Rule.ISOLATION, Rule.SELECTOR], "NotIsolated"),
        ([Rule.SITE, Rule.NOT_READY], "NoCluster"),
        ([], "NoCluster"),
    ],
)
def test_the_reason_nearest_to_a_place_is_told(rules: list[Rule], reason: str) -> None:
    assert waiting_reason(plan(1, *map(said, rules))) == reason


def test_the_sentence_names_the_nearest_and_counts_the_rest() -> None:
    sentence = waiting_sentence(plan(2, said(Rule.LABEL, "x"), said(Rule.CAPACITY, "b"), said(Rule.CAPACITY, "c")))
    assert sentence == (
        "0 of 2 replicas have a place. capacity of b. capacity of c. And 1 other clusters and pools: see the "
        "explanation."
    )
    assert waiting_reason(plan(0)) == "Placed"


def test_zero_is_reached_when_the_last_has_ended() -> None:
    status = overall(wanted=0, replicas=[], current=[], leaving=2, short_reason="", short="", rollout="")
    assert (status.phase, status.waiting) == ("Progressing", "2 replicas have not ended yet.")
