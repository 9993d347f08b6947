"""A close while OpenCost's answer is being stored: it is waited for. First the race, with the lock off."""

from __future__ import annotations

import threading
from collections.abc import Collection
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from django.db import connections

from billing.locks import UNIT_COSTS, drain_usage_writers
from billing.models import Bill, BillingPeriod, EstimatedCost, OpenCostSource
from billing.opencost.client import OpenCostClient
from billing.selectors.bills import bill_is_reproducible
from billing.services import close as closing
from billing.services.close import period_close
from billing.services.metering import meter_cluster
from billing.services.opencost import answer_store, claims_work_in, source_ensure
from billing.services.rates import rate_set
from infra.models import Cluster, NamespaceClaim
from infra.services.changes import lock_changes
from portal.kernel.clock import HOUR, time_source
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
    make_tenant,
    month,
    observe,
    pod_evidence,
    set_watermark,
)
from tests.billing.opencost_fake import FakeOpenCost, Price
from tests.support.waiting import until_a_lock_is_waited_for

pytestmark = pytest.mark.django_db(transaction=True)

LATER = datetime(2026, 12, 10, tzinfo=UTC)


def store(cluster: Cluster, fake: FakeOpenCost) -> None:
    """The first hour's answer, within an open system scope."""
    with time_source(lambda: LATER):
        hour = OpenCostClient(fake).hour(T0)
        answer_store(source_ensure(cluster.pk), hour.allocation, hour.assets, now=LATER)


class SlowIngest:
    """A reader that has drawn its numbers, and commits when it is told to."""

    def __init__(self, cluster: Cluster, fake: FakeOpenCost) -> None:
        self.drawn, self.go = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._work, args=(cluster, fake), daemon=True)
        self.thread.start()
        assert self.drawn.wait(30)

    def _work(self, cluster: Cluster, fake: FakeOpenCost) -> None:
        try:
            with system_scope("slow ingest"):
                store(cluster, fake)
                self.drawn.set()
                assert self.go.wait(60)
        finally:
            connections.close_all()

    def commit(self) -> None:
        self.go.set()
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture
def cluster() -> Cluster:
    """A card was held for an hour; OpenCost said 2.50 of it."""
    cluster, tenant = make_cluster(), make_tenant("vision")
    make_node(cluster)
    claim_namespaces(cluster, tenant, ["v"])
    observe(cluster, pod_evidence("a", namespace="v", node="node-0", gpu=1, start=T0, end=T0 + HOUR))
    set_watermark(cluster, T0 + 2 * HOUR)
    meter_cluster(cluster.pk, budget_seconds=600)
    with system_scope("test"):
        source_ensure(cluster.pk)
        OpenCostSource.objects.update(currency="EUR")
        store(cluster, FakeOpenCost(pods={("v", "a"): 1}))
    return cluster


@pytest.fixture
def period(cluster: Cluster) -> BillingPeriod:
    issuer = make_issuer()
    rate_set(
        card=issuer.rate_card, resource="gpu", gpu_type=make_gpu_type(), sharing="whole", source="opencost",
        valid_from=T0, actor=FINANCE,
    )  # fmt: skip
    return month(issuer)


def close(period: BillingPeriod) -> None:
    with time_source(lambda: LATER):
        period_close(period=period, actor=FINANCE, accept_behind=True)


def closing_beside(period: BillingPeriod) -> threading.Thread:
    def work() -> None:
        try:
            close(period)
        finally:
            connections.close_all()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def the_bill() -> tuple[Decimal, bool]:
    """Its total, and whether making it again gives the same."""
    with system_scope("test"):
        bill = Bill.objects.select_related("period__issuer").get()
        return bill.total, bill_is_reproducible(bill)


def test_without_its_lock_a_bill_lacks_a_price_that_it_counts(
    cluster: Cluster, period: BillingPeriod, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_tenants_alone(ids: Collection[UUID]) -> None:
        drain_usage_writers([one for one in ids if one != UNIT_COSTS])

    monkeypatch.setattr(closing, "drain_usage_writers", of_tenants_alone)
    slow = SlowIngest(cluster, FakeOpenCost(pods={("v", "a"): 1}, price=Price(gpu="9")))
    close(period)
    slow.commit()
    assert the_bill() == (Decimal("2.5"), False), "the race is there: made again, it is another bill"


def test_with_its_lock_the_close_waits_for_the_answer(cluster: Cluster, period: BillingPeriod) -> None:
    slow = SlowIngest(cluster, FakeOpenCost(pods={("v", "a"): 1}, price=Price(gpu="9")))
    closer = closing_beside(period)
    until_a_lock_is_waited_for()
    slow.commit()
    closer.join(60)
    assert the_bill() == (Decimal(9), True)


def test_an_answer_after_the_close_changes_nothing(cluster: Cluster, period: BillingPeriod) -> None:
    close(period)
    with system_scope("test"):
        store(cluster, FakeOpenCost(pods={("v", "a"): 1}, price=Price(gpu="9")))
    assert the_bill() == (Decimal("2.5"), True)


def test_a_part_that_changes_hands_is_waited_for_as_well(cluster: Cluster, period: BillingPeriod) -> None:
    """Also where the claim that it goes by is gone: the locks are those of whoever gets a row."""
    with system_scope("test"):
        store(cluster, FakeOpenCost(pods={("v", "a"): 1}, storage={"v": "0.5"}))
        changes = lock_changes(cluster.pk)
        NamespaceClaim.objects.all().delete()
        changes.draw()
        changes.save()
    drawn, go = threading.Event(), threading.Event()

    def work() -> None:
        try:
            with system_scope("slow reader"):
                assert claims_work_in(source_ensure(cluster.pk)) == 1
                drawn.set()
                assert go.wait(60)
        finally:
            connections.close_all()

    reader = threading.Thread(target=work, daemon=True)
    reader.start()
    assert drawn.wait(30)
    closer = closing_beside(period)
    until_a_lock_is_waited_for()
    go.set()
    reader.join(60)
    closer.join(60)
    with system_scope("test"):
        assert sum(EstimatedCost.objects.values_list("amount", flat=True), Decimal(0)) == 0
        assert Tenant.objects.count() == 1
