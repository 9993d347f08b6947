"""What a tenant sees of billing: its own rows, by whatever way it asks; and nobody rewrites a bill."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from billing.models import Bill, BillLine, CreditNote, DeviceAllocation, UsageRecord
from billing.services.close import period_close
from billing.services.credits import credit_note_create
from billing.services.metering import meter_cluster
from portal.kernel.clock import HOUR, time_source
from portal.kernel.scoping import ScopeError, system_scope, tenant_scope
from tenants.models import Tenant
from tests.billing.factories import (
    FINANCE,
    T0,
    claim_namespaces,
    make_cluster,
    make_issuer,
    make_node,
    make_rate,
    make_tenant,
    month,
    observe,
    pod_evidence,
    set_watermark,
)

pytestmark = pytest.mark.django_db(transaction=True)

TABLES = ["billing_deviceallocation", "billing_usagerecord", "billing_bill", "billing_billline", "billing_creditnote"]
MODELS: list[Any] = [DeviceAllocation, UsageRecord, Bill, BillLine, CreditNote]
Raw = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def tenants() -> tuple[Tenant, Tenant]:
    """Two tenants of which the first has usage, a bill and a credit note; and usage that is nobody's."""
    cluster, first, second = make_cluster(), make_tenant("first"), make_tenant("second")
    make_node(cluster)
    claim_namespaces(cluster, first, ["f"])
    observe(
        cluster,
        pod_evidence("a", namespace="f", node="node-0", gpu=1, start=T0, end=T0 + HOUR),
        pod_evidence("b", namespace="nobodys", node="node-0", gpu=1, start=T0, end=T0 + HOUR),
    )
    issuer = make_issuer()
    make_rate(issuer, "1.00")
    set_watermark(cluster, T0 + timedelta(days=31))
    meter_cluster(cluster.pk)
    with time_source(lambda: T0 + timedelta(days=40)):
        period_close(period=month(issuer), actor=FINANCE)
    with system_scope("test"):
        bill = Bill.objects.get()
    credit_note_create(bill=bill, amount=bill.total, reason="test", actor=FINANCE)
    return first, second


def count(raw: Raw, table: str, tenant: Tenant | None) -> int:
    with raw.transaction():
        if tenant is not None:
            raw.execute("SELECT set_config('aif.tenants', %s, true)", [f"{{{tenant.pk}}}"])
        row = raw.execute(f"SELECT count(*) FROM {table}").fetchone()  # type: ignore[arg-type]  # noqa: S608
        assert row is not None
        return int(str(row[0]))


def test_raw_sql_as_the_app_role(tenants: tuple[Tenant, Tenant], raw: Raw) -> None:
    """Its own rows, no other's, nothing without a scope, and no partition by its own name."""
    first, second = tenants
    for table in TABLES:
        assert count(raw, table, first) == 1, table
        assert count(raw, table, second) == 0, table
        with pytest.raises(psycopg.Error):
            count(raw, table, None)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        count(raw, "billing_usagerecord_2026_11", first)


def test_nobody_rewrites(tenants: tuple[Tenant, Tenant], raw: Raw) -> None:
    """Usage, bills, lines and credit notes are append-only, also for the system role."""
    for role in ("aif_app", "aif_system"):
        for table in TABLES[1:]:
            for statement in ("UPDATE {} SET tenant_id = tenant_id", "DELETE FROM {}", "TRUNCATE {}"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege), raw.transaction():
                    raw.execute(f"SET LOCAL ROLE {role}")  # type: ignore[arg-type]
                    raw.execute(statement.format(table))  # type: ignore[arg-type]


def test_managers_need_a_scope(tenants: tuple[Tenant, Tenant]) -> None:
    for model in MODELS:
        with pytest.raises(ScopeError):
            model.objects.exists()
        for tenant, there in zip(tenants, (True, False), strict=True):
            with tenant_scope(tenant.pk):
                assert model.objects.exists() is there, model
    with system_scope("test"):
        assert DeviceAllocation.objects.filter(tenant=None).count() == 1
        assert UsageRecord.objects.filter(tenant=None).count() == 1
