"""The meter: hours, claims, lost nodes, unknown hardware, conservation, late evidence, kills."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from billing.models import Bucket, CapacityHour, DeviceAllocation, MeterProgress, UsageRecord
from billing.reconcilers.metering import meter_hours
from billing.selectors.conservation import capacity_by_type, imbalances, unmapped_namespaces
from billing.services import metering
from billing.services.metering import meter_again, meter_cluster
from infra.models import CapacitySpan, Cluster, Device, NamespaceClaim, Node
from infra.services.changes import lock_changes
from portal.kernel import workqueue
from portal.kernel.clock import HOUR, Interval
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from tests.billing.factories import (
    T0,
    claim_namespaces,
    make_cluster,
    make_gpu_type,
    make_node,
    make_tenant,
    observe,
    pod_evidence,
    set_watermark,
)

pytestmark = pytest.mark.django_db

CARD_HOUR = 3_600_000 * 1_000_000
MINUTE = timedelta(minutes=1)


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


def totals(*, bucket: str = Bucket.TENANTS, **filters: Any) -> int:
    with system_scope("test"):
        return sum(UsageRecord.objects.filter(bucket=bucket, **filters).values_list("charged", flat=True))


def rows() -> list[tuple[Any, ...]]:
    with system_scope("test"):
        return list(
            UsageRecord.objects.order_by("seq").values_list("seq", "hour", "bucket", "milliseconds", "revision")
        )


def balanced(window: Interval | None = None) -> None:
    window = window or Interval(T0, T0 + timedelta(days=40))
    with system_scope("test"):
        assert CapacityHour.objects.exists()
        assert not imbalances(window).exists()


def test_a_pod_over_three_hours(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    make_node(cluster)
    claim_namespaces(cluster, tenant, ["team-vision"])
    observe(cluster, pod_evidence("a", namespace="team-vision", node="node-0", gpu=2,
                                  start=T0 + 30 * MINUTE, end=T0 + 150 * MINUTE))  # fmt: skip
    set_watermark(cluster, T0 + 2 * HOUR + MINUTE)
    meter_cluster(cluster.pk)
    assert totals() == 2 * CARD_HOUR * 3 // 2, "two of the three hours are final"
    set_watermark(cluster, T0 + 5 * HOUR)
    meter_cluster(cluster.pk)
    assert totals() == 2 * 2 * CARD_HOUR
    assert [row[3] for row in rows()] == [1_800_000] * 2 + [3_600_000] * 2 + [1_800_000] * 2
    assert meter_cluster(cluster.pk).rows == 0
    balanced()


def test_nothing_is_final_while_a_target_is_not_watched(cluster: Cluster) -> None:
    make_node(cluster)
    observe(cluster, pod_evidence("a", namespace="x", node="node-0", gpu=1, start=T0))
    set_watermark(cluster, T0 + 5 * HOUR)
    cluster.watch_targets.filter(resource="nodes").update(watermark=None)
    assert meter_cluster(cluster.pk).final_until is None
    assert rows() == []


def test_claims_decide_over_time(cluster: Cluster) -> None:
    """Unclaimed, then one tenant's, then another's: cut at the edges; and a claim that comes late moves the time."""
    first, second = make_tenant("first"), make_tenant("second")
    make_node(cluster)
    observe(cluster, pod_evidence("a", namespace="shared", node="node-0", gpu=1, start=T0))
    set_watermark(cluster, T0 + 4 * HOUR)
    meter_cluster(cluster.pk)
    assert totals(bucket=Bucket.UNATTRIBUTED, tenant=None) == 4 * CARD_HOUR
    with system_scope("test"):
        assert [row.namespace for row in unmapped_namespaces(Interval(T0, T0 + 4 * HOUR))] == ["shared"]
        changes = lock_changes(cluster.pk)
        for tenant, start, end in ((first, 1, 2), (second, 2, None)):
            NamespaceClaim.objects.create(
                cluster=cluster, namespace="shared", tenant_id=tenant.pk, valid_from=T0 + start * HOUR + 30 * MINUTE,
                valid_to=T0 + end * HOUR + 30 * MINUTE if end else None, created_by="test", changed_seq=changes.draw(),
            )  # fmt: skip
        changes.save()
    meter_cluster(cluster.pk)
    assert totals(bucket=Bucket.UNATTRIBUTED) == CARD_HOUR * 3 // 2
    assert totals(tenant=first) == CARD_HOUR
    assert totals(tenant=second) == CARD_HOUR * 3 // 2
    assert meter_cluster(cluster.pk).rows == 0
    balanced()


def test_system_namespaces_are_overhead(cluster: Cluster) -> None:
    make_node(cluster)
    observe(cluster, pod_evidence("plugin", namespace="kube-system", node="node-0", gpu=1, start=T0))
    set_watermark(cluster, T0 + HOUR)
    meter_cluster(cluster.pk)
    assert totals(bucket=Bucket.OVERHEAD, tenant=None) == CARD_HOUR
    balanced()


def test_slow_start_is_carried_for_ten_minutes(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    make_node(cluster)
    claim_namespaces(cluster, tenant, ["v"])
    observe(cluster, pod_evidence("a", namespace="v", node="node-0", gpu=1, bound=T0, start=T0 + 25 * MINUTE))
    set_watermark(cluster, T0 + HOUR)
    meter_cluster(cluster.pk)
    assert totals(bucket=Bucket.STARTING) == CARD_HOUR // 6
    assert totals() == CARD_HOUR * 5 // 6
    balanced()


def test_late_evidence_is_a_signed_revision(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    make_node(cluster)
    claim_namespaces(cluster, tenant, ["v"])
    pod = {"namespace": "v", "node": "node-0", "gpu": 1, "start": T0}
    observe(cluster, pod_evidence("a", **pod))
    set_watermark(cluster, T0 + 3 * HOUR)
    meter_cluster(cluster.pk)
    assert totals() == 3 * CARD_HOUR
    observe(cluster, pod_evidence("a", end=T0 + 90 * MINUTE, **pod))
    meter_cluster(cluster.pk)
    assert totals() == CARD_HOUR * 3 // 2
    late = [row for row in rows() if row[4] == 1]
    assert [row[3] for row in late] == [-1_800_000, -3_600_000]
    balanced()


def test_a_pod_found_out_about_later(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    make_node(cluster)
    claim_namespaces(cluster, tenant, ["v"])
    set_watermark(cluster, T0 + 3 * HOUR)
    meter_cluster(cluster.pk)
    observe(cluster, pod_evidence("a", namespace="v", node="node-0", gpu=3, start=T0 + HOUR, end=T0 + 2 * HOUR))
    meter_cluster(cluster.pk)
    assert totals() == 3 * CARD_HOUR
    balanced()
    with system_scope("test"):
        hour = CapacityHour.objects.get(hour=T0 + HOUR)
        assert (hour.tenants, hour.idle, hour.revision) == (3 * CARD_HOUR, 5 * CARD_HOUR, 1)


def test_lost_node_stops_the_clock(cluster: Cluster) -> None:
    """Told after its hour was final: the tenant's time is taken back, the cards are unavailable."""
    tenant = make_tenant("vision")
    node = make_node(cluster)
    claim_namespaces(cluster, tenant, ["v"])
    observe(cluster, pod_evidence("a", namespace="v", node="node-0", gpu=2, start=T0))
    set_watermark(cluster, T0 + 2 * HOUR)
    meter_cluster(cluster.pk)
    lost, back = T0 + 50 * MINUTE, T0 + 80 * MINUTE
    with system_scope("test"):
        changes = lock_changes(cluster.pk)
        span = CapacitySpan.objects.get(node=node)
        span.ended_at, span.changed_seq = lost, changes.draw()
        span.save()
        facts = {"cluster": cluster, "node": node, "gpu_type": span.gpu_type, "sharing": "whole", "cards": 8}
        CapacitySpan.objects.create(**facts, lost=True, unavailable_cards=8, started_at=lost, ended_at=back,
                                    changed_seq=changes.draw())  # fmt: skip
        CapacitySpan.objects.create(**facts, started_at=back, changed_seq=changes.draw())
        changes.save()
    meter_cluster(cluster.pk)
    assert totals() == 2 * CARD_HOUR * 3 // 2
    with system_scope("test"):
        assert sum(CapacityHour.objects.values_list("unavailable", flat=True)) == 8 * CARD_HOUR // 2
        segments = DeviceAllocation.objects.filter(ordinal=0).order_by("segment")
        assert [(row.segment, row.started_at) for row in segments] == [(0, T0), (1, back)]
    balanced()


def test_unknown_memory_waits_and_is_metered_when_it_is_known(cluster: Cluster) -> None:
    """No share can be computed of a card whose memory nobody knows: unknown, not zero, and retried."""
    tenant = make_tenant("vision")
    gpu_type = make_gpu_type("a100", memory_mib=0)
    make_node(cluster, gpu_type=gpu_type, sharing="hami")
    claim_namespaces(cluster, tenant, ["v"])
    observe(cluster, pod_evidence("a", namespace="v", node="node-0", gpu=1, gpumem=20_480, start=T0))
    set_watermark(cluster, T0 + 2 * HOUR)
    meter_cluster(cluster.pk)
    assert rows() == []
    assert "memory of its cards is not known" in MeterProgress.objects.get().unmetered["uid-a"]["reason"]
    gpu_type.memory_mib = 81_920
    gpu_type.save()
    meter_cluster(cluster.pk)
    assert totals() == 2 * CARD_HOUR // 4
    assert MeterProgress.objects.get().unmetered == {}


def test_hami_over_commit_is_charged_and_conserved(cluster: Cluster) -> None:
    """60 %/10 % and 30 %/80 % fit one card, and charge 1.4; physically they are one card."""
    tenant = make_tenant("vision")
    node = make_node(cluster, gpu_type=make_gpu_type("a100", memory_mib=100_000), sharing="hami", cards=1)
    claim_namespaces(cluster, tenant, ["v"])
    for name, memory, cores in (("a", 60_000, 10), ("b", 30_000, 80)):
        observe(cluster, pod_evidence(name, namespace="v", node="node-0", gpu=1, gpumem=memory, gpucores=cores,
                                      start=T0))  # fmt: skip
    set_watermark(cluster, T0 + HOUR)
    meter_cluster(cluster.pk)
    assert totals() == CARD_HOUR * 14 // 10
    with system_scope("test"):
        hour = CapacityHour.objects.get(node=node)
        assert (hour.tenants, hour.idle, hour.difference) == (CARD_HOUR, 0, 0)
        physical = sum(UsageRecord.objects.values_list("physical", flat=True))
    assert physical == CARD_HOUR


def test_a_forged_record_is_charged_by_the_requests_and_flagged(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Three pods ask for half a card and say that HAMi gave them a tenth. Only one of them may be believed."""
    tenant = make_tenant("vision")
    node = make_node(cluster, gpu_type=make_gpu_type("a100", memory_mib=80_000), sharing="hami", cards=2)
    for name in ("GPU-0", "GPU-1"):
        Device.objects.create(cluster=cluster, node=node, uuid=name, memory_mib=80_000, first_seen_at=T0)
    claim_namespaces(cluster, tenant, ["v"])
    for name, scheduler, card in (
        ("honest", "hami-scheduler", "GPU-0"),
        ("other-scheduler", "default-scheduler", "GPU-0"),
        ("no-such-card", "hami-scheduler", "GPU-9"),
    ):
        record = (("hami.io/bind-phase", "success"), ("hami.io/vgpu-devices-allocated", f"{card},NVIDIA,8000,10:;"))
        asking = pod_evidence(name, namespace="v", node="node-0", gpu=1, gpumem=40_000, gpucores=10, start=T0)
        observe(cluster, replace(asking, scheduler=scheduler, annotations=record))
    set_watermark(cluster, T0 + HOUR)
    meter_cluster(cluster.pk)
    with system_scope("test"):
        found = {one.pod_name: (one.share, one.device_uuid, one.by_request) for one in DeviceAllocation.objects.all()}
    assert found == {
        "honest": (100_000, "GPU-0", False),
        "other-scheduler": (500_000, "", True),
        "no-such-card": (500_000, "", True),
    }
    told = " ".join(record.getMessage() for record in caplog.records)
    assert "v/other-scheduler" in told
    assert "does not know GPU-9" in told
    assert "v/honest" not in told
    balanced()


def test_mig_slices(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    make_node(cluster, sharing="mig", cards=1)
    claim_namespaces(cluster, tenant, ["v"])
    observe(cluster, pod_evidence("a", namespace="v", node="node-0", start=T0, mig_3g_40gb=2))
    set_watermark(cluster, T0 + HOUR)
    meter_cluster(cluster.pk)
    with system_scope("test"):
        found = list(UsageRecord.objects.values_list("profile", "slices", "share", "milliseconds"))
    assert found == [("3g.40gb", 3, 428_571, 3_600_000)] * 2
    balanced()


def test_idle_of_a_dedicated_pool_is_its_tenants(cluster: Cluster) -> None:
    tenant = make_tenant("bank", zone="bank")
    make_tenant("other", zone="shared")
    make_node(cluster, cards=4, zone_id=tenant.zone_id)
    claim_namespaces(cluster, tenant, ["b"])
    observe(cluster, pod_evidence("a", namespace="b", node="node-0", gpu=1, start=T0, end=T0 + HOUR))
    set_watermark(cluster, T0 + 2 * HOUR)
    meter_cluster(cluster.pk)
    assert totals(tenant=tenant) == CARD_HOUR
    assert totals(bucket=Bucket.IDLE, tenant=tenant) == 7 * CARD_HOUR
    assert meter_cluster(cluster.pk).rows == 0
    balanced()


def test_whole_month_in_chunks_equals_hour_by_hour(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    make_node(cluster)
    claim_namespaces(cluster, tenant, ["v"])
    for number in range(5):
        start = T0 + timedelta(hours=7 * number, minutes=11 * number, seconds=number)
        observe(cluster, pod_evidence(f"p{number}", namespace="v", node="node-0", gpu=1, start=start,
                                      end=start + timedelta(hours=30, milliseconds=250)))  # fmt: skip
    set_watermark(cluster, T0 + timedelta(days=4))
    meter_cluster(cluster.pk)
    assert totals() == 5 * (30 * 3_600_000 + 250) * 1_000_000
    balanced()
    assert meter_again(cluster.pk, Interval(T0, T0 + timedelta(days=4))).rows == 0


def test_an_hour_is_cut_where_it_must_be(cluster: Cluster) -> None:
    """A rate that begins inside an hour cuts it, also an hour that was written before."""
    from tests.billing.factories import make_issuer, make_rate

    tenant = make_tenant("vision")
    make_node(cluster)
    claim_namespaces(cluster, tenant, ["v"])
    observe(cluster, pod_evidence("a", namespace="v", node="node-0", gpu=1, start=T0))
    set_watermark(cluster, T0 + 2 * HOUR)
    meter_cluster(cluster.pk)
    issuer = make_issuer()
    make_rate(issuer, "2.00", valid_from=T0 + 20 * MINUTE)
    meter_cluster(cluster.pk)
    with system_scope("test"):
        slots: dict[Any, int] = {}
        for slot, ms in UsageRecord.objects.values_list("slot", "milliseconds"):
            slots[slot] = slots.get(slot, 0) + ms
    assert slots == {T0: 1_200_000, T0 + 20 * MINUTE: 2_400_000, T0 + HOUR: 3_600_000}
    balanced()


# --- kills -----------------------------------------------------------------------------------------------------------


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("step", ["allocations_update", "capacity_write", "usage_write", "idle_usage_write"])
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_each_step(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: str, after: bool) -> None:
    """Whatever step the process dies in, before or after its write: the next run ends at the same usage."""
    tenant = make_tenant("vision")
    make_node(cluster)
    claim_namespaces(cluster, tenant, ["v"])
    observe(cluster, pod_evidence("a", namespace="v", node="node-0", gpu=2, start=T0 + 30 * MINUTE))
    set_watermark(cluster, T0 + 2 * HOUR)
    meter_cluster(cluster.pk)
    observe(
        cluster,
        pod_evidence("a", namespace="v", node="node-0", gpu=2, start=T0 + 30 * MINUTE, end=T0 + 75 * MINUTE),
        pod_evidence("b", namespace="v", node="node-0", gpu=1, start=T0 + 90 * MINUTE),
    )
    set_watermark(cluster, T0 + 4 * HOUR)
    real: Callable[..., Any] = getattr(metering, step)

    def dying(*args: Any, **kwargs: Any) -> Any:
        if after:
            real(*args, **kwargs)
        raise KilledError

    monkeypatch.setattr(metering, step, dying)
    with pytest.raises(KilledError):
        meter_cluster(cluster.pk)
    monkeypatch.undo()
    meter_cluster(cluster.pk)
    assert totals() == 2 * CARD_HOUR * 45 // 60 + CARD_HOUR * 150 // 60
    balanced()
    assert meter_cluster(cluster.pk).rows == 0


def test_partitions_by_month(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    make_node(cluster)
    claim_namespaces(cluster, tenant, ["v"])
    observe(cluster, pod_evidence("a", namespace="v", node="node-0", gpu=1, start=T0 + timedelta(days=29, hours=23)))
    set_watermark(cluster, T0 + timedelta(days=30, hours=1))
    meter_cluster(cluster.pk)
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r' AND relname LIKE "
                       "'billing_usagerecord_%' ORDER BY 1")  # fmt: skip
        names = [row[0] for row in cursor.fetchall()]
    assert names == ["billing_usagerecord_2026_11", "billing_usagerecord_2026_12"]


def test_summary_by_type(cluster: Cluster) -> None:
    node: Node = make_node(cluster)
    set_watermark(cluster, T0 + 2 * HOUR)
    meter_cluster(cluster.pk)
    with system_scope("test"):
        [row] = capacity_by_type(Interval(T0, T0 + 2 * HOUR))
    assert row.cluster == node.cluster.slug
    assert (row.buckets["idle"], row.in_service, row.balance) == (16 * CARD_HOUR, 16 * CARD_HOUR, 0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_conservation_of_a_random_fleet(cluster: Cluster, seed: int) -> None:
    """Whatever pods come and go on whole, HAMi and MIG nodes, cordons included: each hour's buckets are its cards."""
    rng = random.Random(seed)
    tenant = make_tenant("vision")
    claim_namespaces(cluster, tenant, ["mine"])
    nodes = {
        "whole": make_node(cluster, "whole-0", cards=4),
        "hami": make_node(cluster, "hami-0", gpu_type=make_gpu_type("a100", 80_000), sharing="hami", cards=2),
        "mig": make_node(cluster, "mig-0", sharing="mig", cards=2),
    }
    for number in range(12):
        kind = rng.choice(list(nodes))
        start = T0 + timedelta(seconds=rng.randrange(5 * 3600), milliseconds=rng.randrange(1000))
        end = start + timedelta(seconds=rng.randrange(1, 4 * 3600)) if rng.random() < 0.7 else None
        asks: dict[str, int] = {
            "whole": {"gpu": 1},
            "hami": {"gpu": 1, "gpumem": rng.randrange(1_000, 80_000), "gpucores": rng.randrange(1, 100)},
            "mig": {"mig_1g_10gb": rng.randrange(1, 3)},
        }[kind]
        observe(
            cluster,
            pod_evidence(
                f"p{number}",
                namespace=rng.choice(["mine", "nobodys", "kube-system"]),
                node=f"{kind}-0",
                bound=start - timedelta(seconds=rng.randrange(900)) if rng.random() < 0.5 else None,
                start=start,
                end=end,
                **asks,
            ),
        )
        if number == 6:
            set_watermark(cluster, T0 + 3 * HOUR)
            meter_cluster(cluster.pk)
    set_watermark(cluster, T0 + 9 * HOUR)
    meter_cluster(cluster.pk)
    assert meter_again(cluster.pk, Interval(T0, T0 + 9 * HOUR)).rows == 0
    with system_scope("test"):
        hours = list(CapacityHour.objects.all())
        assert len(hours) == 3 * 9
        assert [hour for hour in hours if hour.difference or hour.outside] == []
        by_bucket = {
            bucket: sum(UsageRecord.objects.filter(bucket=bucket).values_list("physical", flat=True))
            for bucket in ("tenants", "starting", "unattributed", "overhead")
        }
        for bucket, physical in by_bucket.items():
            assert physical == sum(getattr(hour, bucket) for hour in hours), bucket
        assert sum(hour.in_service for hour in hours) == 8 * 9 * CARD_HOUR


# --- how it is called ------------------------------------------------------------------------------------------------


def test_through_the_work_queue(cluster: Cluster) -> None:
    """A mark of the watcher's, or the tick, has the cluster metered; nothing new parks it."""
    tenant = make_tenant("vision")
    make_node(cluster)
    claim_namespaces(cluster, tenant, ["v"])
    observe(cluster, pod_evidence("a", namespace="v", node="node-0", gpu=1, start=T0))
    set_watermark(cluster, T0 + 2 * HOUR)
    meter_hours()
    item = WorkItem.objects.get(kind="metering", object_id=cluster.pk)
    assert workqueue.run_item(item.pk) == workqueue.Done()
    assert totals() == 2 * CARD_HOUR
    assert workqueue.run_item(item.pk) is None, "parked"


def test_the_command(cluster: Cluster) -> None:
    make_node(cluster)
    observe(cluster, pod_evidence("a", namespace="v", node="node-0", gpu=1, start=T0))
    set_watermark(cluster, T0 + 2 * HOUR)
    out = StringIO()
    call_command("meter", cluster="east", stdout=out)
    call_command("meter", cluster="all", start="2026-11-01T00:00:00Z", end="2026-11-01T02:00:00Z", stdout=out)
    assert out.getvalue().splitlines() == [
        "east: 2 rows added; final until 2026-11-01 02:00 UTC",
        "east: 0 rows added; final until 2026-11-01 02:00 UTC",
    ]
    with pytest.raises(CommandError, match="no cluster nowhere"):
        call_command("meter", cluster="nowhere")


@pytest.mark.parametrize(
    "absurd", [{"gpu": 10**9}, {"gpu": 1, "cpu": 10**18}, {"gpu": 1, "memory_gib": 10**15}, {"mig_1g_10gb": 10**9},
               {"gpu": 1, "gpumem": 9 * 10**18, "gpucores": 10**12}, {"gpu": 10**9, "gpumem": 1}],
)  # fmt: skip
def test_a_pod_that_asks_for_more_than_there_can_be_stops_nobody_elses_metering(
    cluster: Cluster, absurd: dict[str, int]
) -> None:
    """Who may make pods may name the node, whatever the pod asks for; the kubelet refuses it, and it is seen."""
    tenant = make_tenant("vision")
    sharing = "hami" if "gpumem" in absurd else "mig" if "mig_1g_10gb" in absurd else "whole"
    make_node(cluster, "node-0", sharing=sharing)
    make_node(cluster, "node-1", sharing="whole")
    claim_namespaces(cluster, tenant, ["team-vision"])
    observe(cluster, pod_evidence("absurd", namespace="nobodys", node="node-0", start=T0, end=T0 + MINUTE, **absurd),
            pod_evidence("plain", namespace="team-vision", node="node-1", start=T0, end=T0 + HOUR, gpu=1))  # fmt: skip
    set_watermark(cluster, T0 + HOUR)
    meter_cluster(cluster.pk)
    assert totals() == CARD_HOUR
