"""Rules of the bill in their corner cases, from evidence to usage, capacity and money, by hand-computed figures."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.models import (
    Bill,
    BillLine,
    Bucket,
    CapacityHour,
    DeviceAllocation,
    Issuer,
    MeterProgress,
    UsageRecord,
)
from billing.prices import StoredPrices
from billing.selectors.bills import bill_is_reproducible
from billing.selectors.conservation import imbalances
from billing.selectors.costs import bill_preview
from billing.selectors.running import running_usage
from billing.services.close import period_close
from billing.services.metering import meter_cluster
from billing.services.rates import rate_end, rate_set
from infra.evidence import PodEvidence, missing
from infra.models import CapacitySpan, Cluster, Device, NamespaceClaim, Node
from infra.services.capacity import capacity_set, state_of
from infra.services.changes import lock_changes
from infra.services.claims import namespace_claim_end, namespace_claim_set
from portal.kernel.actors import Actor
from portal.kernel.clock import HOUR, Interval, time_source
from portal.kernel.problems import Conflict, Invalid
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.models import Tenant
from tests.billing.factories import (
    FINANCE,
    T0,
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

pytestmark = pytest.mark.django_db

SYSTEM = Actor.system("test")
CARD_HOUR = 3_600_000 * 1_000_000
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


@pytest.fixture
def tenant(cluster: Cluster) -> Tenant:
    row = make_tenant("vision")
    claim_namespaces(cluster, row, ["v"])
    return row


def used(bucket: str = Bucket.TENANTS, **filters: Any) -> Decimal:
    """Card-hours charged."""
    with system_scope("test"):
        rows = UsageRecord.objects.filter(bucket=bucket, **filters).values_list("charged", flat=True)
        return Decimal(sum(rows)) / CARD_HOUR


def fleet(**filters: Any) -> dict[str, Decimal]:
    """Card-hours by bucket, and what should be 0; those that are 0 are left out."""
    names = ("tenants", "idle", "starting", "overhead", "unavailable", "unattributed", "overbooked", "outside")
    with system_scope("test"):
        rows = list(CapacityHour.objects.filter(**filters))
        assert sum(row.difference for row in rows) == 0
    sums = {name: Decimal(sum(getattr(row, name) for row in rows)) / CARD_HOUR for name in names}
    return {name: value for name, value in sums.items() if value}


def meter(cluster: Cluster, until: datetime) -> None:
    set_watermark(cluster, until)
    meter_cluster(cluster.pk, budget_seconds=600)


def change(node: Node, at: datetime, **facts: Any) -> None:
    """The node's capacity changes as the watcher writes it; without facts it is out of service."""
    with system_scope("test"):
        changes = lock_changes(node.cluster_id)
        span = CapacitySpan.objects.filter(node=node).latest("started_at")
        state = replace(state_of(span), **facts) if facts else None
        capacity_set(node, state, at=at, changes=changes)
        if state is None:
            Node.objects.filter(pk=node.pk).update(gone_at=at)
        changes.save()


def running(name: str, start: datetime, node: str = "node-0", namespace: str = "v", **more: Any) -> PodEvidence:
    return pod_evidence(name, namespace=namespace, node=node, start=start, **{"gpu": 1, **more})


# --- nodes -----------------------------------------------------------------------------------------------------------


def test_a_node_that_is_removed_while_it_is_lost_never_comes_back(cluster: Cluster, tenant: Tenant) -> None:
    """Lost at :20, removed at :30; its pod is cleared away at :50 and was charged for 20 minutes."""
    node = make_node(cluster)
    observe(cluster, running("a", T0))
    change(node, T0 + 20 * MINUTE, lost=True, unavailable_cards=8)
    change(node, T0 + 30 * MINUTE)
    observe(cluster, replace(running("a", T0), gone_at=T0 + 50 * MINUTE))
    meter(cluster, T0 + HOUR)
    assert used() == Decimal(1) / 3
    assert "outside" not in fleet()


def test_a_node_made_again_under_its_name(cluster: Cluster, tenant: Tenant) -> None:
    """A pod that was bound to the new one before we saw it is not charged to the old one's cards."""
    old = make_node(cluster)
    change(old, T0 + 30 * MINUTE)
    observe(cluster, running("early", T0 + 40 * MINUTE))
    meter(cluster, T0 + 2 * HOUR)
    with system_scope("test"):
        assert DeviceAllocation.objects.get().node_id == old.pk
    assert fleet() == {"idle": 4, "outside": Decimal(4) / 3}
    new = make_node_again(cluster, old, T0 + 40 * MINUTE + timedelta(seconds=1))
    meter(cluster, T0 + 3 * HOUR)
    with system_scope("test"):
        assert DeviceAllocation.objects.get().node_id == new.pk
    assert fleet(node=old) == {"idle": 4}
    assert fleet(node=new)["tenants"] == Decimal(8399) / 3600
    assert used() == Decimal(7) / 3


def make_node_again(cluster: Cluster, old: Node, since: datetime) -> Node:
    node = Node.objects.create(cluster=cluster, pool=old.pool, name=old.name, uid="uid-again", ready=True, cards=8,
                               first_seen_at=since)  # fmt: skip
    with system_scope("test"):
        changes = lock_changes(cluster.pk)
        state = state_of(CapacitySpan.objects.get(node=old))
        capacity_set(node, state, at=since, changes=changes)
        changes.save()
    return node


def test_cards_come_and_go_within_an_hour(cluster: Cluster, tenant: Tenant) -> None:
    node = make_node(cluster)
    observe(cluster, running("a", T0))
    change(node, T0 + 15 * MINUTE, cards=6)
    change(node, T0 + 45 * MINUTE, cards=7, unavailable_cards=1)
    meter(cluster, T0 + HOUR)
    assert fleet() == {"tenants": 1, "idle": Decimal("5.5"), "unavailable": Decimal("0.25")}


def test_a_pod_on_a_node_that_is_not_known_yet_waits_for_it(cluster: Cluster, tenant: Tenant) -> None:
    observe(cluster, running("a", T0))
    meter(cluster, T0 + HOUR)
    assert used() == 0
    assert "of which no card is known" in MeterProgress.objects.get().unmetered["uid-a"]["reason"]
    make_node(cluster)
    meter(cluster, T0 + 2 * HOUR)
    assert used() == 2
    assert fleet() == {"tenants": 2, "idle": 14}


# --- what is not certain ---------------------------------------------------------------------------------------------


def test_what_nobody_claimed_and_nobody_saw_end_displaces_nothing(cluster: Cluster, tenant: Tenant) -> None:
    """Proved until :20, missing at :50. A tenant's pod has the card from :30: it was there for sure."""
    make_node(cluster, cards=1)
    gone = missing(running("a", T0, namespace="nobodys"), relisted_at=T0 + 50 * MINUTE, last_proof=T0 + 20 * MINUTE)
    observe(cluster, gone, running("b", T0 + 30 * MINUTE))
    meter(cluster, T0 + HOUR)
    assert fleet() == {"tenants": Decimal("0.5"), "unattributed": Decimal("0.5")}


# --- idle time of one tenant's cards ---------------------------------------------------------------------------------


def test_reserved_idle_time_is_cut_where_its_price_changes(cluster: Cluster) -> None:
    """2 cards idle: 15 min at 1.00 and 45 min at 3.00, then 1 h at 3.00."""
    bank = make_tenant("bank", zone="bank")
    make_node(cluster, cards=2, zone_id=bank.zone_id)
    issuer = make_issuer()
    make_rate(issuer, "1.00")
    rate_set(card=issuer.rate_card, gpu_type=make_gpu_type(), sharing="whole", price=Decimal(3), actor=FINANCE,
             valid_from=T0 + 15 * MINUTE)  # fmt: skip
    meter(cluster, T0 + 2 * HOUR)
    with tenant_scope(bank.pk):
        preview = bill_preview(bank.pk, now=T0 + 2 * HOUR)
    assert preview is not None
    assert preview.recorded.amount == Decimal("11.00")


def test_reserved_idle_time_begins_when_the_pool_becomes_the_tenants(cluster: Cluster) -> None:
    bank, other = make_tenant("bank", zone="bank"), make_tenant("other", zone="other")
    node = make_node(cluster, cards=2)
    change(node, T0 + 45 * MINUTE, zone_id=bank.zone_id)
    change(node, T0 + 2 * HOUR + 30 * MINUTE, zone_id=other.zone_id)
    meter(cluster, T0 + 3 * HOUR)
    assert used(Bucket.IDLE, tenant=bank) == Decimal("3.5")
    assert used(Bucket.IDLE, tenant=other) == 1
    assert fleet() == {"idle": 6}
    meter(cluster, T0 + 3 * HOUR)
    # A second tenant in the zone changes what comes, not what was.
    make_tenant("bank-2", zone="bank")
    observe(cluster, running("a", T0 + HOUR, namespace="bank-ns", end=T0 + 2 * HOUR))
    meter(cluster, T0 + 3 * HOUR)
    assert used(Bucket.IDLE, tenant=bank) == Decimal("2.5")


def test_reserved_idle_time_of_an_hour_in_two_months(cluster: Cluster) -> None:
    """In Kolkata November begins at 18:30 UTC."""
    edge = datetime(2026, 11, 30, 18, 30, tzinfo=UTC)
    bank = make_tenant("bank", zone="bank")
    make_node(cluster, cards=1, zone_id=bank.zone_id, since=edge - 30 * MINUTE)
    issuer = make_issuer(time_zone="Asia/Kolkata")
    make_rate(issuer, "1.00")
    meter(cluster, edge + 30 * MINUTE)
    with tenant_scope(bank.pk):
        previews = [bill_preview(bank.pk, now=at) for at in (edge - HOUR, edge + HOUR)]
    assert [preview.recorded.amount if preview else None for preview in previews] == [Decimal("0.5"), Decimal("0.5")]


# --- MIG -------------------------------------------------------------------------------------------------------------


def test_a_card_that_is_not_cut_is_not_stranded(cluster: Cluster, tenant: Tenant) -> None:
    """Two cards, one cut into 3g + 3g (a seventh is stranded), the other whole and idle."""
    node = make_node(cluster, sharing="mig", cards=2)
    resources = {"nvidia.com/gpu": "1", "nvidia.com/mig-3g.40gb": "2"}
    Node.objects.filter(pk=node.pk).update(capacity=resources, allocatable=resources)
    meter(cluster, T0 + HOUR)
    assert fleet() == {"overhead": Decimal("0.142857"), "idle": Decimal("1.857143")}


def test_what_strategy_single_strands_is_overhead(cluster: Cluster, tenant: Tenant) -> None:
    node = make_node(cluster, sharing="mig", cards=1)
    resources = {"nvidia.com/gpu": "2"}
    Node.objects.filter(pk=node.pk).update(capacity=resources, allocatable=resources, mig_profile="3g.40gb")
    CapacitySpan.objects.filter(node=node).update(mig_profile="3g.40gb")
    observe(cluster, running("a", T0))
    meter(cluster, T0 + HOUR)
    assert fleet() == {"tenants": Decimal("0.428571"), "overhead": Decimal("0.142857"), "idle": Decimal("0.428572")}


def test_slices_of_an_a30(cluster: Cluster, tenant: Tenant) -> None:
    a30 = make_gpu_type("a30", memory_mib=24_576, compute_slices=4)
    make_node(cluster, gpu_type=a30, sharing="mig", cards=1)
    observe(cluster, running("a", T0, gpu=0, mig_1g_6gb=3), running("b", T0, gpu=0, mig_2g_12gb=1))
    meter(cluster, T0 + HOUR)
    assert used(profile="1g.6gb") == Decimal("0.75")
    assert used(profile="2g.12gb") == Decimal("0.5")
    assert fleet() == {"tenants": 1, "overbooked": Decimal("0.25")}


def test_scaled_memory_is_charged_of_the_physical(cluster: Cluster, tenant: Tenant) -> None:
    """HAMi's register hands out 160 GB of a card that has 80: 40 GB are half of it."""
    a100 = make_gpu_type("a100", memory_mib=80_000)
    node = make_node(cluster, gpu_type=a100, sharing="hami", cards=1)
    Device.objects.create(cluster=cluster, node=node, uuid="GPU-1", memory_mib=160_000, register_memory_mib=160_000,
                          register_slots=10, first_seen_at=T0)  # fmt: skip
    record = (("hami.io/bind-phase", "success"), ("hami.io/vgpu-devices-allocated", "GPU-1,NVIDIA,40000,10:;"))
    observe(cluster, replace(running("a", T0, gpumem=40_000), scheduler="hami-scheduler", annotations=record))
    meter(cluster, T0 + HOUR)
    assert used() == Decimal("0.5")


# --- closed periods --------------------------------------------------------------------------------------------------


def close(issuer: Issuer, number: int, now: datetime, *, behind: bool = False) -> int:
    with time_source(lambda: now):
        return period_close(period=month(issuer, number=number), actor=FINANCE, accept_behind=behind).made


def bill_lines(tenant: Tenant, number: int) -> list[tuple[Any, ...]]:
    with system_scope("test"):
        bill = Bill.objects.get(tenant=tenant, period__month=number)
        rows = list(BillLine.objects.filter(bill=bill).order_by("position"))
        assert sum(row.amount for row in rows) == bill.total
        assert bill_is_reproducible(Bill.objects.select_related("period__issuer").get(pk=bill.pk))
    return [(row.correction, row.charge_from, row.quantity, row.amount) for row in rows]


def test_a_claim_set_into_a_closed_month(cluster: Cluster, tenant: Tenant) -> None:
    """10 h of November turn out to be another team's: both see it on December's bill, November stays."""
    other = make_tenant("audio")
    make_node(cluster)
    issuer = make_issuer(grace_hours=1)
    make_rate(issuer, "2.00")
    observe(cluster, running("a", T0, end=T0 + 20 * HOUR))
    meter(cluster, T0 + 31 * DAY)
    assert close(issuer, 11, T0 + 32 * DAY) == 1
    with system_scope("test"):
        claim = NamespaceClaim.objects.get(namespace="v")
    namespace_claim_end(claim=claim, valid_to=T0 + 10 * HOUR, actor=SYSTEM)
    namespace_claim_set(cluster=cluster, namespace="v", tenant_id=other.pk, valid_from=T0 + 10 * HOUR, actor=SYSTEM)
    meter(cluster, T0 + 62 * DAY)
    assert close(issuer, 12, T0 + 63 * DAY) == 2
    assert bill_lines(tenant, 11) == [(False, T0, 20, 40)]
    assert bill_lines(tenant, 12) == [(True, T0, -10, -20)]
    assert bill_lines(other, 12) == [(True, T0, 10, 20)]


def test_a_month_that_turns_up_before_the_first_bill(cluster: Cluster, tenant: Tenant) -> None:
    """Evidence of October comes when November is closed: it is late usage on December's bill, and blocks nothing."""
    make_node(cluster)
    issuer = make_issuer(grace_hours=1)
    make_rate(issuer, "2.00")
    observe(cluster, running("a", T0, end=T0 + HOUR))
    meter(cluster, T0 + 31 * DAY)
    assert close(issuer, 11, T0 + 32 * DAY) == 1
    cluster.watch_targets.get(resource="pods").spans.update(started_at=T0 - 3 * DAY)
    observe(cluster, running("b", T0 - 2 * DAY, end=T0 - 2 * DAY + 3 * HOUR))
    meter(cluster, T0 + 62 * DAY)
    assert close(issuer, 12, T0 + 63 * DAY) == 1
    assert bill_lines(tenant, 12) == [(True, datetime(2026, 10, 1, tzinfo=UTC), 3, 6)]


def test_a_price_of_another_card_changes_no_bill(cluster: Cluster, tenant: Tenant) -> None:
    """A rate entered later, from the middle of the closed month on: the bill made again has the same bytes."""
    make_node(cluster)
    issuer = make_issuer(grace_hours=1)
    make_rate(issuer, "2.00")
    observe(cluster, running("a", T0, end=T0 + timedelta(seconds=1)),
            running("b", T0 + 20 * DAY, end=T0 + 20 * DAY + timedelta(seconds=1)))  # fmt: skip
    meter(cluster, T0 + 31 * DAY)
    assert close(issuer, 11, T0 + 32 * DAY) == 1
    rate_set(card=issuer.rate_card, gpu_type=make_gpu_type("l40s"), sharing="whole", price=Decimal(3), actor=FINANCE,
             valid_from=T0 + 10 * DAY)  # fmt: skip
    # 2 s of a card: 0.000555… h
    assert bill_lines(tenant, 11) == [(False, T0, Decimal("0.000555555556"), 0)]


@pytest.mark.parametrize(
    ("zone", "start", "hours"),
    [
        ("Pacific/Kiritimati", datetime(2026, 10, 31, 10, tzinfo=UTC), 720),
        ("Europe/Berlin", datetime(2026, 10, 31, 23, tzinfo=UTC), 720),
        ("America/New_York", datetime(2026, 11, 1, 4, tzinfo=UTC), 721),  # summer time ends on the 1st
    ],
)
def test_november_elsewhere(cluster: Cluster, tenant: Tenant, zone: str, start: datetime, hours: int) -> None:
    cluster.watch_targets.get(resource="pods").spans.update(started_at=start, proved_until=start)
    make_node(cluster, since=start)
    issuer = make_issuer(time_zone=zone, grace_hours=1, currency="JPY")
    make_rate(issuer, "0.3333333333")
    observe(cluster, running("a", start))
    meter(cluster, T0 + 31 * DAY)
    assert close(issuer, 11, T0 + 32 * DAY) == 1
    [line] = bill_lines(tenant, 11)
    assert line == (False, start, hours, 240)


def test_a_price_of_zero_is_a_price(cluster: Cluster, tenant: Tenant) -> None:
    make_node(cluster)
    issuer = make_issuer(grace_hours=1)
    make_rate(issuer, "0")
    observe(cluster, running("a", T0, end=T0 + HOUR))
    meter(cluster, T0 + 31 * DAY)
    assert close(issuer, 11, T0 + 32 * DAY) == 1
    assert bill_lines(tenant, 11) == [(False, T0, 1, 0)]


def test_rates_end_on_whole_seconds() -> None:
    """Usage is cut there, in whole milliseconds: half a millisecond on both sides would be one too many."""
    rate = make_rate(make_issuer(), "1.00")
    with pytest.raises(Invalid) as refused:
        rate_end(rate=rate, valid_to=T0 + timedelta(microseconds=500), actor=FINANCE)
    assert refused.value.errors[0]["pointer"] == "/valid_to"


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"profile": "1g.10g"}, "/profile"),
        ({"profile": "8g.80gb"}, "/profile"),
        ({"profile": "1g.10gb", "included_memory_mib": 10**19}, "/included_memory_mib"),
        ({"profile": "1g.10gb", "included_cpu_millicores": -1}, "/included_cpu_millicores"),
    ],
)
def test_a_rate_of_nothing_is_refused(given: dict[str, Any], pointer: str) -> None:
    """A profile with a letter missing would be the price of nothing, while what is meant stays without one."""
    with pytest.raises(Invalid) as refused:
        rate_set(card=make_issuer().rate_card, gpu_type=make_gpu_type(), sharing="mig", price=Decimal(1),
                 valid_from=T0, actor=FINANCE, **given)  # fmt: skip
    assert [error["pointer"] for error in refused.value.errors] == [pointer]


def test_a_profile_has_one_price_however_it_is_spelled(cluster: Cluster, tenant: Tenant) -> None:
    """Pods ask for ``nvidia.com/mig-1g.10gb.me``; people write the profile as NVIDIA does."""
    issuer = make_issuer(grace_hours=1)
    rate_set(card=issuer.rate_card, gpu_type=make_gpu_type(), sharing="mig", profile="1g.10gb+me", price=Decimal(3),
             valid_from=T0 - DAY, actor=FINANCE)  # fmt: skip
    make_node(cluster, sharing="mig", cards=1)
    observe(cluster, running("a", T0, end=T0 + HOUR, gpu=0, mig_1g_10gb_me=1))
    meter(cluster, T0 + 31 * DAY)
    assert close(issuer, 11, T0 + 32 * DAY) == 1
    assert bill_lines(tenant, 11) == [(False, T0, 1, 3)]
    for spelled in ("1g.10gb+me", "1g.10gb.me"):
        price = StoredPrices().price_per_hour(make_gpu_type().pk, "mig", spelled, T0)
        assert price is not None
        assert price.amount == 3


def test_only_pods_of_the_month_keep_it_open(cluster: Cluster, tenant: Tenant) -> None:
    """A pod of December whose node is not known yet says nothing about November."""
    make_node(cluster)
    issuer = make_issuer(grace_hours=1)
    make_rate(issuer, "2.00")
    observe(cluster, running("a", T0, end=T0 + HOUR), running("b", T0 + 31 * DAY, node="unknown"))
    meter(cluster, T0 + 32 * DAY)
    assert close(issuer, 11, T0 + 33 * DAY) == 1
    with pytest.raises(Conflict, match="0 lines have no price and 1 pods could not be metered"):
        close(issuer, 12, T0 + 63 * DAY, behind=True)


@pytest.mark.parametrize("asks", [{"gpu": 1}, {"gpu": 0, "mig_small": 1}])
def test_a_pod_that_the_kubelet_refused_keeps_no_month_open(
    cluster: Cluster, tenant: Tenant, asks: dict[str, int]
) -> None:
    """It named the node itself and asked for what that has not. A pod that waits there for long is another matter."""
    make_node(cluster)
    issuer = make_issuer(grace_hours=1)
    make_rate(issuer, "2.00")
    node = "no-cards" if "mig_small" not in asks else "node-0"
    pod = running("refused", T0, node=node, namespace="nobodys", **asks)
    waits = tuple(replace(one, state="waiting", first_started_at=None) for one in pod.containers)
    refused = replace(pod, containers=waits, phase="Failed", terminal_seen_at=T0 + MINUTE, scheduled_at=None)
    observe(cluster, running("a", T0, end=T0 + HOUR), replace(refused, uid="late", terminal_seen_at=T0 + HOUR))
    observe(cluster, refused)
    meter(cluster, T0 + 31 * DAY)
    with pytest.raises(Conflict, match="0 lines have no price and 1 pods could not be metered"):
        close(issuer, 11, T0 + 32 * DAY)
    observe(cluster, replace(refused, uid="late"))
    meter(cluster, T0 + 31 * DAY + HOUR)
    assert close(issuer, 11, T0 + 32 * DAY) == 1
    assert bill_lines(tenant, 11) == [(False, T0, 1, 2)]


def test_the_year_turns(cluster: Cluster, tenant: Tenant) -> None:
    edge = datetime(2027, 1, 1, tzinfo=UTC)
    make_node(cluster, since=edge - 2 * HOUR)
    issuer = make_issuer(grace_hours=1)
    make_rate(issuer, "1.00")
    observe(cluster, running("a", edge - 90 * MINUTE, end=edge + 30 * MINUTE))
    meter(cluster, edge + HOUR)
    with tenant_scope(tenant.pk):
        previews = [bill_preview(tenant.pk, now=at) for at in (edge - HOUR, edge)]
    assert [preview.recorded.amount if preview else None for preview in previews] == [Decimal("1.5"), Decimal("0.5")]


# --- running ---------------------------------------------------------------------------------------------------------


def test_running_charges_are_what_is_metered_later(cluster: Cluster, tenant: Tenant) -> None:
    """Starting, a crash loop, a lost node, a change of hands and of price within one hour."""
    other = make_tenant("audio")
    node = make_node(cluster)
    lost = make_node(cluster, "node-1")
    issuer = make_issuer()
    make_rate(issuer, "1.00")
    rate_set(card=issuer.rate_card, gpu_type=make_gpu_type(), sharing="whole", price=Decimal(3), actor=FINANCE,
             valid_from=T0 + 40 * MINUTE)  # fmt: skip
    meter(cluster, T0 + MINUTE)
    observe(
        cluster,
        running("slow", T0 + 25 * MINUTE, bound=T0),  # 10 min carried, then 20 min at 1 and … at 3
        running("short", T0, end=T0 + 20 * MINUTE),
        running("there", T0, node="node-1"),
    )
    change(lost, T0 + 30 * MINUTE, lost=True, unavailable_cards=8)
    with system_scope("test"):
        claim = NamespaceClaim.objects.get(namespace="v")
    namespace_claim_end(claim=claim, valid_to=T0 + 50 * MINUTE, actor=SYSTEM)
    namespace_claim_set(cluster=cluster, namespace="v", tenant_id=other.pk, valid_from=T0 + 50 * MINUTE, actor=SYSTEM)
    until = T0 + HOUR - timedelta(milliseconds=1)
    meter(cluster, until)
    amounts = []
    for team in (tenant, other):
        with tenant_scope(team.pk):
            found = running_usage(team.pk, issuer)
            amounts.append(sum(line.amount for line in found.lines if line.amount is not None))
    # slow: 30 min at 1 + 10 min at 3; short: 20 min; there: 30 min
    assert amounts[0] == Decimal("1.8333333333333333")
    assert amounts[1].quantize(Decimal("0.001")) == Decimal("0.500")
    assert used() == 0
    meter(cluster, T0 + HOUR)
    for team, expected in ((tenant, "1.83"), (other, "0.50")):
        with tenant_scope(team.pk):
            preview = bill_preview(team.pk, now=T0)
            assert preview is not None
            assert preview.total.amount == Decimal(expected)
            assert not running_usage(team.pk, issuer).lines
    assert used() == Decimal(3) / 2 + Decimal(1) / 6
    assert fleet(node=node)["starting"] == Decimal(1) / 6
    with system_scope("test"):
        assert not imbalances(Interval(T0, T0 + DAY)).exists()
