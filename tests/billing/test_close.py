"""Bills by hand-computed figures: the close, what comes late, prices, periods, lines, exports, credit."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from billing.exports import bill_csv
from billing.models import Bill, BillingPeriod, BillLine, Bucket, Issuer, UsageRecord
from billing.prices import StoredPrices
from billing.selectors.bills import bill_is_reproducible, period_states, unpriced_usage
from billing.selectors.costs import bill_preview, cost_by_deployment, cost_by_type, usage_by_day
from billing.selectors.lines import bill_line_allocations
from billing.services.close import period_close
from billing.services.credits import credit_note_create
from billing.services.metering import meter_cluster
from billing.services.rates import rate_end, rate_set
from billing.services.setup import issuer_ensure, rates_ensure
from infra.models import Cluster
from portal.kernel.actors import Actor
from portal.kernel.clock import HOUR, Interval, time_source
from portal.kernel.problems import Conflict, Forbidden, Invalid
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.models import ModelDeployment, Tenant
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

DAY = timedelta(days=1)
AFTER = datetime(2026, 12, 10, tzinfo=UTC)
CARD_HOUR = 3_600_000 * 1_000_000


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


@pytest.fixture
def tenant(cluster: Cluster) -> Tenant:
    row = make_tenant("vision")
    make_node(cluster)
    claim_namespaces(cluster, row, ["v"])
    return row


def held(cluster: Cluster, name: str, start: datetime, end: datetime | None, **requests: int) -> None:
    observe(cluster, pod_evidence(name, namespace="v", node="node-0", start=start, end=end, **(requests or {"gpu": 1})))


def meter(cluster: Cluster, until: datetime) -> None:
    set_watermark(cluster, until)
    meter_cluster(cluster.pk, budget_seconds=600)


def close(period: BillingPeriod, now: datetime = AFTER) -> int:
    with time_source(lambda: now):
        return period_close(period=period, actor=FINANCE).made


def the_bill(tenant: Tenant, period: BillingPeriod) -> tuple[Bill, list[BillLine]]:
    with system_scope("test"):
        bill = Bill.objects.select_related("period__issuer", "tenant").get(tenant=tenant, period=period)
        return bill, list(BillLine.objects.filter(bill=bill).select_related("bill", "gpu_type"))


def test_a_month_by_hand(cluster: Cluster, tenant: Tenant) -> None:
    """2 cards for 100 h 30 min at 2.50 = 502.50; a quarter card for 10 h at 1.20 = 3.00; a third of a cent drops."""
    issuer = make_issuer()
    a100 = make_gpu_type("a100", memory_mib=80_000)
    make_node(cluster, "hami-0", gpu_type=a100, sharing="hami")
    make_rate(issuer, "2.50")
    make_rate(issuer, "1.20", gpu_type=a100, sharing="hami")
    held(cluster, "a", T0 + DAY, T0 + DAY + timedelta(hours=100, minutes=30), gpu=2)
    observe(cluster, pod_evidence("b", namespace="v", node="hami-0", start=T0, end=T0 + 10 * HOUR, gpu=1, gpumem=20_000,
                                  gpucores=10))  # fmt: skip
    held(cluster, "c", T0 + 2 * HOUR, T0 + 2 * HOUR + timedelta(seconds=5), gpu=1)
    meter(cluster, T0 + 31 * DAY)
    period = month(issuer)
    assert close(period) == 1
    bill, lines = the_bill(tenant, period)
    # 201 h + 5 s = 201.001388… h × 2.5 = 502.503472…
    assert [(line.sharing, line.quantity, line.amount_exact, line.amount) for line in lines] == [
        ("hami", Decimal("2.5"), Decimal("3.0000000000000000"), Decimal("3.0000")),
        ("whole", Decimal("201.001388888889"), Decimal("502.5034722222222222"), Decimal("502.5000")),
    ]
    assert (bill.total, bill.total_minor, bill.currency) == (Decimal("505.5000"), 50_550, "EUR")
    assert bill.number == "2026-11-vision"
    assert sum(line.amount_minor for line in lines) == bill.total_minor
    with system_scope("test"):
        assert bill_is_reproducible(bill)


def test_closing_twice_changes_nothing(cluster: Cluster, tenant: Tenant) -> None:
    issuer = make_issuer()
    make_rate(issuer, "2.50")
    held(cluster, "a", T0, T0 + HOUR)
    meter(cluster, T0 + 31 * DAY)
    period = month(issuer)
    assert close(period) == 1
    bill, _ = the_bill(tenant, period)
    assert close(period) == 0
    assert the_bill(tenant, period)[0].digest == bill.digest


def test_too_early_and_out_of_order(cluster: Cluster, tenant: Tenant) -> None:
    issuer = make_issuer(grace_hours=72)
    make_rate(issuer, "2.50")
    held(cluster, "a", T0, T0 + 40 * DAY)
    meter(cluster, T0 + 45 * DAY)
    november, december = month(issuer), month(issuer, number=12)
    with pytest.raises(Conflict, match="can be closed from 2026-12-04T00:00:00Z"):
        close(november, T0 + 32 * DAY)
    with pytest.raises(Conflict, match="2026-11 of house is still open"):
        close(december, T0 + 70 * DAY)
    with pytest.raises(Forbidden):
        period_close(period=november, actor=Actor(kind="user", name="mia"))
    november.refresh_from_db()
    assert november.state == BillingPeriod.State.OPEN


def test_a_cluster_that_is_behind_blocks_unless_it_is_accepted(cluster: Cluster, tenant: Tenant) -> None:
    issuer = make_issuer()
    make_rate(issuer, "1.00")
    held(cluster, "a", T0, T0 + HOUR)
    meter(cluster, T0 + 20 * DAY)
    period = month(issuer)
    with pytest.raises(Conflict, match="not final until 2026-12-01T00:00:00Z on east"):
        close(period)
    with time_source(lambda: AFTER):
        assert period_close(period=period, actor=FINANCE, accept_behind=True).made == 1


def test_unpriced_blocks_with_the_list(cluster: Cluster, tenant: Tenant) -> None:
    issuer = make_issuer()
    held(cluster, "a", T0, T0 + HOUR)
    meter(cluster, T0 + 31 * DAY)
    period = month(issuer)
    with pytest.raises(Conflict, match="h100 whole is not in the rate card") as refused:
        close(period)
    assert refused.value.extra["unpriced"][0]["what"] == "h100 whole"
    period.refresh_from_db()
    assert period.state == BillingPeriod.State.OPEN
    with system_scope("test"):
        assert [str(line.key) for line in unpriced_usage(period)] == ["h100 whole"]
        assert not Bill.objects.exists()
    rate_set(
        card=issuer.rate_card, gpu_type=make_gpu_type(), sharing="whole", price=Decimal(1), valid_from=T0, actor=FINANCE
    )
    assert close(period) == 1


def test_price_change_in_the_month(cluster: Cluster, tenant: Tenant) -> None:
    """10 h at 2.00, then 14 h at 3.00, and the change is in the middle of an hour that was metered already."""
    issuer = make_issuer()
    make_rate(issuer, "2.00")
    held(cluster, "a", T0, T0 + DAY)
    meter(cluster, T0 + 2 * DAY)
    change = T0 + timedelta(hours=10, minutes=15)
    rate_set(
        card=issuer.rate_card,
        gpu_type=make_gpu_type(),
        sharing="whole",
        price=Decimal("3.00"),
        valid_from=change,
        actor=FINANCE,
    )
    meter(cluster, T0 + 31 * DAY)
    period = month(issuer)
    close(period)
    bill, lines = the_bill(tenant, period)
    assert [(line.charge_from, line.quantity, line.amount) for line in lines] == [
        (T0, Decimal("10.25"), Decimal("20.5")),
        (change, Decimal("13.75"), Decimal("41.25")),
    ]
    with pytest.raises(Conflict, match="are closed"):
        rate_set(
            card=issuer.rate_card,
            gpu_type=make_gpu_type(),
            sharing="whole",
            price=Decimal(9),
            valid_from=change + HOUR,
            actor=FINANCE,
        )
    with pytest.raises(Conflict, match="closed"):
        rate_end(rate=lines[1].rate, valid_to=change + HOUR, actor=FINANCE)
    with system_scope("test"):
        assert bill_is_reproducible(bill)


def test_late_usage_and_corrections_on_the_next_bill(cluster: Cluster, tenant: Tenant) -> None:
    """November is closed; then a pod's end (10 h less) and another pod (4 h) of November become known."""
    issuer = make_issuer()
    make_rate(issuer, "1.00")
    held(cluster, "a", T0, None)
    meter(cluster, T0 + 33 * DAY)
    november, december = month(issuer), month(issuer, number=12)
    close(november)
    first, lines = the_bill(tenant, november)
    assert first.total == 720
    held(cluster, "a", T0, T0 + 30 * DAY - 10 * HOUR)
    held(cluster, "b", T0 + DAY, T0 + DAY + 4 * HOUR)
    held(cluster, "c", T0 + 35 * DAY, T0 + 35 * DAY + 3 * HOUR)
    meter(cluster, T0 + 61 * DAY)
    with tenant_scope(tenant.pk):
        preview = bill_preview(tenant.pk, now=T0 + 40 * DAY)
        assert preview is not None
        assert preview.recorded.amount == Decimal("-3.00")
    close(december, T0 + 70 * DAY)
    second, lines = the_bill(tenant, december)
    assert [(line.correction, line.charge_from.month, line.quantity, line.amount) for line in lines] == [
        (True, 11, Decimal(-6), Decimal(-6)),
        (False, 12, Decimal(3), Decimal(3)),
    ]
    assert second.total == -3
    assert second.seq_after == first.seq_upto
    with system_scope("test"):
        assert bill_is_reproducible(first)
        assert bill_is_reproducible(second)
        parts = bill_line_allocations(lines[0])
    assert {(part.allocation.pod_name, part.charged) for part in parts if part.allocation} == {
        ("a", -10 * CARD_HOUR),
        ("b", 4 * CARD_HOUR),
    }
    assert the_bill(tenant, november)[0].digest == first.digest


def test_months_of_a_zone_with_summer_time(cluster: Cluster, tenant: Tenant) -> None:
    """October in Berlin has 745 hours; a card held all the time is billed for each of them, once."""
    issuer = make_issuer(time_zone="Europe/Berlin")
    make_rate(issuer, "1.00", valid_from=datetime(2025, 1, 1, tzinfo=UTC))
    start = datetime(2026, 9, 20, tzinfo=UTC)
    cluster.watch_targets.get(resource="pods").spans.update(started_at=start)
    held(cluster, "a", start, None)
    meter(cluster, T0 + 31 * DAY)
    totals = []
    for number in (9, 10, 11):
        period = month(issuer, number=number)
        close(period, datetime(2026, 12, 20, tzinfo=UTC))
        totals.append(the_bill(tenant, period)[0].total)
    assert totals == [10 * 24 + 22, 745, 720]


def test_period_edge_inside_an_hour(cluster: Cluster, tenant: Tenant) -> None:
    """In Kolkata months begin at half past: the hour is cut there, and both parts are billed."""
    issuer = make_issuer(time_zone="Asia/Kolkata")
    make_rate(issuer, "1.00", valid_from=datetime(2025, 1, 1, tzinfo=UTC))
    held(cluster, "a", T0, None)
    meter(cluster, T0 + 35 * DAY)
    october, november = month(issuer, number=10), month(issuer)
    assert october.ends_at == datetime(2026, 10, 31, 18, 30, tzinfo=UTC)
    close(october)
    close(november)
    assert the_bill(tenant, november)[0].total == Decimal("714.5")  # T0 until 18:30 on the 30th
    with system_scope("test"):
        edge = UsageRecord.objects.filter(hour=november.ends_at - timedelta(minutes=30)).order_by("slot")
        assert [row.milliseconds for row in edge] == [1_800_000, 1_800_000]


def test_mig_instances_and_host_resources(cluster: Cluster, tenant: Tenant) -> None:
    """A MIG rate is per instance; a GPU rate that includes 4 cores per card charges only what is beyond."""
    issuer = make_issuer()
    make_node(cluster, "mig-0", sharing="mig")
    make_rate(issuer, "0.40", sharing="mig", profile="1g.10gb")
    make_rate(issuer, "2.00", included_cpu_millicores=4_000)
    make_rate(issuer, "0.05", resource="cpu")
    observe(cluster, pod_evidence("m", namespace="v", node="mig-0", start=T0, end=T0 + 10 * HOUR, mig_1g_10gb=3))
    held(cluster, "a", T0, T0 + 2 * HOUR, gpu=2, cpu=10)
    held(cluster, "b", T0, T0 + 2 * HOUR, gpu=2, cpu=1)
    meter(cluster, T0 + 31 * DAY)
    period = month(issuer)
    close(period)
    _, lines = the_bill(tenant, period)
    assert [(line.kind, line.unit, line.quantity, line.amount) for line in lines] == [
        ("cpu", "core-hour", Decimal(4), Decimal("0.2")),
        ("gpu", "instance-hour", Decimal(30), Decimal(12)),
        ("gpu", "gpu-hour", Decimal(8), Decimal(16)),
    ]


def test_invoices_are_numbered_without_gaps(cluster: Cluster, tenant: Tenant) -> None:
    issuer = make_issuer(kind=Issuer.Kind.INVOICE, number_prefix="R", currency="JPY")
    make_rate(issuer, "100")
    second = make_tenant("audio")
    claim_namespaces(cluster, second, ["w"])
    observe(cluster, pod_evidence("w", namespace="w", node="node-0", gpu=1, start=T0, end=T0 + timedelta(minutes=20)))
    held(cluster, "a", T0, T0 + HOUR)
    meter(cluster, T0 + 31 * DAY)
    period = month(issuer)
    assert close(period) == 2
    assert the_bill(second, period)[0].number == "R000001"
    bill, _ = the_bill(tenant, period)
    assert bill.number == "R000002"
    assert the_bill(second, period)[0].total == 33
    note = credit_note_create(bill=bill, amount=Decimal(40), reason="a node failed", actor=FINANCE)
    assert note.number == "R000003"
    with pytest.raises(Conflict, match="more than the rest"):
        credit_note_create(bill=bill, amount=Decimal(61), reason="again", actor=FINANCE)
    with pytest.raises(Invalid):
        credit_note_create(bill=bill, amount=Decimal("0.5"), reason="half a yen", actor=FINANCE)


def test_csv_is_safe_and_exact(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    make_node(cluster)
    claim_namespaces(cluster, tenant, ["v"])
    tenant.cost_code = "=HYPERLINK(1)"
    tenant.save()
    issuer = make_issuer()
    make_rate(issuer, "2.50")
    held(cluster, "a", T0, T0 + timedelta(hours=1, seconds=1))
    meter(cluster, T0 + 31 * DAY)
    period = month(issuer)
    close(period)
    bill, _ = the_bill(tenant, period)
    with tenant_scope(tenant.pk):
        export = bill_csv(bill)
    [row] = csv.DictReader(io.StringIO(export.body.decode(), newline=""))
    assert row["cost_code"] == "'=HYPERLINK(1)"
    assert (row["quantity"], row["unit_price"], row["amount"]) == ("1.000277777778", "2.5", "2.5")
    assert (row["period_start"], row["charge_start"]) == ("2026-11-01T00:00:00Z", "2026-11-01T00:00:00Z")
    assert export.body.count(b"\r\n") == 2


def test_lines_open_to_their_allocations(cluster: Cluster, tenant: Tenant) -> None:
    issuer = make_issuer()
    make_rate(issuer, "2.50")
    with system_scope("test"):
        deployment = ModelDeployment.objects.create(tenant=tenant, name="qwen", spec={}, created_by="t", cost_code="X1")
    observe(cluster, pod_evidence("q", namespace="v", node="node-0", gpu=2, start=T0, end=T0 + 5 * HOUR),
            deployment_id=deployment.pk)  # fmt: skip
    held(cluster, "a", T0, T0 + 3 * HOUR)
    meter(cluster, T0 + 31 * DAY)
    with tenant_scope(tenant.pk):
        month_ = Interval(T0, T0 + 30 * DAY)
        assert [(row.label, row.amount) for row in cost_by_deployment(tenant.pk, month_)] == [
            ("qwen", 25),
            ("v", Decimal("7.5")),
        ]
        assert [(row.label, row.card_hours) for row in cost_by_type(tenant.pk, month_)] == [("h100 whole", 13)]
        days = usage_by_day(tenant.pk, Interval(T0, T0 + 3 * DAY))
        assert [(row.key, row.amount) for row in days] == [
            ("2026-11-01", Decimal("32.5")),
            ("2026-11-02", 0),
            ("2026-11-03", 0),
        ]
    period = month(issuer)
    close(period)
    _, lines = the_bill(tenant, period)
    assert [(line.deployment_name, line.namespace, line.cost_code) for line in lines] == [
        ("qwen", "", "X1"),
        ("", "v", ""),
    ]
    for line in lines:
        with tenant_scope(tenant.pk):
            parts = bill_line_allocations(line)
        assert sum(part.charged for part in parts) == line.quantity * CARD_HOUR
        assert all(part.allocation is not None for part in parts)


def test_running_charges_and_preview(cluster: Cluster, tenant: Tenant) -> None:
    issuer = make_issuer()
    make_rate(issuer, "6.00")
    held(cluster, "a", T0, None)
    meter(cluster, T0 + timedelta(hours=3, minutes=10))
    with tenant_scope(tenant.pk):
        preview = bill_preview(tenant.pk, now=T0 + 4 * HOUR)
    assert preview is not None
    assert preview.recorded.amount == 18
    assert preview.running_amount.amount == 1
    assert preview.total.amount == 19
    assert preview.running.known_until == T0 + timedelta(hours=3, minutes=10)
    with system_scope("test"):
        assert not UsageRecord.objects.filter(hour__gte=T0 + 3 * HOUR).exists(), "running charges are never stored"


def test_dedicated_idle_is_a_line_of_its_own(cluster: Cluster) -> None:
    bank = make_tenant("bank", zone="bank")
    make_node(cluster, "bank-0", cards=2, zone_id=bank.zone_id)
    issuer = make_issuer()
    make_rate(issuer, "1.00")
    meter(cluster, T0 + 31 * DAY)
    period = month(issuer)
    close(period)
    _, [line] = the_bill(bank, period)
    assert (line.kind, line.quantity, line.amount) == ("idle", 1440, 1440)
    with tenant_scope(bank.pk):
        [part] = bill_line_allocations(line)
    assert part.allocation is None
    assert part.node_id is not None


def test_period_states(cluster: Cluster, tenant: Tenant) -> None:
    issuer = make_issuer()
    make_rate(issuer, "1.00")
    held(cluster, "a", T0, T0 + HOUR)
    meter(cluster, T0 + 10 * DAY)
    month(issuer)
    with system_scope("test"):
        [state] = period_states(issuer)
    assert state.behind == ("east",)
    assert (state.bills, state.total) == (0, 0)


# --- prices ----------------------------------------------------------------------------------------------------------


def test_rate_set_closes_the_former_and_fits_before_the_next() -> None:
    issuer = issuer_ensure(actor=FINANCE)
    card, h100 = issuer.rate_card, make_gpu_type()
    rates_ensure(card, {("h100", "whole", ""): Decimal("2.5")}, valid_from=T0, actor=FINANCE)
    assert rates_ensure(card, {("h100", "whole", ""): Decimal(9)}, valid_from=T0, actor=FINANCE) == []
    later = rate_set(
        card=card, gpu_type=h100, sharing="whole", price=Decimal(4), valid_from=T0 + 20 * DAY, actor=FINANCE
    )
    between = rate_set(
        card=card,
        gpu_type=h100,
        sharing="whole",
        price=Decimal(3),
        margin=Decimal("0.1"),
        valid_from=T0 + 10 * DAY,
        actor=FINANCE,
    )
    assert (between.valid_to, later.valid_to) == (later.valid_from, None)
    prices = StoredPrices()
    found = [prices.price_per_hour(h100.pk, "whole", "", T0 + day * DAY) for day in (-1, 0, 10, 25)]
    assert [price.amount if price else None for price in found] == [None, Decimal("2.5"), Decimal("3.3"), Decimal(4)]
    replaced = rate_set(
        card=card, gpu_type=h100, sharing="whole", price=Decimal(5), valid_from=T0 + 20 * DAY, actor=FINANCE
    )
    assert replaced.valid_to is None
    price = prices.price_per_hour(h100.pk, "whole", "", T0 + 25 * DAY)
    assert price is not None
    assert (price.amount, price.currency) == (5, "EUR")


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"price": Decimal(-1)}, "/price"),
        ({"price": Decimal("NaN")}, "/price"),
        ({"price": None}, "/price"),
        ({"price": Decimal("0.12345678901")}, "/price"),
        ({"sharing": "mig"}, "/profile"),
        ({"sharing": "lent"}, "/sharing"),
        ({"source": "opencost"}, "/price"),
        ({"margin": Decimal("-0.1")}, "/margin"),
        ({"resource": "cpu"}, "/gpu_type"),
        ({"included_memory_mib": -1}, "/included_memory_mib"),
    ],
)
def test_rates_that_are_refused(wrong: dict[str, object], pointer: str) -> None:
    issuer = make_issuer()
    values = {"gpu_type": make_gpu_type(), "sharing": "whole", "price": Decimal(1)} | wrong
    with pytest.raises(Invalid) as refused:
        rate_set(card=issuer.rate_card, valid_from=T0, actor=FINANCE, **values)
    assert pointer in [error["pointer"] for error in refused.value.errors]


def test_only_finance_sets_rates() -> None:
    issuer = make_issuer()
    with pytest.raises(Forbidden):
        rate_set(card=issuer.rate_card, gpu_type=make_gpu_type(), sharing="whole", price=Decimal(1), valid_from=T0,
                 actor=Actor(kind="user", name="mia"))  # fmt: skip
    with pytest.raises(Invalid):
        issuer_ensure(actor=FINANCE, slug="x", currency="EURO", is_default=False)
    assert Bucket.IDLE in Bucket.values
