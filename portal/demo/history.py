"""The past as evidence: pods, capacity and watch spans, each marked ``demo``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from uuid import NAMESPACE_URL, uuid5

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
from infra.services.changes import lock_changes
from infra.watcher.pods import store_pods
from portal.demo.timeline import Run, timeline
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import mark_many

OUTAGE = timedelta(hours=5)


def history_tell(clusters: Mapping[str, Cluster], since: datetime, until: datetime) -> int:
    """Write the evidence of [since, until) for clusters that have none of the past yet; how many pods were written."""
    runs = timeline(since, until)
    written = 0
    for name, cluster in clusters.items():
        with system_scope("demonstration"):
            if WatchSpan.objects.filter(target__cluster=cluster, source=EvidenceSource.DEMO).exists():
                continue
            _capacity(cluster, since)
            pods = [_pod(cluster, run) for run in runs if run.cluster == name]
            changes = lock_changes(cluster.pk)
            marks = store_pods(cluster, pods, changes, source=EvidenceSource.DEMO)
            changes.save()
            _watched(cluster, since, until)
            mark_many(marks)
            written += len(pods)
    return written


def _nodes(cluster: Cluster, product: str, sharing: str) -> list[Node]:
    found = Node.objects.filter(
        cluster=cluster, pool__sharing=sharing, pool__gpu_type__name__contains=product, gone_at__isnull=True
    )
    return list(found.order_by("name"))


def _capacity(cluster: Cluster, since: datetime) -> None:
    """Each node was in service all the time; the last H100 node of a cluster was out for some hours on one day."""
    changes = lock_changes(cluster.pk)
    broken = _nodes(cluster, "H100", "whole")[-1:]
    for node in Node.objects.filter(cluster=cluster, gone_at__isnull=True):
        now = CapacitySpan.objects.get(node=node, ended_at__isnull=True)
        fault = since + timedelta(days=11, hours=2)
        edges: list[tuple[datetime, datetime, int, str]] = [(since, now.started_at, 0, "")]
        if node in broken and fault + OUTAGE < now.started_at:
            edges = [
                (since, fault, 0, ""),
                (fault, fault + OUTAGE, node.cards, "Ready is False: the kubelet stopped posting node status"),
                (fault + OUTAGE, now.started_at, 0, ""),
            ]
        for start, end, unavailable, reason in edges:
            CapacitySpan.objects.create(
                cluster=cluster,
                node=node,
                gpu_type=now.gpu_type,
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
        Node.objects.filter(pk=node.pk).update(first_seen_at=since)
    changes.save()


def _watched(cluster: Cluster, since: datetime, until: datetime) -> None:
    for target in WatchTarget.objects.filter(cluster=cluster):
        WatchSpan.objects.create(
            target=target,
            started_at=since,
            proved_until=until,
            closed_reason="demonstration data",
            source=EvidenceSource.DEMO,
        )


def _pod(cluster: Cluster, run: Run) -> PodEvidence:
    """The evidence that a watch would have left of the run."""
    node = _nodes(cluster, run.product, run.sharing)[run.node]
    requests = {"cpu": Fraction(4 * run.gpus), "memory": Fraction(run.gpus * 32 * 1024**3)}
    annotations: tuple[tuple[str, str], ...] = ()
    if run.sharing == "mig":
        requests[f"{MIG_PREFIX}{run.profile}"] = Fraction(run.gpus)
    else:
        requests[GPU] = Fraction(run.gpus)
    if run.sharing == "hami":
        card = Device.objects.filter(node=node).order_by("index")[run.card]
        requests[GPU_MEMORY], requests[GPU_CORES] = Fraction(run.memory_mib), Fraction(run.cores)
        record = f"{card.uuid},NVIDIA,{run.memory_mib},{run.cores}:;"
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
