"""The past as evidence: pods, capacity and watch spans, each marked ``demo``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from uuid import NAMESPACE_URL, UUID, uuid5

from infra.evidence import ContainerEvidence, Owner, PodEvidence
from infra.hami_record import HAMI_ALLOCATED, HAMI_PHASE
from infra.models import CapacitySpan, Cluster, Device, Node, WatchSpan, WatchTarget
from infra.models.evidence import EvidenceSource
from infra.pod_devices import (
    GPU,
    GPU_CORES,
    GPU_MEMORY,
    HAMI_SCHEDULER,
    MIG_PREFIX,
    ContainerKind,
)
from infra.services.changes import Changes, lock_changes
from infra.watcher.pods import store_pods
from portal.demo.timeline import Run, timeline
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import mark_many

OUTAGE = timedelta(hours=5)


@dataclass
class _Hardware:
    """A cluster's nodes by name, their spans in service now, and their HAMi cards by index; read once."""

    nodes: list[Node]
    spans: dict[UUID, CapacitySpan]
    cards: dict[UUID, list[str]] = field(default_factory=lambda: defaultdict(list))

    def of(self, product: str, sharing: str) -> list[Node]:
        """The nodes whose cards have this word in their type's name and are handed out in this way."""
        return [
            node
            for node in self.nodes
            if node.pool is not None
            and node.pool.sharing == sharing
            and node.pool.gpu_type is not None
            and product in node.pool.gpu_type.name
        ]


def history_tell(name: str, cluster: Cluster, since: datetime, until: datetime) -> int:
    """Write the evidence of [since, until) for a cluster that has none of the past yet; how many pods were written."""
    with system_scope("demonstration"):
        if WatchSpan.objects.filter(target__cluster=cluster, source=EvidenceSource.DEMO).exists():
            return 0
        hardware = _hardware(cluster)
        changes = lock_changes(cluster.pk)
        _capacity(cluster, hardware, since, changes)
        pods = [_pod(hardware, run) for run in timeline(since, until) if run.cluster == name]
        marks = store_pods(cluster, pods, changes, source=EvidenceSource.DEMO)
        changes.save()
        _watched(cluster, since, until)
        mark_many(marks)
        return len(pods)


def _hardware(cluster: Cluster) -> _Hardware:
    nodes = Node.objects.filter(cluster=cluster, gone_at__isnull=True).select_related("pool__gpu_type")
    spans = CapacitySpan.objects.filter(cluster=cluster, ended_at__isnull=True)
    hardware = _Hardware(list(nodes.order_by("name")), {span.node_id: span for span in spans})
    for node_id, uuid in Device.objects.filter(cluster=cluster).order_by("index").values_list("node_id", "uuid"):
        hardware.cards[node_id].append(uuid)
    return hardware


def _capacity(cluster: Cluster, hardware: _Hardware, since: datetime, changes: Changes) -> None:
    """Each node was in service all the time; the last H100 node of a cluster was out for some hours on one day."""
    broken = hardware.of("H100", "whole")[-1:]
    past: list[CapacitySpan] = []
    for node in hardware.nodes:
        now = hardware.spans[node.pk]
        fault = since + timedelta(days=11, hours=2)
        edges: list[tuple[datetime, datetime, int, str]] = [(since, now.started_at, 0, "")]
        if node in broken and fault + OUTAGE < now.started_at:
            edges = [
                (since, fault, 0, ""),
                (fault, fault + OUTAGE, node.cards, "Ready is False: the kubelet stopped posting node status"),
                (fault + OUTAGE, now.started_at, 0, ""),
            ]
        past += [
            CapacitySpan(
                cluster=cluster,
                node=node,
                gpu_type_id=now.gpu_type_id,
                sharing=now.sharing,
                zone_id=now.zone_id,
                cards=now.cards,
                unavailable_cards=unavailable,
                reason=reason,
                started_at=start,
                ended_at=end,
                source=EvidenceSource.DEMO,
                changed_seq=changes.draw(),
            )
            for start, end, unavailable, reason in edges
        ]
    CapacitySpan.objects.bulk_create(past)
    Node.objects.filter(pk__in=[node.pk for node in hardware.nodes]).update(first_seen_at=since)


def _watched(cluster: Cluster, since: datetime, until: datetime) -> None:
    for target in WatchTarget.objects.filter(cluster=cluster):
        WatchSpan.objects.create(
            target=target,
            started_at=since,
            proved_until=until,
            closed_reason="demonstration data",
            source=EvidenceSource.DEMO,
        )


def _pod(hardware: _Hardware, run: Run) -> PodEvidence:
    """The evidence that a watch would have left of the run."""
    node = hardware.of(run.product, run.sharing)[run.node]
    requests = {"cpu": Fraction(4 * run.gpus), "memory": Fraction(run.gpus * 32 * 1024**3)}
    annotations: tuple[tuple[str, str], ...] = ()
    if run.sharing == "mig":
        requests[f"{MIG_PREFIX}{run.profile}"] = Fraction(run.gpus)
    else:
        requests[GPU] = Fraction(run.gpus)
    if run.sharing == "hami":
        requests[GPU_MEMORY], requests[GPU_CORES] = Fraction(run.memory_mib), Fraction(run.cores)
        record = f"{hardware.cards[node.pk][run.card]},NVIDIA,{run.memory_mib},{run.cores}:;"
        annotations = ((HAMI_PHASE, "success"), (HAMI_ALLOCATED, record))
    uid = str(uuid5(NAMESPACE_URL, f"demo/{run.cluster}/{run.namespace}/{run.name}"))
    pairs = _sorted(requests.items())
    container = ContainerEvidence(
        name="main",
        kind=ContainerKind.MAIN,
        restart_policy="Never",
        requests=pairs,
        state="terminated",
        reason="Completed",
        exit_code=0,
        first_started_at=run.start,
        last_finished_at=run.end,
    )
    return PodEvidence(
        uid=uid,
        namespace=run.namespace,
        name=run.name,
        resource_version=1,
        first_seen_at=run.bound,
        last_seen_at=run.end,
        node=node.name,
        scheduler=HAMI_SCHEDULER if run.sharing == "hami" else "default-scheduler",
        phase="Succeeded",
        requests=pairs,
        containers=(container,),
        annotations=tuple(sorted(annotations)),
        owner=Owner(run.owner, run.name, str(uuid5(NAMESPACE_URL, f"demo-owner/{run.namespace}/{run.name}"))),
        created_at=run.bound,
        scheduled_at=run.bound,
        terminal_seen_at=run.end,
        gone_at=run.end + timedelta(seconds=1),
    )


def _sorted(pairs: Iterable[tuple[str, Fraction]]) -> tuple[tuple[str, Fraction], ...]:
    return tuple(sorted(pairs))
