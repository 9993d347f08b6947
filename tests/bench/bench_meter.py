"""Metering one hour of 8,000 GPUs against reading the same evidence raw, in one run.

Run: python tests/bench/bench_meter.py. A cluster of 1,000 nodes with 8 cards each; 4,000 pods hold two cards each.
In each measured hour one pod in a hundred ends and another takes its place. *Raw* is reading what the hour is made
of, from the database into the same Python objects: every pod's evidence and every node's capacity, nothing computed.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.database import bench_database
from tests.bench.line import seconds, tell

NODES, CARDS, PER_POD = 1000, 8, 2
HOURS = 5
REACH = 2.0
BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def main() -> None:
    """Print the line."""
    with bench_database("meter"):
        from django.db.models import Q

        from billing.models import UsageRecord
        from billing.services.metering import meter_cluster
        from infra.models import CapacitySpan, Cluster, GPUType, Node, PodObservation
        from infra.pod_reading import dump_evidence, load_evidence
        from portal.kernel.scoping import system_scope
        from tests.billing.factories import claim_namespaces, make_cluster, make_tenant, pod_evidence, set_watermark

        def observation(
            cluster: Cluster, number: int, seq: int, start: datetime, end: datetime | None
        ) -> PodObservation:
            node, slot = divmod(number % (NODES * CARDS // PER_POD), CARDS // PER_POD)
            pod = pod_evidence(
                f"pod-{number}", namespace=f"team-{node % 50}", node=f"node-{node}", gpu=PER_POD, cpu=8, start=start,
                end=end,
            )  # fmt: skip
            pod = replace(pod, labels=(("app", "llm"), ("slot", str(slot))))
            return PodObservation(
                cluster=cluster, uid=pod.uid, namespace=pod.namespace, name=pod.name, node_name=pod.node,
                phase=pod.phase, evidence=dump_evidence(pod), scheduled_at=start, started_at=start, ended_at=end,
                first_seen_at=start, changed_seq=seq,
            )  # fmt: skip

        cluster = make_cluster()
        for number in range(50):
            claim_namespaces(cluster, make_tenant(f"team-{number}"), [f"team-{number}"])
        kind = GPUType.objects.create(slug="h100", name="h100", memory_mib=81_920)
        nodes = Node.objects.bulk_create(
            [Node(cluster=cluster, name=f"node-{n}", uid=f"n{n}", ready=True, cards=CARDS, first_seen_at=BEGIN)
             for n in range(NODES)]
        )  # fmt: skip
        CapacitySpan.objects.bulk_create(
            [CapacitySpan(cluster=cluster, node=node, gpu_type=kind, sharing="whole", cards=CARDS, started_at=BEGIN,
                          changed_seq=100) for node in nodes]
        )  # fmt: skip
        pods = NODES * CARDS // PER_POD
        seq = 1000
        PodObservation.objects.bulk_create(
            [observation(cluster, n, seq + n, BEGIN, None) for n in range(pods)], batch_size=1000
        )
        _count(cluster, seq + pods)
        set_watermark(cluster, BEGIN + HOUR)
        began = time.perf_counter()
        meter_cluster(cluster.pk, budget_seconds=600)
        first = time.perf_counter() - began

        ours, raw = [], []
        churn = pods // 100
        for step in range(1, HOURS + 1):
            seq += 10 * pods
            at = BEGIN + step * HOUR + timedelta(minutes=20)
            ended = [observation(cluster, n + (step - 1) * churn, seq + n, BEGIN, at) for n in range(churn)]
            for row in ended:
                PodObservation.objects.filter(cluster=cluster, uid=row.uid).update(
                    evidence=row.evidence, ended_at=at, phase=row.phase, changed_seq=row.changed_seq
                )
            PodObservation.objects.bulk_create(
                [observation(cluster, pods + n + (step - 1) * churn, seq + churn + n, at, None) for n in range(churn)]
            )
            _count(cluster, seq + 2 * churn)
            start, end = BEGIN + step * HOUR, BEGIN + (step + 1) * HOUR
            set_watermark(cluster, end)

            began = time.perf_counter()
            alive = Q(ended_at__isnull=True) | Q(ended_at__gt=start)
            read = [
                load_evidence(evidence)
                for evidence in PodObservation.objects.filter(alive, cluster=cluster, first_seen_at__lt=end)
                .values_list("evidence", flat=True)
                .iterator(chunk_size=5000)
            ]
            spans = list(CapacitySpan.objects.filter(cluster=cluster, started_at__lt=end))
            raw.append(time.perf_counter() - began)
            assert len(read) >= pods
            assert len(spans) == NODES

            began = time.perf_counter()
            meter_cluster(cluster.pk, budget_seconds=600)
            ours.append(time.perf_counter() - began)
            with system_scope("bench"):
                charged = sum(UsageRecord.objects.filter(hour=start).values_list("charged", flat=True))
            assert charged == NODES * CARDS * 3_600_000 * 1_000_000, "every card is held all the hour"

        took, reading = statistics.median(ours), statistics.median(raw)
        tell(
            f"meter an hour of {NODES * CARDS:,} GPUs",
            seconds(took),
            f"reading the same evidence raw: {seconds(reading)}",
            f"{took / reading:.2f}x",
            f"<= {REACH:g}x",
            met=took / reading <= REACH,
            bench="meter",
            gpus=NODES * CARDS,
            pods=pods,
            seconds=[round(value, 3) for value in ours],
            yardstick_seconds=[round(value, 3) for value in raw],
            first_hour_seconds=round(first, 3),
        )


def _count(cluster: object, value: int) -> None:
    from infra.models import ChangeCounter

    ChangeCounter.objects.update_or_create(cluster=cluster, defaults={"value": value})


if __name__ == "__main__":
    main()
