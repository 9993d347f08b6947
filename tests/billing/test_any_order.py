"""However evidence comes, in pieces and late, with the meter in between: the same usage and capacity as at once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from billing.models import CapacityHour, UsageRecord
from billing.services.metering import meter_cluster
from infra.evidence import PodEvidence, missing
from infra.models import Cluster, Node
from infra.services.capacity import capacity_set, state_of
from infra.services.changes import lock_changes
from infra.services.claims import namespace_claim_end, namespace_claim_set
from portal.kernel.actors import Actor
from portal.kernel.clock import HOUR
from portal.kernel.scoping import system_scope
from tenants.models import Tenant
from tests.billing.factories import (
    T0,
    make_cluster,
    make_gpu_type,
    make_issuer,
    make_node,
    make_rate,
    make_tenant,
    observe,
    pod_evidence,
    set_watermark,
)

pytestmark = pytest.mark.django_db

SYSTEM = Actor.system("test")
HOURS = 5
Step = Callable[[Cluster, dict[str, Node]], None]


def later(rng: random.Random, most_minutes: int) -> timedelta:
    return timedelta(milliseconds=rng.randrange(1, most_minutes * 60_000))


def change(name: str, at: datetime, **facts: Any) -> Step:
    """The node's capacity from then on."""

    def step(cluster: Cluster, nodes: dict[str, Node]) -> None:
        with system_scope("test"):
            changes = lock_changes(cluster.pk)
            span = nodes[name].capacity_spans.latest("started_at")
            capacity_set(nodes[name], replace(state_of(span), **facts), at=at, changes=changes)
            changes.save()

    return step


def see(pod: PodEvidence) -> Step:
    return lambda cluster, nodes: observe(cluster, pod)


def hand_over(first: Tenant, second: Tenant, at: datetime) -> Step:
    """The namespace ``mine`` is the first team's until then, and the second's afterwards."""

    def step(cluster: Cluster, nodes: dict[str, Node]) -> None:
        with system_scope("test"):
            claim = namespace_claim_set(
                cluster=cluster, namespace="mine", tenant_id=first.pk, valid_from=T0 + HOUR / 4, actor=SYSTEM
            )
            namespace_claim_end(claim=claim, valid_to=at, actor=SYSTEM)
            namespace_claim_set(cluster=cluster, namespace="mine", tenant_id=second.pk, valid_from=at, actor=SYSTEM)

    return step


def stories(rng: random.Random, first: Tenant, second: Tenant) -> list[list[Step]]:
    """Independent sequences of evidence; each is to be told in its order."""
    told: list[list[Step]] = [[hand_over(first, second, T0 + HOUR + later(rng, 120))]]
    asks: dict[str, dict[str, int]] = {"whole": {"gpu": 1}, "mig": {"gpu": 0, "mig_1g_10gb": 2}}
    for number in range(10):
        node = rng.choice(["whole", "hami", "mig"])
        start = T0 + later(rng, 200)
        ask = asks.get(node) or {"gpu": 1, "gpumem": rng.randrange(1_000, 80_000), "gpucores": rng.randrange(1, 100)}
        facts: dict[str, Any] = {
            "namespace": rng.choice(["mine", "mine", "nobodys", "kube-system"]),
            "node": node,
            "start": start,
            "bound": start - later(rng, 20),
        }
        pod = pod_evidence(f"p{number}", **facts, **ask)
        sights = [see(pod)]
        if rng.random() < 0.4:
            sights.append(see(pod_evidence(f"p{number}", **facts, end=start + later(rng, 120), **ask)))
        elif rng.random() < 0.4:
            proof = start + later(rng, 60)
            sights.append(see(missing(pod, relisted_at=proof + later(rng, 60), last_proof=proof)))
        told.append(sights)
    lost = T0 + HOUR + later(rng, 60)
    told.append([change("whole", lost, lost=True), change("whole", lost + later(rng, 60), lost=False)])
    told.append([change("hami", T0 + later(rng, 200), cards=3), change("hami", T0 + 4 * HOUR, unavailable_cards=1)])
    return told


def shuffled(rng: random.Random, told: list[list[Step]]) -> list[Step]:
    queues = [list(one) for one in told]
    steps = []
    while queues:
        queue = rng.choice(queues)
        steps.append(queue.pop(0))
        queues = [one for one in queues if one]
    return steps


def fleet(slug: str) -> tuple[Cluster, dict[str, Node]]:
    cluster = make_cluster(slug)
    return cluster, {
        "whole": make_node(cluster, "whole", cards=4),
        "hami": make_node(cluster, "hami", gpu_type=make_gpu_type("a100", 80_000), sharing="hami", cards=2),
        "mig": make_node(cluster, "mig", sharing="mig", cards=2),
    }


def recorded(cluster: Cluster, nodes: dict[str, Node]) -> tuple[Counter[Any], dict[Any, Any]]:
    """What usage says by node, slot, account and bucket, and what capacity says by node and hour."""
    names = {node.pk: name for name, node in nodes.items()}
    figures = ("tenants", "idle", "starting", "overhead", "unavailable", "unattributed", "overbooked", "outside")
    usage: Counter[Any] = Counter()
    with system_scope("test"):
        for node, slot, tenant, namespace, bucket, ms, charged, physical in UsageRecord.objects.filter(
            cluster=cluster
        ).values_list(
            "node_id", "slot", "tenant_id", "namespace", "bucket", "milliseconds", "charged", "physical"
        ):  # fmt: skip
            for figure, amount in (("ms", ms), ("charged", charged), ("physical", physical)):
                usage[names[node], slot, tenant, namespace, bucket, figure] += amount
        rows = list(CapacityHour.objects.filter(cluster=cluster))
    assert [row for row in rows if row.difference] == []
    hours = {(names[row.node_id], row.hour): tuple(getattr(row, name) for name in figures) for row in rows}
    return Counter({key: amount for key, amount in usage.items() if amount}), hours


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_in_pieces_as_at_once(seed: int) -> None:
    rng = random.Random(seed)
    first, second = make_tenant("first", zone="first"), make_tenant("second")
    issuer = make_issuer()
    make_rate(issuer, "1.00")
    make_rate(issuer, "3.00", resource="cpu", valid_from=T0 + timedelta(hours=2, minutes=20))
    told = stories(rng, first, second)
    # A pool's zone is changed in the portal, so never late; who pays for an hour's idle time stays who it was.
    zone = change("mig", T0 + later(rng, 200), zone_id=first.zone_id)
    at_once, nodes = fleet("east")
    for step in (zone, *(step for one in told for step in one)):
        step(at_once, nodes)
    set_watermark(at_once, T0 + HOURS * HOUR)
    meter_cluster(at_once.pk, budget_seconds=600)
    in_pieces, others = fleet("west")
    for number, step in enumerate([zone, *shuffled(rng, told)]):
        step(in_pieces, others)
        if number % 3 == 2:
            set_watermark(in_pieces, T0 + min(HOURS, number // 3 + 1) * HOUR)
            meter_cluster(in_pieces.pk, budget_seconds=600)
    set_watermark(in_pieces, T0 + HOURS * HOUR)
    meter_cluster(in_pieces.pk, budget_seconds=600)
    usage, hours = recorded(at_once, nodes)
    assert recorded(in_pieces, others) == (usage, hours)
    assert len(hours) == 3 * HOURS
    assert {bucket for *_, bucket, _ in usage} >= {"tenants", "starting", "unattributed", "overhead", "idle"}
