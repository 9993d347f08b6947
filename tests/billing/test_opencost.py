"""OpenCost hour by hour: what is asked, kept, priced with and closed with; by hand-computed figures."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.exports import line_hours_csv
from billing.models import (
    Bill,
    BillingPeriod,
    BillLine,
    BillLineHour,
    DeviceAllocation,
    EstimatedCost,
    FaultCredit,
    Issuer,
    OpenCostAnswer,
    OpenCostRow,
    OpenCostSource,
    Rate,
    UnitCost,
)
from billing.opencost.client import OpenCostClient
from billing.prices import StoredPrices
from billing.selectors.bills import bill_is_reproducible, unpriced_usage
from billing.selectors.costs import bill_preview, usage_by_day
from billing.selectors.lines import bill_line_parts, estimated_hours, line_adds_up, line_hours
from billing.selectors.opencost import refused_answers
from billing.services.close import period_close
from billing.services.fault_credits import fault_credit_decide, fault_credits_update
from billing.services.metering import meter_cluster
from billing.services.opencost import claims_work_in, opencost_set, read_cluster, source_ensure
from billing.services.rates import rate_set
from infra.models import Cluster, HealthEvent, NamespaceClaim, Node
from infra.services.changes import lock_changes
from infra.services.following import claim_take_back
from portal.kernel.actors import Actor
from portal.kernel.clock import HOUR, Interval, time_source
from portal.kernel.problems import Conflict, Forbidden, Invalid
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
from tests.billing.opencost_fake import FakeOpenCost, Price, endpoint

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
AFTER = datetime(2026, 12, 1, 3, tzinfo=UTC)
LAST_DAY = datetime(2026, 11, 30, tzinfo=UTC)
"""Reading begins here, so that a month is a day of hours."""


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster(since=LAST_DAY)


@pytest.fixture
def tenant(cluster: Cluster) -> Tenant:
    row = make_tenant("vision")
    make_node(cluster, since=LAST_DAY)
    claim_namespaces(cluster, row, ["v"])
    return row


@pytest.fixture
def issuer() -> Issuer:
    return make_issuer(grace_hours=1)


def hourly(issuer: Issuer, *, resource: str = "gpu", sharing: str = "whole", profile: str = "", margin: str = "0.1",
           valid_from: datetime = T0, **more: object) -> Rate:  # fmt: skip
    is_gpu = resource == "gpu"
    return rate_set(
        card=issuer.rate_card, resource=resource, gpu_type=make_gpu_type() if is_gpu else None,
        sharing=sharing if is_gpu else "", profile=profile, source="opencost", margin=Decimal(margin),
        valid_from=valid_from, actor=FINANCE, **more,
    )  # fmt: skip


def euros(cluster: Cluster, first: datetime = LAST_DAY) -> None:
    """Its prices are in EUR, and reading begins at the start of the last day of November."""
    with system_scope("test"):
        source_ensure(cluster.pk)
        OpenCostSource.objects.filter(cluster=cluster).update(currency="EUR", first_hour=first)


def read(cluster: Cluster, fake: FakeOpenCost, now: datetime = AFTER, runs: int = 40) -> int:
    """Everything that is due at ``now``; how many hours were taken."""
    taken = 0
    with time_source(lambda: now):
        for _ in range(runs):
            done = read_cluster(cluster.pk, opener=fake.open, budget_seconds=600)
            taken += done.hours
            if done.again is None:
                break
    return taken


def held(cluster: Cluster, name: str, start: datetime, end: datetime | None, **requests: int) -> None:
    observe(cluster, pod_evidence(name, namespace="v", node="node-0", start=start, end=end, **(requests or {"gpu": 1})))


def meter(cluster: Cluster, until: datetime = datetime(2026, 12, 2, tzinfo=UTC)) -> None:
    set_watermark(cluster, until)
    while not meter_cluster(cluster.pk, budget_seconds=600).done:
        pass


def close(period: BillingPeriod, now: datetime = AFTER) -> int:
    with time_source(lambda: now):
        return period_close(period=period, actor=FINANCE).made


def the_bill(tenant: Tenant, period: BillingPeriod) -> tuple[Bill, list[BillLine]]:
    with system_scope("test"):
        bill = Bill.objects.select_related("period__issuer", "tenant").get(tenant=tenant, period=period)
        lines = BillLine.objects.filter(bill=bill).select_related("bill", "gpu_type", "rate", "gpu_rate")
        return bill, list(lines)


# --- asking ----------------------------------------------------------------------------------------------------------


def test_only_whole_hours_that_are_over_are_asked(cluster: Cluster, tenant: Tenant) -> None:
    endpoint(cluster)
    euros(cluster)
    fake = FakeOpenCost(pods={("v", "a"): 1})
    assert read(cluster, fake, LAST_DAY + timedelta(hours=3, minutes=14)) == 2  # 2–3 h is not settled yet
    assert fake.asked == [LAST_DAY, LAST_DAY + HOUR]
    assert read(cluster, fake, LAST_DAY + timedelta(hours=3, minutes=16)) == 1
    one = cluster.endpoints.get()
    assert (one.read_until, one.version) == (LAST_DAY + 3 * HOUR, "1.118.0")
    assert [c["status"] for c in one.conditions if c["type"] == "Reading"] == ["True"]
    client = OpenCostClient(fake)
    with time_source(lambda: LAST_DAY + timedelta(minutes=70)):
        for wrong in (LAST_DAY, LAST_DAY - timedelta(minutes=30), LAST_DAY + HOUR):
            with pytest.raises(ValueError, match=r"whole hour|not over"):
                client.hour(wrong)


def test_an_hour_becomes_rows_and_unit_costs(cluster: Cluster, tenant: Tenant) -> None:
    endpoint(cluster)
    euros(cluster)
    fake = FakeOpenCost(pods={("v", "a"): 2, ("w", "b"): 0}, storage={"v": "0.5"}, network={"w": "0.25"})
    read(cluster, fake, LAST_DAY + timedelta(hours=1, minutes=20))
    with system_scope("test"):
        answer = OpenCostAnswer.objects.get()
        assert (answer.accepted, answer.revision, answer.currency, answer.empty) == (True, 0, "EUR", False)
        rows = OpenCostRow.objects.order_by("namespace", "pod").values_list(
            "namespace", "pod", "gpu_hours", "pv_cost", "network_cost"
        )
        assert list(rows) == [
            ("v", "", 2, Decimal("0.5"), 0), ("v", "a", 2, Decimal("0.5"), 0), ("w", "", 0, 0, Decimal("0.25")),
        ]  # fmt: skip
        units = UnitCost.objects.order_by("resource").values_list("resource", "gpu_type__slug", "price", "basis")
        assert list(units) == [
            ("cpu", None, Decimal("0.02"), "assets"), ("gpu", "h100", Decimal("2.5"), "assets"),
            ("memory", None, Decimal("0.003"), "assets"),
        ]  # fmt: skip
        # w is nobody's: its network cost is on no account.
        parts = EstimatedCost.objects.values_list("tenant", "namespace", "resource", "amount")
        assert list(parts) == [(tenant.pk, "v", "storage", Decimal("0.5"))]


def test_the_same_answer_again_changes_nothing_and_another_is_a_revision(cluster: Cluster, tenant: Tenant) -> None:
    endpoint(cluster)
    euros(cluster)
    fake = FakeOpenCost(pods={("v", "a"): 1}, storage={"v": "0.5"})
    read(cluster, fake, LAST_DAY + timedelta(hours=1, minutes=20))
    read(cluster, fake, LAST_DAY + timedelta(hours=7, minutes=20))  # looked at again after six hours
    with system_scope("test"):
        assert OpenCostAnswer.objects.get(hour=LAST_DAY).asked == 2
        assert UnitCost.objects.filter(hour=LAST_DAY, resource="gpu").count() == 1
    fake.prices[LAST_DAY] = Price(gpu="3")
    fake.storage["v"] = "0.75"
    read(cluster, fake, LAST_DAY + timedelta(hours=32))
    with system_scope("test"):
        assert list(OpenCostAnswer.objects.filter(hour=LAST_DAY).values_list("revision", flat=True)) == [1, 0]
        prices = UnitCost.objects.filter(hour=LAST_DAY, resource="gpu").order_by("seq")
        assert [one.price for one in prices] == [Decimal("2.5"), Decimal(3)]
        parts = EstimatedCost.objects.filter(hour=LAST_DAY).order_by("seq")
        assert [one.amount for one in parts] == [Decimal("0.5"), Decimal("0.25")]


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (500, b'{"code":500,"message":"Error: boom"}', "HTTP status 500: Error: boom"),
        (400, b'Invalid window\n{"code":500,"message":"Error: illegal window"}', "HTTP status 400: Invalid window"),
        (200, b"<html>Sign in</html>", "a web page"),
        (200, b'{"code":200,"data":[{"":{"name":""}}]}', "does not know the aggregate"),
    ],
)
def test_a_broken_answer_is_kept_with_its_reason_and_asked_again(
    cluster: Cluster, tenant: Tenant, status: int, body: bytes, reason: str
) -> None:
    endpoint(cluster)
    euros(cluster)
    fake = FakeOpenCost(pods={("v", "a"): 1}, broken={LAST_DAY: (status, body)})
    now = LAST_DAY + timedelta(hours=3, minutes=20)
    assert read(cluster, fake, now) == 2  # the hours after it are not held up
    with system_scope("test"):
        (refused,) = refused_answers(Interval(LAST_DAY, LAST_DAY + DAY))
        assert reason in refused.reason
        assert not UnitCost.objects.filter(hour=LAST_DAY).exists()
    assert read(cluster, fake, now + timedelta(minutes=5)) == 0  # its pause is not over
    asked = len(fake.asked)
    fake.broken.clear()
    assert read(cluster, fake, now + timedelta(minutes=11)) == 1
    assert fake.asked[asked:] == [LAST_DAY]
    with system_scope("test"):
        assert not list(refused_answers(Interval(LAST_DAY, LAST_DAY + DAY)))
        assert OpenCostAnswer.objects.filter(accepted=False).count() == 1  # kept all the same


def test_refused_answers_are_not_asked_for_ever(cluster: Cluster, tenant: Tenant) -> None:
    endpoint(cluster)
    euros(cluster)
    fake = FakeOpenCost(broken={LAST_DAY: (500, b"boom")})
    for number in range(30):
        read(cluster, fake, LAST_DAY + timedelta(minutes=80) + timedelta(hours=12) * number, runs=1)
    assert fake.asked.count(LAST_DAY) == 8


def test_an_outage_is_caught_up_gently_oldest_first(cluster: Cluster, tenant: Tenant) -> None:
    endpoint(cluster)
    euros(cluster, LAST_DAY - DAY)
    fake = FakeOpenCost(pods={("v", "a"): 1}, down=True)
    now = LAST_DAY + timedelta(hours=6, minutes=20)
    pauses = []
    with time_source(lambda: now):
        for _ in range(3):
            done = read_cluster(cluster.pk, opener=fake.open)
            assert "did not answer" in done.message
            pauses.append(done.again)
    assert pauses == [60.0, 120.0, 240.0]
    fake.down = False
    with time_source(lambda: now):
        first = read_cluster(cluster.pk, opener=fake.open)
    assert (first.hours, first.again) == (24, 2.0)  # a day at most in one run
    assert fake.asked == sorted(fake.asked)
    assert read(cluster, fake, now) == 6  # the rest; no second look at what was asked just now
    with system_scope("test"):
        assert OpenCostSource.objects.get(cluster=cluster).failures == 0


def test_a_kill_between_answer_and_commit_loses_nothing(cluster: Cluster, tenant: Tenant) -> None:
    """Rows and ``read_until`` are one transaction: whatever is undone is asked again."""
    endpoint(cluster)
    euros(cluster)
    fake = FakeOpenCost(pods={("v", "a"): 1})
    opened = 0

    class Killed(Exception):
        pass

    def scope() -> object:
        nonlocal opened
        opened += 1
        return Broken() if opened == 2 else system_scope("test")

    class Broken:
        def __enter__(self) -> None:
            self.inner = system_scope("test")
            self.inner.__enter__()

        def __exit__(self, *_: object) -> None:
            self.inner.__exit__(Killed, Killed(), None)
            raise Killed

    with time_source(lambda: LAST_DAY + timedelta(minutes=80)):
        with pytest.raises(Killed):
            read_cluster(cluster.pk, opener=fake.open, scope=scope)
        with system_scope("test"):
            assert not OpenCostAnswer.objects.exists()
        assert cluster.endpoints.get().read_until is None
        assert read_cluster(cluster.pk, opener=fake.open).hours == 1


def test_an_answer_that_lost_what_it_had_is_not_taken(cluster: Cluster, tenant: Tenant) -> None:
    """Asked again after its Prometheus has lost the hour, OpenCost answers with nothing: absence is not zero."""
    endpoint(cluster)
    euros(cluster)
    fake = FakeOpenCost(pods={("v", "a"): 1}, storage={"v": "0.05"})
    read(cluster, fake, LAST_DAY + timedelta(minutes=80))

    class Lost(FakeOpenCost):
        def _rows(self, start: datetime) -> dict[str, Any]:
            return {}

    class WithoutAssets(FakeOpenCost):
        def _assets(self, start: datetime) -> dict[str, Any]:
            return {"x": {"no": "type"}}

    read(cluster, Lost(nodes={}), LAST_DAY + 8 * HOUR)
    read(cluster, WithoutAssets(pods={("v", "a"): 1}, price=Price(gpu="7")), LAST_DAY + 32 * HOUR)
    with system_scope("test"):
        [answer] = OpenCostAnswer.objects.filter(hour=LAST_DAY)
        assert (answer.revision, answer.asked, answer.empty) == (0, 3, False)
        assert [one.amount for one in EstimatedCost.objects.filter(hour=LAST_DAY)] == [Decimal("0.05")]
        assert UnitCost.objects.get(hour=LAST_DAY, resource="gpu").price == Decimal("2.5")


# --- prices ----------------------------------------------------------------------------------------------------------


def test_a_month_at_opencost_prices_by_hand(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    """2 cards for 3 h at 2.50, 2.50 and 4.00 with 10 %: 2 × (2.75 + 2.75 + 4.40) = 19.80."""
    endpoint(cluster)
    euros(cluster)
    rate = hourly(issuer)
    held(cluster, "a", LAST_DAY, LAST_DAY + 3 * HOUR, gpu=2)
    meter(cluster)
    read(cluster, FakeOpenCost(pods={("v", "a"): 2}, prices={LAST_DAY + 2 * HOUR: Price(gpu="4")}))
    period = month(issuer)
    assert close(period) == 1
    bill, (line,) = the_bill(tenant, period)
    assert (line.quantity, line.unit) == (6, "gpu-hour")
    assert line.amount_exact == line.amount == Decimal("19.8")
    assert (line.unit_price, line.rate_id) == (Decimal("3.3"), rate.pk)
    assert bill.total == Decimal("19.80")
    with tenant_scope(tenant.pk):
        hours = list(line_hours(line))
        assert [(one.charge_from, one.quantity, one.unit_price, one.amount_exact) for one in hours] == [
            (LAST_DAY, 2, Decimal("2.75"), Decimal("5.5")),
            (LAST_DAY + HOUR, 2, Decimal("2.75"), Decimal("5.5")),
            (LAST_DAY + 2 * HOUR, 2, Decimal("4.4"), Decimal("8.8")),
        ]
        assert [one.unit_cost.price for one in hours] == [Decimal("2.5"), Decimal("2.5"), Decimal(4)]
        assert line_adds_up(line, bill_line_parts(line))
        rows = list(csv.DictReader(io.StringIO(line_hours_csv(line).body.decode())))
        assert sum(Decimal(row["amount_exact"]) for row in rows) == line.amount_exact
    with system_scope("test"):
        assert bill_is_reproducible(bill)


def test_a_closed_bill_stays_when_opencost_thinks_again(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    """Late usage of a closed hour has the price that the close knew, too."""
    endpoint(cluster)
    euros(cluster)
    hourly(issuer, margin="0")
    held(cluster, "a", LAST_DAY, LAST_DAY + HOUR)
    meter(cluster)
    fake = FakeOpenCost(pods={("v", "a"): 1})
    read(cluster, fake)
    november = month(issuer)
    close(november)
    bill, _ = the_bill(tenant, november)
    fake.price = Price(gpu="9")
    with time_source(lambda: AFTER):
        opencost_set(cluster=cluster, read_from=LAST_DAY, actor=FINANCE)
    read(cluster, fake)
    with system_scope("test"):
        assert UnitCost.objects.filter(hour=LAST_DAY, resource="gpu", price=9).exists()
        assert bill_is_reproducible(bill)
    held(cluster, "late", LAST_DAY, LAST_DAY + HOUR)
    held(cluster, "december", datetime(2026, 12, 1, tzinfo=UTC), datetime(2026, 12, 1, 1, tzinfo=UTC))
    meter(cluster, datetime(2027, 1, 2, tzinfo=UTC))
    december = month(issuer, number=12)
    assert close(december, datetime(2027, 1, 10, tzinfo=UTC)) == 1
    second, lines = the_bill(tenant, december)
    assert [(line.correction, line.amount) for line in lines] == [(True, Decimal("2.5")), (False, Decimal(9))]
    with system_scope("test"):
        assert bill_is_reproducible(second)
        assert bill_is_reproducible(bill)


def test_hours_without_an_answer_block_the_close(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    endpoint(cluster)
    euros(cluster)
    hourly(issuer)
    held(cluster, "a", LAST_DAY + 13 * HOUR, LAST_DAY + 16 * HOUR)
    meter(cluster)
    fake = FakeOpenCost(pods={("v", "a"): 1}, broken={LAST_DAY + 14 * HOUR: (500, b"boom")})
    read(cluster, fake)
    period = month(issuer)
    with pytest.raises(Conflict, match="OpenCost has not answered for east 14–15 h on 2026-11-30") as refused:
        close(period)
    assert refused.value.extra["unpriced"][0]["quantity"] == "1.000000000000"
    with system_scope("test"):
        (line,) = unpriced_usage(period)
        assert (line.quantity, line.amount) == (1, None)
    fake.broken.clear()
    read(cluster, fake, AFTER + HOUR)
    assert close(period) == 1


def test_an_answer_without_the_type_says_so(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    endpoint(cluster)
    euros(cluster)
    hourly(issuer)
    held(cluster, "a", LAST_DAY, LAST_DAY + HOUR)
    meter(cluster)
    read(cluster, FakeOpenCost(pods={("v", "a"): 1}, price=Price(gpu="0")))  # no price is set in OpenCost
    with pytest.raises(Conflict, match=r"OpenCost's answer for east 00–01 h on 2026-11-30 .* has no unit cost of h100"):
        close(month(issuer))


def test_another_currency_is_not_taken_for_ours(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    endpoint(cluster)
    with system_scope("test"):
        source_ensure(cluster.pk)
        OpenCostSource.objects.filter(cluster=cluster).update(first_hour=LAST_DAY)  # in USD, as OpenCost's own prices
    hourly(issuer)
    held(cluster, "a", LAST_DAY, LAST_DAY + HOUR)
    meter(cluster)
    fake = FakeOpenCost(pods={("v", "a"): 1})
    read(cluster, fake)
    with pytest.raises(Conflict, match="are in USD, and bills are in EUR"):
        close(month(issuer))
    with time_source(lambda: AFTER):
        opencost_set(cluster=cluster, currency="EUR", read_from=LAST_DAY, actor=FINANCE)
    read(cluster, fake)
    assert close(month(issuer)) == 1


def test_shares_and_mig_pay_their_part_of_the_card(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    """A quarter of a card at 2.50 + 10 % = 0.6875; a 1g slice (1 of 7) of 3 hours = 3 × 0.142857 × 2.75."""
    endpoint(cluster)
    euros(cluster)
    make_node(cluster, "hami-0", sharing="hami", since=LAST_DAY)
    make_node(cluster, "mig-0", sharing="mig", since=LAST_DAY)
    hourly(issuer, sharing="hami")
    hourly(issuer, sharing="mig", profile="1g.10gb")
    observe(cluster, pod_evidence("h", namespace="v", node="hami-0", start=LAST_DAY, end=LAST_DAY + HOUR, gpu=1,
                                  gpumem=20_480, gpucores=25))  # fmt: skip
    observe(cluster, pod_evidence("m", namespace="v", node="mig-0", start=LAST_DAY, end=LAST_DAY + 3 * HOUR,
                                  mig_1g_10gb=1))  # fmt: skip
    meter(cluster)
    read(cluster, FakeOpenCost(pods={("v", "h"): 1, ("v", "m"): 0}))
    assert close(month(issuer)) == 1
    _, lines = the_bill(tenant, month(issuer))
    assert [(line.sharing, line.unit, line.quantity, line.amount_exact) for line in lines] == [
        ("hami", "gpu-hour", Decimal("0.25"), Decimal("0.6875")),
        ("mig", "gpu-hour", Decimal("0.428571"), Decimal("1.17857025")),
    ]
    with tenant_scope(tenant.pk):
        assert all(line_adds_up(line, bill_line_parts(line)) for line in lines)


def test_a_fixed_card_with_cpu_from_opencost(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    """The card's line is as ever; 6 of 8 cores for 2 h at 0.02 and 0.03, no margin: 6 × 0.05 = 0.30."""
    endpoint(cluster)
    euros(cluster)
    make_rate(issuer, "2.00", included_cpu_millicores=2000)
    hourly(issuer, resource="cpu", margin="0")
    held(cluster, "a", LAST_DAY, LAST_DAY + 2 * HOUR, gpu=1, cpu=8)
    meter(cluster)
    read(cluster, FakeOpenCost(pods={("v", "a"): 1}, prices={LAST_DAY + HOUR: Price(cpu="0.03")}))
    assert close(month(issuer)) == 1
    bill, lines = the_bill(tenant, month(issuer))
    assert [(line.kind, line.quantity, line.amount_exact) for line in lines] == [
        ("cpu", 12, Decimal("0.3")), ("gpu", 2, Decimal(4)),
    ]  # fmt: skip
    with tenant_scope(tenant.pk):
        assert line_hours(lines[0]).count() == 2
        assert not line_hours(lines[1]).exists()
        assert all(line_adds_up(line, bill_line_parts(line)) for line in lines)
    with system_scope("test"):
        assert bill_is_reproducible(bill)


def test_from_fixed_to_opencost_in_the_middle_of_an_hour(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    """Half an hour at 2.00, then one and a half at 2.50: 1.00 + 3.75."""
    endpoint(cluster)
    euros(cluster)
    make_rate(issuer, "2.00")
    hourly(issuer, margin="0", valid_from=LAST_DAY + timedelta(minutes=30))
    held(cluster, "a", LAST_DAY, LAST_DAY + 2 * HOUR)
    meter(cluster)
    read(cluster, FakeOpenCost(pods={("v", "a"): 1}))
    assert close(month(issuer)) == 1
    _, lines = the_bill(tenant, month(issuer))
    assert [(line.quantity, line.amount_exact) for line in lines] == [
        (Decimal("0.5"), Decimal(1)), (Decimal("1.5"), Decimal("3.75")),
    ]  # fmt: skip
    with tenant_scope(tenant.pk):
        assert all(line_adds_up(line, bill_line_parts(line)) for line in lines)


def test_running_charges_preview_and_days(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    """Until 5:30: four answered hours are final, the open ones stand on OpenCost's last price, and say so."""
    endpoint(cluster)
    euros(cluster)
    hourly(issuer, margin="0")
    held(cluster, "a", LAST_DAY, None)
    now = LAST_DAY + timedelta(hours=5, minutes=30)
    meter(cluster, now)
    read(cluster, FakeOpenCost(pods={("v", "a"): 1}), LAST_DAY + timedelta(hours=4, minutes=20))
    with time_source(lambda: now), tenant_scope(tenant.pk):
        preview = bill_preview(tenant.pk, now=now)
        assert preview is not None
        assert preview.recorded.amount == Decimal("10.00")
        assert [(line.quantity, line.amount) for line in preview.drawn.unpriced] == [(1, None)]  # 4–5 h: no answer yet
        (open_line,) = preview.running.lines
        assert (open_line.quantity, open_line.amount) == (Decimal("0.5"), Decimal("1.25"))
        for words in ("05–06 h", "03–04 h", "stands in"):
            assert words in open_line.reason
        days = usage_by_day(tenant.pk, Interval(LAST_DAY, LAST_DAY + DAY))
        assert [(day.amount, day.unpriced) for day in days] == [(Decimal(10), True)]
    found = StoredPrices().price_per_hour(make_gpu_type().pk, "whole", "", now)
    assert found is not None
    assert found.amount == Decimal("2.5")
    hourly(issuer, sharing="mig", profile="3g.40gb", margin="0")
    found = StoredPrices().price_per_hour(make_gpu_type().pk, "mig", "3g.40gb", now)
    assert found is not None
    assert found.amount == Decimal("2.5") * 428_571 / 1_000_000, "as the bill has it: its part of the card"


# --- storage and network ---------------------------------------------------------------------------------------------


def test_storage_and_network_by_hand(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    """24 h × 0.05 storage × 1.2 = 1.44; 24 h × 0.01 network × 1 = 0.24; estimated, and told hour by hour."""
    endpoint(cluster)
    euros(cluster)
    hourly(issuer, resource="storage", margin="0.2", valid_from=LAST_DAY)
    hourly(issuer, resource="network", margin="0", valid_from=LAST_DAY)
    meter(cluster)
    read(cluster, FakeOpenCost(storage={"v": "0.05", "other": "3"}, network={"v": "0.01"}))
    assert close(month(issuer)) == 1
    bill, lines = the_bill(tenant, month(issuer))
    assert [(line.kind, line.namespace, line.quantity, line.unit, line.amount_exact) for line in lines] == [
        ("network", "v", Decimal("0.24"), "opencost-cost", Decimal("0.24")),
        ("storage", "v", Decimal("1.2"), "opencost-cost", Decimal("1.44")),
    ]
    with tenant_scope(tenant.pk):
        assert len(estimated_hours(lines[1])) == 24
        assert all(line_adds_up(line, bill_line_parts(line)) for line in lines)
    with system_scope("test"):
        assert bill_is_reproducible(bill)


def test_without_a_rate_nothing_is_charged_for_storage(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    endpoint(cluster)
    euros(cluster)
    make_rate(issuer, "1")
    held(cluster, "a", LAST_DAY, LAST_DAY + HOUR)
    meter(cluster)
    read(cluster, FakeOpenCost(storage={"v": "0.05"}))
    assert close(month(issuer)) == 1
    assert [line.kind for line in the_bill(tenant, month(issuer))[1]] == ["gpu"]


def test_a_silent_hour_blocks_whoever_pays_for_storage(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    endpoint(cluster)
    euros(cluster)
    hourly(issuer, resource="storage", valid_from=LAST_DAY)
    meter(cluster)
    fake = FakeOpenCost(storage={"v": "0.05"}, broken={LAST_DAY + 5 * HOUR: (500, b"boom")})
    read(cluster, fake)
    with pytest.raises(Conflict, match="OpenCost has not answered for east 05–06 h on 2026-11-30"):
        close(month(issuer))
    fake.broken.clear()
    read(cluster, fake, AFTER + HOUR)
    assert close(month(issuer)) == 1


def test_a_claim_decides_whose_storage_it_is(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    """v changes hands at 0:15: a quarter of the hour is the first team's. Said later, it is set right; Σ stays."""
    endpoint(cluster)
    euros(cluster)
    read(cluster, FakeOpenCost(storage={"v": "0.8"}), LAST_DAY + timedelta(minutes=80))
    other = make_tenant("audio")
    at = LAST_DAY + timedelta(minutes=15)
    with system_scope("test"):
        changes = lock_changes(cluster.pk)
        NamespaceClaim.objects.update(valid_to=at, changed_seq=changes.draw())
        changes.save()
    claim_namespaces(cluster, other, ["v"], at)
    with system_scope("test"):
        assert claims_work_in(source_ensure(cluster.pk)) == 2
        assert claims_work_in(source_ensure(cluster.pk)) == 0
        sums: dict[object, Decimal] = {}
        for one in EstimatedCost.objects.all():
            sums[one.tenant_id] = sums.get(one.tenant_id, Decimal(0)) + one.amount
        assert sums == {tenant.pk: Decimal("0.2"), other.pk: Decimal("0.6")}


def test_a_claim_that_is_taken_back_takes_its_storage_along(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    """No row of the claim stays, so nothing but the parts themselves tells that they are nobody's."""
    endpoint(cluster)
    euros(cluster)
    read(cluster, FakeOpenCost(storage={"v": "0.8"}), LAST_DAY + timedelta(minutes=80))
    with system_scope("test"):
        changes = lock_changes(cluster.pk)
        claim_take_back(NamespaceClaim.objects.get(), changes)
        changes.draw()
        changes.save()
        assert claims_work_in(source_ensure(cluster.pk)) == 1
        assert claims_work_in(source_ensure(cluster.pk)) == 0
        assert [one.amount for one in EstimatedCost.objects.order_by("seq")] == [Decimal("0.8"), Decimal("-0.8")]


def test_storage_is_not_priced_after_the_close(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    """Nothing of it was on the bill, so a change afterwards would be given back without having been charged."""
    endpoint(cluster)
    euros(cluster)
    make_rate(issuer, "1")
    held(cluster, "a", LAST_DAY, LAST_DAY + HOUR)
    meter(cluster)
    read(cluster, FakeOpenCost(storage={"v": "0.05"}))
    close(month(issuer))
    with pytest.raises(Conflict, match="storage was not charged in all of them"):
        hourly(issuer, resource="storage", valid_from=LAST_DAY)
    hourly(issuer, resource="storage", valid_from=datetime(2026, 12, 1, tzinfo=UTC))


def test_a_credit_waits_until_all_of_its_hours_have_a_price(
    cluster: Cluster, tenant: Tenant, issuer: Issuer, settings: Any
) -> None:
    """20 h at 2.50 are above the limit of 10, though only two of the hours were answered when the pod had ended."""
    settings.AIF_FAULT_CREDIT_LIMIT = 10
    endpoint(cluster)
    euros(cluster)
    hourly(issuer, margin="0")
    held(cluster, "a", LAST_DAY, LAST_DAY + 20 * HOUR)
    meter(cluster, LAST_DAY + 21 * HOUR)
    with system_scope("test"):
        DeviceAllocation.objects.update(device_uuid="GPU-1")
    HealthEvent.objects.create(
        cluster=cluster, node=Node.objects.get(), device="GPU-1", kind="xid", code="79", started_at=LAST_DAY,
        fault_class="node", source="metrics",
    )  # fmt: skip
    fake = FakeOpenCost(pods={("v", "a"): 1})
    read(cluster, fake, LAST_DAY + timedelta(minutes=140))
    for now, amount in ((LAST_DAY + 21 * HOUR, None), (AFTER, Decimal(50))):
        read(cluster, fake, now) if amount else None
        fault_credits_update(now=now)
        with system_scope("test"):
            credit = FaultCredit.objects.get()
        assert (credit.state, credit.amount) == ("proposed", amount)
    fault_credit_decide(credit=credit, approve=True, reason="seen in the log", actor=FINANCE)
    fake.prices = {LAST_DAY: Price(gpu="3.5")}
    with time_source(lambda: AFTER):
        opencost_set(cluster=cluster, read_from=LAST_DAY, actor=FINANCE)
    read(cluster, fake)
    meter(cluster)
    close(month(issuer))
    bill, lines = the_bill(tenant, month(issuer))
    assert [(line.kind, line.amount) for line in lines if line.kind == "credit"] == [("credit", Decimal(-51))]
    assert bill.total == 0
    with system_scope("test"):
        assert FaultCredit.objects.get().amount == 51, "what the line takes off"
        assert bill_is_reproducible(bill)


def test_nobody_sees_another_teams_estimates(cluster: Cluster, tenant: Tenant) -> None:
    endpoint(cluster)
    euros(cluster)
    read(cluster, FakeOpenCost(storage={"v": "0.8"}), LAST_DAY + timedelta(minutes=80))
    other = make_tenant("audio")
    with tenant_scope(other.pk):
        assert not EstimatedCost.objects.exists()
        assert not BillLineHour.objects.exists()
    with tenant_scope(tenant.pk):
        assert EstimatedCost.objects.count() == 1


# --- rates and settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", ["storage", "network"])
def test_storage_has_no_price_of_our_own(issuer: Issuer, resource: str) -> None:
    with pytest.raises(Invalid) as refused:
        rate_set(card=issuer.rate_card, resource=resource, price=Decimal(1), valid_from=T0, actor=FINANCE)
    assert "/source" in [error["pointer"] for error in refused.value.errors]


def test_settings_are_checked_and_only_finance_sets_them(cluster: Cluster) -> None:
    with pytest.raises(Conflict, match="has no OpenCost"):
        opencost_set(cluster=cluster, currency="EUR", actor=FINANCE)
    endpoint(cluster)
    with pytest.raises(Invalid):
        opencost_set(cluster=cluster, currency="EURO", actor=FINANCE)
    with pytest.raises(Invalid):
        opencost_set(cluster=cluster, read_from=datetime(2099, 1, 1, tzinfo=UTC), actor=FINANCE)
    with pytest.raises(Forbidden):
        opencost_set(cluster=cluster, currency="EUR", actor=Actor(kind="user", name="mia"))
    assert opencost_set(cluster=cluster, currency="EUR", actor=FINANCE).currency == "EUR"


def test_raw_bodies_are_kept_and_forgotten(cluster: Cluster, tenant: Tenant) -> None:
    import zlib

    from billing.reconcilers.opencost import opencost_forget

    endpoint(cluster)
    euros(cluster)
    read(cluster, FakeOpenCost(pods={("v", "a"): 1}), LAST_DAY + timedelta(minutes=80))
    with system_scope("test"):
        raw = OpenCostAnswer.objects.get().raw
    assert raw is not None
    assert set(json.loads(zlib.decompress(raw))) == {"/allocation/compute", "/assets"}
    with time_source(lambda: LAST_DAY + timedelta(days=40)):
        opencost_forget()
    with system_scope("test"):
        assert OpenCostAnswer.objects.get().raw is None
