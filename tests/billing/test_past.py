"""The past rebuilt from Prometheus: evidence, metering, conservation, and the statement that is on no bill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection

from billing.models import Bill, BillingPeriod, CapacityHour, DeviceAllocation, MeterProgress, UsageRecord
from billing.selectors.bills import unmetered_pods
from billing.selectors.conservation import imbalances
from billing.selectors.costs import bill_preview
from billing.selectors.past import past_month, past_month_named, past_months, past_tenants, platform_past_months
from billing.selectors.periods import first_usage, periods_known
from billing.selectors.usage import usage_table
from billing.services.close import period_close
from billing.services.metering import meter_cluster
from infra.models import CapacitySpan, Cluster, ClusterEndpoint, Node, PodObservation, Rebuild
from infra.models.evidence import EvidenceSource
from infra.reconcilers import rebuild as reconciler
from infra.selectors.history import history_of, rebuilt
from infra.services import rebuilding
from infra.services.rebuilds import rebuild_cancel, rebuild_pause, rebuild_resume, rebuild_start
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_VIEWER, Actor
from portal.kernel.clock import HOUR, Interval, time_source
from portal.kernel.models import WorkItem
from portal.kernel.problems import Conflict, Forbidden, Invalid
from portal.kernel.scoping import system_scope, tenant_scope
from portal.kernel.workqueue import run_item
from tests.billing.factories import (
    FINANCE,
    claim_namespaces,
    make_cluster,
    make_gpu_type,
    make_issuer,
    make_node,
    make_rate,
    make_tenant,
    month,
    observe,
    pod_evidence,
    set_watermark,
)
from tests.support.history import MadeHistory, MadeNode, MadePod, counted
from tests.support.pastserver import PastServer, serve

pytestmark = pytest.mark.django_db

BEGIN = datetime(2026, 10, 30, tzinfo=UTC)
CONNECTED = datetime(2026, 11, 1, 6, 10, 20, tzinfo=UTC)
T = int(BEGIN.timestamp())
END = int(CONNECTED.timestamp())
DAY = timedelta(days=1)
ADMIN = Actor(kind="user", name="platform-admin", platform_role=PLATFORM_ADMIN)
VIEWER = Actor(kind="user", name="viewer", platform_role=PLATFORM_VIEWER)
CARD_HOUR = 3_600_000 * 1_000_000
PRODUCT = "NVIDIA-H100-80GB-HBM3"
MIB = 1024 * 1024


def made() -> MadeHistory:
    """Two days: a job that finished, one that was deleted, a StatefulSet's pod made again, one that still ran when the
    cluster was connected, one in a namespace of nobody, a node that was taken away. A gap of an hour."""
    return MadeHistory(
        [MadeNode("node-0"), MadeNode("node-1", until=T + 30 * 3600)],
        [
            MadePod("j1", "v", "job", "node-0", T + 3605, T + 3641, T + 3605 + 20_000, finished=True,
                    requests={"nvidia_com_gpu": 2}),
            MadePod("d1", "v", "dead", "node-1", T + 7205, T + 7300, T + 100_123),
            MadePod("s1", "w", "web-0", "node-0", T + 40_005, T + 40_700, T + 50_000),
            MadePod("s2", "w", "web-0", "node-0", T + 50_060, T + 50_100, T + 60_000, finished=True),
            MadePod("run", "v", "serve", "node-0", T + 80_005, T + 80_020, restarts=(T + 150_000,),
                    requests={"nvidia_com_gpu": 4}),
            MadePod("n1", "nobodys", "lost", "node-0", T + 10_005, T + 10_010, T + 20_010, finished=True),
        ],
        T, END, interval=60, gaps=((T + 120_000, T + 123_600),),
    )  # fmt: skip


@pytest.fixture(scope="module")
def history() -> MadeHistory:
    return made()


@pytest.fixture(scope="module")
def server(history: MadeHistory) -> Iterator[PastServer]:
    with serve(history.store()) as running:
        yield running


@pytest.fixture(autouse=True)
def calm(server: PastServer, settings: Any) -> None:
    settings.AIF_HISTORY_DAYS = 20
    settings.AIF_HISTORY_QUERIES_PER_MINUTE = 1_000_000
    server.troubles, server.warnings, server.longest = [], [], 0
    server.asked = []


@pytest.fixture
def cluster(server: PastServer) -> Cluster:
    """Connected and watched since CONNECTED: node-0 is there, and the serving pod, restarted since it started."""
    row = make_cluster(since=CONNECTED)
    make_node(row, gpu_type=_h100(), since=CONNECTED + timedelta(seconds=1))
    observe(
        row,
        pod_evidence("serve", uid="run", namespace="v", node="node-0", gpu=4, bound=_at(80_005), start=_at(150_000)),
        pod_evidence("new", namespace="v", node="node-0", gpu=1, start=CONNECTED + HOUR),
    )
    ClusterEndpoint.objects.create(cluster=row, role="metrics", via="direct", url=server.url)
    return row


def _h100() -> Any:
    row = make_gpu_type("nvidia-h100-80gb-hbm3", memory_mib=81_559)
    row.product = PRODUCT
    row.save()
    return row


def _at(seconds: int) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def run(rebuild: Rebuild, *, most: int = 500, meter: bool = False) -> Rebuild:
    """Let the work queue do it, window by window."""
    for _ in range(most):
        rebuild.refresh_from_db()
        if rebuild.state not in ("pending", "running"):
            break
        WorkItem.objects.filter(kind="rebuild", object_id=rebuild.pk).update(next_attempt_at=CONNECTED, not_before=None)
        item = WorkItem.objects.get(kind="rebuild", object_id=rebuild.pk)
        assert run_item(item.pk) is not None, WorkItem.objects.get(pk=item.pk).last_error
        if meter:
            metered(rebuild.cluster)
    rebuild.refresh_from_db()
    return rebuild


def metered(cluster: Cluster) -> None:
    while not meter_cluster(cluster.pk, budget_seconds=600).done:
        pass


def whole(cluster: Cluster, **more: Any) -> Rebuild:
    done = run(rebuild_start(cluster=cluster, actor=ADMIN, **more))
    assert (done.state, done.last_error) == ("done", "")
    return done


def seconds(**filters: Any) -> dict[str, Decimal]:
    """Namespace → charged card-seconds of rebuilt time."""
    found: dict[str, Decimal] = {}
    with system_scope("test"):
        rows = UsageRecord.objects.filter(source="retroactive", bucket="tenants", **filters)
        for namespace, charged in rows.values_list("namespace", "charged"):
            found[namespace] = found.get(namespace, Decimal(0)) + Decimal(charged) / 1_000_000_000
    return found


def state() -> list[Any]:
    """All that a run writes."""
    with system_scope("test"):
        return [
            sorted(PodObservation.objects.values_list("uid", "evidence", "past", "changed_seq", "ended_at"), key=str),
            sorted(
                CapacitySpan.objects.values_list("node__name", "started_at", "ended_at", "cards", "source"), key=str
            ),
            sorted(Node.objects.values_list("uid", "gone_at", "first_seen_at"), key=str),
        ]


# --- the story -------------------------------------------------------------------------------------------------------


def test_two_days_are_rebuilt_as_they_were(cluster: Cluster, history: MadeHistory) -> None:
    """Each namespace's seconds are those of a slow count by hand, within the stated error; and all of them add up."""
    vision, web = make_tenant("vision"), make_tenant("web")
    claim_namespaces(cluster, vision, ["v"])
    claim_namespaces(cluster, web, ["w"])
    done = whole(cluster)
    set_watermark(cluster, CONNECTED + 5 * HOUR)
    metered(cluster)

    wanted = counted(history.pods, T, END)
    found = seconds()
    # The deleted pod ends between two scrapes, proved to the one before; all else is exact.
    assert found["w"] == wanted["w"] - (50_000 - 49_980) + Decimal("0.137")
    assert found["v"] == wanted["v"] - (100_123 - 100_080) + Decimal("0.137")
    assert (done.pods, done.pods_proved) == (6, 1)
    short = sum(wanted[name] - found[name] for name in ("v", "w"))
    assert 0 <= short * 1000 <= done.error_ms

    with system_scope("test"):
        assert not imbalances(Interval(BEGIN - DAY, CONNECTED + DAY)).exists()
        hours = CapacityHour.objects.filter(hour__lt=CONNECTED)
        assert {row.source for row in hours} == {"retroactive"}
        lost = UsageRecord.objects.filter(namespace="nobodys", bucket="unattributed", source="retroactive")
        assert sum(lost.values_list("milliseconds", flat=True)) == 10_000_000
        progress = MeterProgress.objects.get(cluster=cluster)
        assert progress.metered_from == BEGIN.replace(minute=0)
        gone = Node.objects.get(cluster=cluster, name="node-1")
        assert gone.uid == "past:node-1"
        assert gone.gone_at is not None
    assert len(done.gaps) == 1


def test_what_the_watch_proved_is_not_touched(cluster: Cluster) -> None:
    claim_namespaces(cluster, make_tenant("vision"), ["v"])
    set_watermark(cluster, CONNECTED + 5 * HOUR)
    metered(cluster)
    with system_scope("test"):
        before = list(
            DeviceAllocation.objects.order_by("pk").values_list("pk", "started_at", "ended_at", "source", "first_day")
        )
        usage = list(UsageRecord.objects.order_by("seq").values_list("seq", "slot", "milliseconds", "source"))
        watched = list(PodObservation.objects.order_by("uid").values_list("uid", "evidence", "changed_seq"))
        spans = list(CapacitySpan.objects.values_list("pk", "started_at", "ended_at", "changed_seq"))
    whole(cluster)
    metered(cluster)
    with system_scope("test"):
        rows = DeviceAllocation.objects.order_by("pk")
        kept = rows.exclude(source="retroactive").values_list("pk", "started_at", "ended_at", "source", "first_day")
        assert list(kept) == before
        past = rows.filter(source="retroactive")
        assert {row.ended_at for row in past.filter(pod_uid="past:run", bucket="tenants")} == {CONNECTED}
        assert {row.started_at for row in past.filter(pod_uid="past:run", bucket="tenants")} == {_at(80_020)}, (
            "the API has forgotten the first start, history has not"
        )
        assert all(row.proved_by_api for row in past.filter(pod_uid="past:run"))
        assert all(row.ended_at is not None and row.ended_at <= CONNECTED for row in past)
        # The second between the first lists of pods and nodes has its capacity now: what is charged stays.
        unchanged = UsageRecord.objects.exclude(source="retroactive").exclude(charged=0).order_by("seq")
        assert list(unchanged.values_list("seq", "slot", "milliseconds", "source")) == usage
        rest = PodObservation.objects.exclude(source=EvidenceSource.RETROACTIVE).order_by("uid")
        assert list(rest.values_list("uid", "evidence", "changed_seq")) == watched
        own = CapacitySpan.objects.exclude(source="retroactive")
        assert list(own.values_list("pk", "started_at", "ended_at", "changed_seq")) == spans


def test_doing_it_again_changes_nothing(cluster: Cluster) -> None:
    claim_namespaces(cluster, make_tenant("vision"), ["v"])
    whole(cluster)
    set_watermark(cluster, CONNECTED + 2 * HOUR)
    metered(cluster)
    before = state()
    with system_scope("test"):
        rows = UsageRecord.objects.count()
    whole(cluster, since=BEGIN - DAY)
    assert state() == before
    metered(cluster)
    with system_scope("test"):
        assert UsageRecord.objects.count() == rows


def test_metering_while_it_goes_back_gives_the_same(cluster: Cluster) -> None:
    claim_namespaces(cluster, make_tenant("vision"), ["v", "w"])
    set_watermark(cluster, CONNECTED + 2 * HOUR)
    first = rebuild_start(cluster=cluster, actor=ADMIN)
    Rebuild.objects.filter(pk=first.pk).update(window_seconds=3 * 3600)
    run(first, meter=True)
    bit_by_bit = seconds()
    with system_scope("test"):
        assert not imbalances(Interval(BEGIN - DAY, CONNECTED + DAY)).exists()
    other = make_cluster("west", since=CONNECTED)
    make_node(other, gpu_type=_h100(), since=CONNECTED + timedelta(seconds=1))
    observe(other, pod_evidence("serve", uid="run", namespace="v", node="node-0", gpu=4, bound=_at(80_005),
                                start=_at(150_000)))  # fmt: skip
    endpoint = ClusterEndpoint.objects.get()
    ClusterEndpoint.objects.create(cluster=other, role="metrics", via="direct", url=endpoint.url)
    claim_namespaces(other, make_tenant("again"), ["v", "w"])
    whole(other)
    set_watermark(other, CONNECTED + 2 * HOUR)
    metered(other)
    assert seconds(cluster=other) == bit_by_bit


def test_killed_in_a_window_it_goes_on_and_doubles_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    whole(cluster)
    wanted = state()
    with system_scope("test"), connection.cursor() as cursor:
        cursor.execute("DELETE FROM infra_podobservation WHERE source = 'retroactive'")
        cursor.execute("DELETE FROM infra_capacityspan WHERE source = 'retroactive'")
        cursor.execute("DELETE FROM infra_node WHERE uid LIKE 'past:%'")
        cursor.execute("DELETE FROM infra_rebuild")
        cursor.execute("UPDATE infra_changecounter SET value = 3")
    store, calls = rebuilding.store_past_nodes, []

    def dies(*args: Any, **more: Any) -> Any:
        calls.append(1)
        found = store(*args, **more)
        if len(calls) % 2:
            raise SystemExit  # after everything of the window was written, before it was committed
        return found

    monkeypatch.setattr(rebuilding, "store_past_nodes", dies)
    rebuild = rebuild_start(cluster=cluster, actor=ADMIN)
    for _ in range(50):
        try:
            run(rebuild, most=1)
        except SystemExit:
            WorkItem.objects.filter(kind="rebuild").update(lease_until=None)
        rebuild.refresh_from_db()
        if rebuild.state == "done":
            break
    assert rebuild.state == "done"
    assert len(calls) > 2
    without_numbers = [[(*row[:3], row[4]) for row in wanted[0]], *wanted[1:]]
    found = state()
    assert [[(*row[:3], row[4]) for row in found[0]], *found[1:]] == without_numbers


# --- on no bill ------------------------------------------------------------------------------------------------------


def test_it_is_a_statement_of_its_own_and_on_no_bill(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    claim_namespaces(cluster, tenant, ["v"])
    issuer = make_issuer(grace_hours=1)
    make_rate(issuer, "2.50", gpu_type=_h100())
    whole(cluster)
    now = datetime(2026, 12, 2, tzinfo=UTC)
    set_watermark(cluster, now)
    with time_source(lambda: now):
        metered(cluster)
        with system_scope("test"):
            assert first_usage() == CONNECTED.replace(minute=0, second=0)
            assert [str(row) for row in periods_known(issuer)] == ["2026-11", "2026-12"]
        assert period_close(period=month(issuer), actor=FINANCE).made == 1
    with tenant_scope(tenant.pk):
        bill = Bill.objects.get()
        # serve: 4 cards from CONNECTED, new: 1 card from an hour later, both to the month's end.
        until = datetime(2026, 12, 1, tzinfo=UTC)
        hours = 4 * (until - CONNECTED) + (until - CONNECTED - HOUR)
        assert bill.total == (Decimal(str(hours / HOUR)) * Decimal("2.50")).quantize(Decimal("0.01"))
        assert [one.label for one in past_months(tenant.pk, issuer)] == ["2026-11", "2026-10"]
        october = past_month_named(tenant.pk, issuer, "2026-10")
        november = past_month(tenant.pk, issuer, past_months(tenant.pk, issuer)[0])
        assert october.unpriced == 0
        assert october.total.amount == (october.gpu_hours * Decimal("2.50")).quantize(Decimal("0.01"))
        assert sum(line.amount for line in october.lines if line.amount) == october.total.amount
        assert november.proved_hours == november.gpu_hours, "only the pod that still ran then"
        since = CONNECTED - datetime(2026, 11, 1, tzinfo=UTC)
        assert november.gpu_hours == (Decimal(str(since / HOUR)) * 4).quantize(Decimal("0.000001"))
        assert november.error_hours == 0
        assert october.error_hours > 0, "a pod that was deleted between two scrapes"
        assert sum(line.error for line in october.lines) == october.error_hours
        preview = bill_preview(tenant.pk, now=now)
        assert preview is not None
        assert preview.late == 0
        table = usage_table(tenant.pk, issuer, Interval(BEGIN - DAY, now))
        past = [row for row in table.rows if row.key.retroactive]
        assert sum(row.gpu_hours for row in past) == table.past.gpu_hours
        assert abs(table.past.gpu_hours - october.gpu_hours - november.gpu_hours) < Decimal("0.00001")
    with system_scope("test"):
        assert [one.label for one in platform_past_months(issuer)] == ["2026-11", "2026-10"]
        rows = past_tenants(issuer, platform_past_months(issuer)[1])
        assert [(row.tenant.slug, row.statement.total) for row in rows] == [("vision", october.total)]
        assert BillingPeriod.objects.filter(starts_at__lt=datetime(2026, 11, 1, tzinfo=UTC)).count() == 0


def test_a_closed_period_is_never_changed_by_the_past(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    claim_namespaces(cluster, tenant, ["v"])
    issuer = make_issuer(grace_hours=1)
    make_rate(issuer, "2.50", gpu_type=_h100())
    now = datetime(2026, 12, 2, tzinfo=UTC)
    set_watermark(cluster, now)
    with time_source(lambda: now):
        metered(cluster)
        assert period_close(period=month(issuer), actor=FINANCE).made == 1
        with system_scope("test"):
            bill = Bill.objects.get()
        whole(cluster)
        metered(cluster)
        with tenant_scope(tenant.pk):
            preview = bill_preview(tenant.pk, now=now)
            assert preview is not None
            assert preview.late == 0
            again = Bill.objects.get()
            assert (again.total, again.digest) == (bill.total, bill.digest)
            from billing.selectors.bills import bill_is_reproducible

            assert bill_is_reproducible(again)


def test_what_had_no_rate_then_is_told(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    claim_namespaces(cluster, tenant, ["v"])
    issuer = make_issuer()
    make_rate(issuer, "2.50", gpu_type=_h100(), valid_from=datetime(2026, 11, 1, tzinfo=UTC))
    whole(cluster)
    set_watermark(cluster, CONNECTED + HOUR)
    metered(cluster)
    with tenant_scope(tenant.pk):
        october = past_month_named(tenant.pk, issuer, "2026-10")
        assert october.unpriced == len(october.lines) > 0
        assert october.total.amount == 0
        assert october.gpu_hours > 0


def test_a_claim_set_into_the_past_moves_its_hours(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    whole(cluster)
    set_watermark(cluster, CONNECTED + HOUR)
    metered(cluster)
    assert seconds() == {}
    claim_namespaces(cluster, tenant, ["v"], start=BEGIN)
    metered(cluster)
    assert set(seconds()) == {"v"}


# --- gently ----------------------------------------------------------------------------------------------------------


def test_too_many_samples_halves_the_window(cluster: Cluster, server: PastServer) -> None:
    server.longest = 30_000
    done = whole(cluster)
    assert done.windows_done > 5
    server.longest = 0
    before = state()
    assert before[0]


def test_an_overloaded_server_is_left_alone_for_as_long_as_it_asks(cluster: Cluster, server: PastServer) -> None:
    rebuild = rebuild_start(cluster=cluster, actor=ADMIN)
    server.troubles = [(429, {"status": "error", "error": "slow down"}, {"Retry-After": "37"})]
    item = WorkItem.objects.get(kind="rebuild")
    outcome = run_item(item.pk)
    assert getattr(outcome, "seconds", 0) >= 37
    rebuild.refresh_from_db()
    assert (rebuild.state, rebuild.failures) == ("pending", 1)
    assert "slow down" in rebuild.last_error
    assert run(rebuild).state == "done"
    assert rebuild.failures == 0


def test_a_partial_answer_is_not_taken_for_an_end(cluster: Cluster, server: PastServer) -> None:
    rebuild = rebuild_start(cluster=cluster, actor=ADMIN)
    run(rebuild, most=1)
    server.warnings = ["fetch from store gateway: unavailable"]
    run(rebuild, most=1)
    assert rebuild.windows_done == 0
    assert "may lack data" in rebuild.last_error
    server.warnings = []
    assert run(rebuild).state == "done"


def test_credentials_that_are_refused_end_it_and_it_can_be_resumed(cluster: Cluster, server: PastServer) -> None:
    rebuild = rebuild_start(cluster=cluster, actor=ADMIN)
    run(rebuild, most=1)
    server.troubles = [(401, {"status": "error", "error": "no"}, {})] * 3
    assert run(rebuild).state == "failed"
    assert "credentials" in rebuild.last_error
    assert rebuild_resume(rebuild=rebuild, actor=ADMIN).state == "running"
    assert run(rebuild).state == "done"


def test_between_two_windows_it_rests(cluster: Cluster, settings: Any) -> None:
    settings.AIF_HISTORY_QUERIES_PER_MINUTE = 60
    rebuild = rebuild_start(cluster=cluster, actor=ADMIN)
    run(rebuild, most=1)
    WorkItem.objects.filter(kind="rebuild").update(next_attempt_at=CONNECTED, not_before=None)
    outcome = run_item(WorkItem.objects.get(kind="rebuild").pk)
    assert getattr(outcome, "seconds", 0) > 10


def test_no_history_is_said(cluster: Cluster, settings: Any) -> None:
    rebuild = rebuild_start(cluster=cluster, actor=ADMIN)
    edge = BEGIN - 5 * DAY
    Rebuild.objects.filter(pk=rebuild.pk).update(until_at=edge, cursor=edge, searched_to=edge)
    done = run(rebuild)
    assert done.state == "failed"
    assert "kube_node_info" in done.last_error


# --- who may, and when -----------------------------------------------------------------------------------------------


def test_pause_resume_cancel(cluster: Cluster) -> None:
    rebuild = rebuild_start(cluster=cluster, actor=ADMIN)
    assert rebuild_pause(rebuild=rebuild, actor=ADMIN).state == "paused"
    assert run(rebuild).windows_done == 0
    with pytest.raises(Conflict, match="under way"):
        rebuild_start(cluster=cluster, actor=ADMIN)
    rebuild_resume(rebuild=rebuild, actor=ADMIN)
    run(rebuild, most=2)
    rebuild_cancel(rebuild=rebuild, actor=ADMIN)
    assert run(rebuild).state == "cancelled"
    assert rebuilt(cluster.pk) is not None, "what was rebuilt stays"
    with pytest.raises(Conflict):
        rebuild_resume(rebuild=rebuild, actor=ADMIN)
    assert rebuild_start(cluster=cluster, actor=ADMIN).state == "pending"


def test_a_window_that_was_read_before_a_pause_is_not_written(cluster: Cluster) -> None:
    rebuild = rebuild_start(cluster=cluster, actor=ADMIN)
    run(rebuild, most=1)
    rebuild.refresh_from_db()
    window = rebuilding.Window(BEGIN, rebuild.cursor, rebuilding.Scrapes())
    rebuild_pause(rebuild=rebuild, actor=ADMIN)
    with system_scope("test"):
        assert rebuilding.store_window(rebuild.pk, window) is None


def test_who_may_not_and_what_can_not_be(cluster: Cluster) -> None:
    with pytest.raises(Forbidden):
        rebuild_start(cluster=cluster, actor=VIEWER)
    with pytest.raises(Invalid, match="watch proves"):
        rebuild_start(cluster=cluster, actor=ADMIN, since=CONNECTED + HOUR)
    ClusterEndpoint.objects.all().delete()
    with pytest.raises(Conflict, match="no Prometheus"):
        rebuild_start(cluster=cluster, actor=ADMIN)


def test_a_pod_whose_share_can_not_be_computed_blocks_no_bill(cluster: Cluster) -> None:
    whole(cluster)
    with system_scope("test"):
        CapacitySpan.objects.filter(node__uid="past:node-1").delete()
        Node.objects.filter(uid="past:node-1").delete()
    set_watermark(cluster, CONNECTED + HOUR)
    metered(cluster)
    with system_scope("test"):
        assert MeterProgress.objects.get(cluster=cluster).unmetered
        assert unmetered_pods() == []


def test_the_figures_of_the_page(cluster: Cluster) -> None:
    assert history_of(cluster).run is None
    whole(cluster)
    found = history_of(cluster)
    assert found.covered is not None
    assert found.covered.end == CONNECTED
    assert found.covered.start <= BEGIN + timedelta(minutes=2)
    assert found.pods == 6
    assert found.gap_ms >= 3_600_000
    assert found.proved_ms == (END - T - 80_005) * 1000
    assert found.run is not None
    assert found.run.progress == 100
    assert reconciler.WORK_KIND == "rebuild"


# --- shares, slices, old exporters -----------------------------------------------------------------------------------


def small(**more: Any) -> MadeHistory:
    """Six hours before the watch began: a HAMi node and a MIG node that are gone since."""
    start = END - 6 * 3600
    return MadeHistory(
        [
            MadeNode("h1", gpus=2, resources={"nvidia_com_gpu": 20}, hami=("GPU-1", "GPU-2"), until=END - 600),
            MadeNode("m1", gpus=1, resources={"nvidia_com_mig_1g_10gb": 7}, until=END - 600),
            MadeNode("node-0"),
        ],
        [
            MadePod("share", "v", "share", "h1", start + 605, start + 605, start + 605 + 3600, finished=True,
                    requests={"nvidia_com_gpu": 1, "nvidia_com_gpumem": 20_000, "nvidia_com_gpucores": 30},
                    grants=(("GPU-2", 20_000, 30),)),
            MadePod("slice", "v", "slice", "m1", start + 605, start + 605, start + 605 + 7200, finished=True,
                    requests={"nvidia_com_mig_1g_10gb": 2}),
            MadePod("run", "v", "serve", "node-0", start + 1205, start + 1205),
        ],
        start, END, interval=60, **more,
    )  # fmt: skip


def test_shares_and_slices_of_nodes_that_are_gone(cluster: Cluster) -> None:
    claim_namespaces(cluster, make_tenant("vision"), ["v"])
    with serve(small().store()) as own:
        ClusterEndpoint.objects.update(url=own.url)
        whole(cluster, since=CONNECTED - DAY)
    set_watermark(cluster, CONNECTED + HOUR)
    metered(cluster)
    with system_scope("test"):
        share = DeviceAllocation.objects.get(pod_uid="past:share", bucket="tenants")
        assert (share.share, share.device_uuid, share.sharing) == (300_000, "GPU-2", "hami")
        assert (share.memory_mib, share.cores, share.card_memory_mib) == (20_000, 30, 81_559)
        slices = DeviceAllocation.objects.filter(pod_uid="past:slice", bucket="tenants")
        assert {(row.share, row.profile, row.sharing) for row in slices} == {(142_857, "1g.10gb", "mig")}
        assert slices.count() == 2
        used = UsageRecord.objects.filter(allocation_id=share.pk).values_list("milliseconds", flat=True)
        assert sum(used) == 3_600_000
        assert not imbalances(Interval(CONNECTED - DAY, CONNECTED + DAY)).exists()
        assert {row.source for row in CapacitySpan.objects.filter(node__name="h1")} == {"retroactive"}


def test_an_exporter_without_uids_and_a_pod_that_the_watch_knows(cluster: Cluster) -> None:
    start = END - 6 * 3600
    bound = datetime.fromtimestamp(start + 1205, UTC)
    serving = pod_evidence("serve", uid="run", namespace="v", node="node-0", gpu=1, bound=bound, start=bound)
    observe(cluster, replace(serving, created_at=bound - timedelta(seconds=5)))
    claim_namespaces(cluster, make_tenant("vision"), ["v"])
    with serve(small(uids=False).store()) as own:
        ClusterEndpoint.objects.update(url=own.url)
        done = whole(cluster, since=CONNECTED - DAY)
    assert (done.pods, done.pods_proved) == (3, 1)
    with system_scope("test"):
        uids = set(PodObservation.objects.filter(source="retroactive").values_list("uid", flat=True))
    assert "past:run" in uids
    assert len(uids) == 3
