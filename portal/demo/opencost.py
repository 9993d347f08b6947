"""The demonstration's OpenCosts: connected through each API server's proxy, with two days of answers behind them.

The simulated OpenCost knows only what ran since it was started. What it would have said before is made from the same
timetable as the evidence, by the rules that recorded answers show (samples five minutes apart, a HAMi share is a card,
MIG is nothing), and marked ``demo``; unit costs and comparison are then the product's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal

from billing.models import OpenCostAnswer
from billing.opencost.answers import Allocation, Assets, NodeAsset, Row
from billing.services.opencost import answer_store, opencost_set, source_ensure
from infra.models import Cluster, ClusterEndpoint, Node
from infra.services.endpoints import endpoint_set
from portal.demo.timeline import Run, timeline
from portal.kernel.actors import Actor
from portal.kernel.clock import HOUR, Interval, hour_start, hours
from portal.kernel.money import quantize
from portal.kernel.problems import Problem
from portal.kernel.scoping import system_scope

SERVICE = "opencost/opencost:9003"
DAYS = 2
GRID = timedelta(minutes=5)
GPU, CPU, RAM = Decimal("2.5"), Decimal("0.02"), Decimal("0.003")
"""Per card-hour, core-hour and GiB-hour: what the simulated OpenCost is configured with."""
GIB = 1024**3


def opencost_ensure(clusters: Mapping[str, Cluster], since: datetime, now: datetime, actor: Actor) -> None:
    """Connect what is not, say that its prices are in EUR, and tell of the last two days."""
    first = max(since, now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS - 1))
    runs = timeline(since, now)
    for name, cluster in clusters.items():
        if ClusterEndpoint.objects.filter(cluster=cluster, role=ClusterEndpoint.Role.OPENCOST).exists():
            continue
        try:
            endpoint_set(cluster=cluster, role="opencost", via="proxy", service=SERVICE, actor=actor)
            opencost_set(cluster=cluster, currency="EUR", actor=actor)
        except Problem as problem:
            # A cluster without an OpenCost is no fault: it has no page beside it.
            print(f"OpenCost of {name} is not connected: {problem.detail}")  # noqa: T201  # the command's output
            continue
        _tell(cluster, [run for run in runs if run.cluster == name], Interval(first, hour_start(now)))


def _tell(cluster: Cluster, runs: list[Run], window: Interval) -> None:
    with system_scope("demonstration"):
        if OpenCostAnswer.objects.filter(cluster=cluster).exists() or window.is_empty:
            return
        source = source_ensure(cluster.pk)
        source.first_hour = window.start
        source.save(update_fields=["first_hour"])
        nodes = list(Node.objects.filter(cluster=cluster, gone_at__isnull=True).select_related("pool").order_by("name"))
        for hour in hours(window):
            rows = tuple(row for run in runs if (row := _row(run, hour)) is not None)
            assets = Assets(hour, tuple(_asset(node) for node in nodes))
            answer_store(source, Allocation(hour, rows), assets, now=hour.end, version="demo", origin="demo")
        ClusterEndpoint.objects.filter(cluster=cluster, role=ClusterEndpoint.Role.OPENCOST).update(
            read_until=window.end
        )


def _row(run: Run, hour: Interval) -> Row | None:
    """What OpenCost would have seen of a pod in an hour: from its first to its last sample."""
    points = [hour.start + GRID * number for number in range(HOUR // GRID + 1)]
    seen = [point for point in points if run.start < point <= run.end]
    if not seen:
        return None
    first, last = seen[0], seen[-1]
    if first == last:
        first, last = max(first - GRID / 2, hour.start), min(last + GRID / 2, hour.end)
    lasted = Interval(first, last)
    share = Decimal(lasted.ms) / 3_600_000
    cards = quantize(share * (0 if run.sharing == "mig" else run.gpus), 5)
    cores, gib = quantize(share * 4 * run.gpus, 5), quantize(share * 32 * run.gpus, 5)
    nothing = Decimal(0)
    return Row(
        namespace=run.namespace, pod=run.name, special="", lasted=lasted, minutes=share * 60, clamped=False,
        gpu_hours=cards, gpu_cost=quantize(cards * GPU, 5), cpu_core_hours=cores, cpu_cost=quantize(cores * CPU, 5),
        ram_byte_hours=gib * GIB, ram_cost=quantize(gib * RAM, 5), pv_byte_hours=nothing, pv_cost=nothing,
        network_cost=nothing, lb_cost=nothing,
    )  # fmt: skip


def _asset(node: Node) -> NodeAsset:
    """A node for an hour; OpenCost counts each of HAMi's slots as a card, and a MIG node as one."""
    sharing = node.pool.sharing if node.pool else ""
    cards = Decimal(node.cards * 10 if sharing == "hami" else min(node.cards, 1) if sharing == "mig" else node.cards)
    return NodeAsset(node.name, cards, cards * GPU, Decimal(96), 96 * CPU, Decimal(1024 * GIB), 1024 * RAM)
