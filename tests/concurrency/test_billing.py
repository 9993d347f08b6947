"""Closes, meters and writers at the same time: each row is on exactly one bill. First the races, with locks off."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connections

from billing.locks import hold_usage_locks
from billing.models import Bill, BillingPeriod, BillLine, Bucket, MeterProgress, UsageRecord
from billing.services import close as closing
from billing.services import metering
from billing.services.close import Closed, period_close
from billing.services.metering import meter_cluster
from billing.services.usage import Written, partitions_ensure
from infra.models import Cluster
from portal.kernel.clock import HOUR, Interval, time_source
from portal.kernel.scoping import system_scope
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
from tests.support.db import Clone
from tests.support.threads import at_once
from tests.support.waiting import until_a_lock_is_waited_for

pytestmark = pytest.mark.django_db(transaction=True)

CARD_HOUR = 3_600_000 * 1_000_000


@pytest.fixture
def period() -> BillingPeriod:
    issuer = make_issuer()
    make_rate(issuer, "1.00")
    return month(issuer)


def write_usage(tenant: Tenant, cluster: Cluster, hour: datetime) -> None:
    """One card for one hour, as the meter writes it; within an open system scope."""
    hold_usage_locks([tenant.pk])
    UsageRecord.objects.bulk_create(
        [
            UsageRecord(
                hour=hour, slot=hour, tenant=tenant, cluster=cluster, namespace="v", gpu_type=make_gpu_type(),
                sharing="whole", bucket=Bucket.TENANTS, share=1_000_000, milliseconds=3_600_000, charged=CARD_HOUR,
                physical=CARD_HOUR,
            )
        ]
    )  # fmt: skip


class SlowWriter:
    """A writer that has drawn its number, and commits when it is told to."""

    def __init__(self, tenant: Tenant, cluster: Cluster, hour: datetime) -> None:
        self.drawn, self.go = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._work, args=(tenant, cluster, hour), daemon=True)
        self.thread.start()
        assert self.drawn.wait(30)

    def _work(self, tenant: Tenant, cluster: Cluster, hour: datetime) -> None:
        try:
            with system_scope("slow writer"):
                write_usage(tenant, cluster, hour)
                self.drawn.set()
                assert self.go.wait(60)
        finally:
            connections.close_all()

    def commit(self) -> None:
        self.go.set()
        self.thread.join(60)
        assert not self.thread.is_alive()


def close(period: BillingPeriod, now: datetime = datetime(2026, 12, 10, tzinfo=UTC)) -> Closed:
    with time_source(lambda: now):
        return period_close(period=period, actor=FINANCE, accept_behind=True)


def billed() -> Decimal:
    with system_scope("test"):
        return sum(BillLine.objects.values_list("quantity", flat=True), Decimal(0))


def setup_race() -> tuple[Tenant, Cluster, SlowWriter]:
    """One tenant; a row with a lower number that is not committed, and one with a higher number that is."""
    cluster, tenant = make_cluster(), make_tenant("vision")
    with system_scope("test"):
        partitions_ensure(Interval(T0, T0 + timedelta(days=60)))
    slow = SlowWriter(tenant, cluster, T0)
    with system_scope("test"):
        write_usage(tenant, cluster, T0 + HOUR)
    return tenant, cluster, slow


def test_without_the_lock_a_row_is_on_no_bill(period: BillingPeriod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "drain_usage_writers", lambda tenants: None)
    _, _, slow = setup_race()
    close(period)
    slow.commit()
    close(month(period.issuer, number=12), datetime(2027, 1, 20, tzinfo=UTC))
    with system_scope("test"):
        assert UsageRecord.objects.count() == 2
    assert billed() == 1, "the race is there: two hours were used, one was billed"


def test_with_the_lock_the_close_waits_for_it(period: BillingPeriod) -> None:
    _, _, slow = setup_race()
    done: list[Closed] = []
    closer = threading.Thread(target=_closing(period, done), daemon=True)
    closer.start()
    until_a_lock_is_waited_for()
    assert not done
    slow.commit()
    closer.join(60)
    assert done[0].made == 1
    assert billed() == 2


def test_a_writer_after_the_close_began_is_on_the_next_bill(period: BillingPeriod) -> None:
    """What draws its number while the close sums is late usage, and not lost."""
    tenant, cluster, slow = setup_race()
    slow.commit()
    real = closing.charges_of

    def with_a_late_row(*args: object, **kwargs: object) -> object:
        late = SlowWriter(tenant, cluster, T0 + 2 * HOUR)
        late.commit()
        return real(*args, **kwargs)  # type: ignore[arg-type]

    closing.charges_of = with_a_late_row  # type: ignore[assignment]
    try:
        close(period)
    finally:
        closing.charges_of = real
    assert billed() == 2
    close(month(period.issuer, number=12), datetime(2027, 1, 20, tzinfo=UTC))
    assert billed() == 3
    with system_scope("test"):
        assert list(BillLine.objects.filter(correction=True).values_list("charge_from", flat=True)) == [T0]


def test_parallel_closes_make_one_bill(period: BillingPeriod) -> None:
    _, _, slow = setup_race()
    slow.commit()
    results = at_once([lambda: close(period)] * 4)
    assert sorted(result.made for result in results if isinstance(result, Closed)) == [0, 0, 0, 1], results
    with system_scope("test"):
        assert Bill.objects.count() == 1
    assert billed() == 2


def _closing(period: BillingPeriod, done: list[Closed]) -> Callable[[], None]:
    def work() -> None:
        try:
            done.append(close(period))
        finally:
            connections.close_all()

    return work


# --- two meters ------------------------------------------------------------------------------------------------------


def fleet() -> Cluster:
    cluster, tenant = make_cluster(), make_tenant("vision")
    make_node(cluster)
    claim_namespaces(cluster, tenant, ["v"])
    observe(cluster, pod_evidence("a", namespace="v", node="node-0", gpu=1, start=T0))
    set_watermark(cluster, T0 + 2 * HOUR)
    with system_scope("test"):
        partitions_ensure(Interval(T0, T0 + HOUR))
    return cluster


def charged() -> int:
    with system_scope("test"):
        return sum(UsageRecord.objects.values_list("charged", flat=True))


def meet_after(monkeypatch: pytest.MonkeyPatch, name: str, parties: int) -> None:
    """Both meters wait for each other after this step of theirs, as long as that is possible."""
    barrier, real = threading.Barrier(parties), getattr(metering, name)

    def meeting(*args: object, **kwargs: object) -> object:
        result = real(*args, **kwargs)
        with suppress(threading.BrokenBarrierError):  # the other one is held back by the lock
            barrier.wait(3)
        return result

    monkeypatch.setattr(metering, name, meeting)


def test_without_its_lock_two_meters_double(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = fleet()
    meter_cluster(cluster.pk, until=T0)
    monkeypatch.setattr(metering, "_lock", lambda cluster: MeterProgress.objects.get(cluster=cluster))
    # Its upsert would hold the second one back, too.
    monkeypatch.setattr(metering, "capacity_write", lambda *args: Written({}))
    # Both have looked at what is recorded, and neither has committed, when they meet.
    meet_after(monkeypatch, "usage_write", 2)
    at_once([lambda: meter_cluster(cluster.pk)] * 2)
    assert charged() == 4 * CARD_HOUR, "the race is there: two hours were used, four were written"


def test_two_meters_write_each_hour_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = fleet()
    meet_after(monkeypatch, "usage_write", 2)
    results = at_once([lambda: meter_cluster(cluster.pk)] * 2)
    assert not [result for result in results if isinstance(result, BaseException)]
    assert charged() == 2 * CARD_HOUR


@pytest.mark.django_db(transaction=True)
def test_two_makers_of_one_months_partition(clone: Clone) -> None:
    """The second one waits for the first, and then finds the table: also if it had asked for it before."""
    make = "SELECT billing_usage_partition('2031-05-01T00:00Z')"
    with clone.connect() as first, clone.connect() as second, clone.connect() as watcher:
        second.execute("SELECT to_regclass('billing_usagerecord_2031_05')")
        first.execute("BEGIN")
        first.execute(make)
        made: list[bool] = []
        waiting = threading.Thread(target=lambda: made.append(second.execute(make).rowcount == 1))
        waiting.start()
        locked = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = %s"
        while watcher.execute(locked, [second.info.backend_pid]).fetchone() == (0,):
            assert waiting.is_alive(), "it did not wait"
            time.sleep(0.01)
        first.execute("COMMIT")
        waiting.join()
        assert made == [True]
        assert second.execute("SELECT to_regclass('billing_usagerecord_2031_05') IS NOT NULL").fetchone() == (True,)
