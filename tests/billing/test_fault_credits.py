"""Credits for faults, by hand: from the fault to the pod's end, on the next bill, with XID and time on the line."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.models import (
    Bill,
    BillingAccount,
    BillLine,
    CapacityHour,
    DeviceAllocation,
    FaultCredit,
    IdleHour,
    Issuer,
    RateCard,
)
from billing.selectors.bills import bill_is_reproducible, bill_lines
from billing.selectors.costs import bill_preview
from billing.selectors.lines import bill_line_parts, line_adds_up
from billing.services.close import period_close
from billing.services.fault_credits import fault_credit_decide, fault_credits_update
from billing.services.metering import meter_cluster
from infra.models import Cluster, HealthEvent, NamespaceClaim, Node
from infra.services.capacity import capacity_set, state_of
from infra.services.changes import lock_changes
from portal.kernel.actors import PLATFORM_VIEWER, Actor
from portal.kernel.clock import HOUR, time_source
from portal.kernel.problems import Conflict, Forbidden
from portal.kernel.scoping import system_scope, tenant_scope
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

pytestmark = pytest.mark.django_db
END = datetime.fromisoformat("2026-12-01T00:00:00+00:00")
NOW = END + timedelta(hours=2)


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


@pytest.fixture
def tenant(cluster: Cluster) -> Tenant:
    tenant = make_tenant("vision")
    claim_namespaces(cluster, tenant, ["v"])
    return tenant


@pytest.fixture
def issuer() -> Issuer:
    issuer = make_issuer(grace_hours=1)
    make_rate(issuer, "2.50")
    return issuer


def fault(
    node: Node, at: datetime, code: str = "79", fault_class: str = "node", device: str = "GPU-1", **more: Any
) -> HealthEvent:
    return HealthEvent.objects.create(
        cluster=node.cluster, node=node, device=device, kind=more.pop("kind", "xid"), code=code, started_at=at,
        fault_class=fault_class, source="metrics", **more,
    )  # fmt: skip


def held(cluster: Cluster, name: str = "train", *, start: datetime = T0, end: datetime | None = None, gpu: int = 1,
         cards: tuple[str, ...] = ("GPU-1",), until: datetime = NOW) -> None:  # fmt: skip
    """A pod whose cards are known, metered."""
    observe(cluster, pod_evidence(name, namespace="v", node="node-0", gpu=gpu, start=start, end=end))
    meter(cluster, until)
    with system_scope("test"):
        for ordinal, uuid in enumerate(cards):
            DeviceAllocation.objects.filter(pod_name=name, ordinal=ordinal).update(device_uuid=uuid)


def meter(cluster: Cluster, until: datetime = NOW) -> None:
    set_watermark(cluster, until)
    while not meter_cluster(cluster.pk, budget_seconds=600).done:
        pass


def update(now: datetime = NOW) -> int:
    with time_source(lambda: now):
        return fault_credits_update(now=now)


def credited() -> list[FaultCredit]:
    with system_scope("test"):
        return list(FaultCredit.objects.order_by("charge_from"))


def close(issuer: Issuer) -> None:
    with time_source(lambda: NOW):
        period_close(period=month(issuer), actor=FINANCE)


def test_from_the_fault_to_the_pods_end(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    node = make_node(cluster)
    # Two cards for 30 h; one of them falls off the bus after 10 h: 20 h × 2.50 are given back.
    held(cluster, end=T0 + 30 * HOUR, gpu=2, cards=("GPU-1", "GPU-2"))
    fault(node, T0 + 10 * HOUR)
    assert update() == 1
    [credit] = credited()
    assert (credit.amount, credit.settled, credit.state) == (Decimal(50), True, "approved")
    assert (credit.charge_from, credit.charge_to) == (T0 + 10 * HOUR, T0 + 30 * HOUR)
    assert update() == 0, "the same evidence is nothing new"
    close(issuer)
    with tenant_scope(tenant.pk):
        bill = Bill.objects.get()
        # 60 card-hours × 2.50 − 50.00
        assert bill.total == Decimal(100)
        gpu, line = list(bill_lines(bill))[:2] if bill_lines(bill)[0].kind == "gpu" else list(bill_lines(bill))[1::-1]
        assert (line.kind, line.amount, line.quantity) == ("credit", Decimal(-50), Decimal(-20))
        assert line.note == "XID 79 on GPU-1 of node node-0 at 2026-11-01 10:00:00 UTC"
        assert gpu.amount == 150
        parts = bill_line_parts(line)
        assert line_adds_up(line, parts)
        assert parts.rows[0].allocation is not None
        assert parts.rows[0].allocation.pod_name == "train"
    assert credited()[0].period == month(issuer)
    close(issuer)
    with system_scope("test"):
        assert BillLine.objects.filter(kind="credit").count() == 1, "closing again changes nothing"


@pytest.mark.parametrize(("code", "fault_class"), [("13", "application"), ("31", "application"), ("43", "application"),
                                                   ("45", "application"), ("63", "watch"), ("74", "link"),
                                                   ("48", "memory"), ("999", "unknown")])  # fmt: skip
def test_not_for_other_classes(cluster: Cluster, tenant: Tenant, issuer: Issuer, code: str, fault_class: str) -> None:
    node = make_node(cluster)
    held(cluster, end=T0 + 30 * HOUR)
    fault(node, T0 + 10 * HOUR, code, fault_class)
    update()
    assert credited() == []


def test_not_for_another_card_nor_another_time(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    node = make_node(cluster)
    held(cluster, end=T0 + 3 * HOUR)
    held(cluster, "later", start=T0 + 12 * HOUR, end=T0 + 20 * HOUR)
    fault(node, T0 + 1 * HOUR, device="GPU-7")
    fault(node, T0 + 5 * HOUR)
    update()
    assert credited() == [], "it was free when it failed, and given to the later pod after that"


def test_it_grows_while_the_pod_runs(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    node = make_node(cluster)
    held(cluster, until=T0 + 12 * HOUR)
    fault(node, T0 + 10 * HOUR)
    update(T0 + 12 * HOUR)
    [credit] = credited()
    assert (credit.amount, credit.settled, credit.state) == (Decimal(5), False, "proposed")
    with pytest.raises(Conflict, match="still runs"):
        fault_credit_decide(credit=credit, approve=True, reason="x", actor=FINANCE)
    meter(cluster, T0 + 15 * HOUR)
    update(T0 + 15 * HOUR)
    assert [one.amount for one in credited()] == [Decimal("12.5")]
    with tenant_scope(tenant.pk), time_source(lambda: T0 + 15 * HOUR):
        preview = bill_preview(tenant.pk)
        assert preview is not None
        assert preview.drawn.total == Decimal("37.50"), "not approved yet: on no bill"


def test_two_months_are_two_credits(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    node = make_node(cluster)
    held(cluster, start=END - 10 * HOUR)
    fault(node, END - 4 * HOUR)
    update()
    # November's 4 h are over; of December two final hours, still running.
    assert [(one.amount, one.state) for one in credited()] == [(Decimal(10), "approved"), (Decimal(5), "proposed")]
    close(issuer)
    with tenant_scope(tenant.pk):
        assert Bill.objects.get().total == Decimal(15)


def test_above_the_limit_finance_decides(cluster: Cluster, tenant: Tenant, issuer: Issuer, settings: Any) -> None:
    settings.AIF_FAULT_CREDIT_LIMIT = 49
    node = make_node(cluster)
    held(cluster, end=T0 + 30 * HOUR)
    fault(node, T0 + 10 * HOUR)
    update()
    [credit] = credited()
    assert (credit.amount, credit.state) == (Decimal(50), "proposed")
    viewer = Actor(kind="user", name="viewer", platform_role=PLATFORM_VIEWER)
    with pytest.raises(Forbidden):
        fault_credit_decide(credit=credit, approve=True, reason="x", actor=viewer)
    close(issuer)
    with tenant_scope(tenant.pk):
        assert Bill.objects.get().total == Decimal(75), "what is not approved is not on the bill"
    fault_credit_decide(credit=credit, approve=True, reason="seen in the log", actor=FINANCE)
    with pytest.raises(Conflict):
        fault_credit_decide(credit=credit, approve=False, reason="no", actor=FINANCE)
    meter(cluster, END + 2 * HOUR)
    with tenant_scope(tenant.pk), time_source(lambda: NOW):
        preview = bill_preview(tenant.pk)
        assert preview is not None
        assert (preview.drawn.total, preview.late) == (Decimal(-50), 1), "late, on the next bill"


def test_the_first_fault_counts_once(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    node = make_node(cluster)
    held(cluster, end=T0 + 30 * HOUR)
    fault(node, T0 + 10 * HOUR, "95", "reset")
    fault(node, T0 + 12 * HOUR)
    update()
    assert [(one.fault, one.amount) for one in credited()] == [("XID 95", Decimal(50))]


def test_a_crash_loop_that_the_node_caused(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    node = make_node(cluster)
    at = T0 + 10 * HOUR
    for name, minutes in (("soon", 6), ("late", 40)):
        pod = pod_evidence(name, namespace="v", node="node-0", gpu=1, start=T0)
        again = replace(pod.containers[0], restarts=3, last_finished_at=at + timedelta(minutes=minutes))
        observe(cluster, replace(pod, containers=(again,)))
    meter(cluster, T0 + 20 * HOUR)
    fault(node, at)  # which card each pod had is not known
    update(T0 + 20 * HOUR)
    assert [(one.pod_name, one.because, one.amount) for one in credited()] == [("soon", "restart", Decimal(25))]


def test_a_nodes_own_fault_concerns_all_its_pods(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    node = make_node(cluster)
    held(cluster, end=T0 + 4 * HOUR, cards=())
    fault(node, T0 + 2 * HOUR, "KernelDeadlock", device="", kind="condition")
    fault(node, T0 + 1 * HOUR, "NodeLost", device="", kind="heartbeat")
    update()
    assert [(one.because, one.amount) for one in credited()] == [("node", Decimal(5))], "a lost node stops the clock"


def test_a_free_faulty_card_is_unavailable_and_a_held_one_its_holders(
    cluster: Cluster, tenant: Tenant, issuer: Issuer
) -> None:
    node = make_node(cluster, cards=4)
    with system_scope("test"):
        changes = lock_changes(cluster.pk)
        span = node.capacity_spans.get()
        state = replace(state_of(span), unavailable_cards=2, devices=("GPU-1", "GPU-3"), reason="XID 79")
        capacity_set(node, state, at=T0 + HOUR / 2, changes=changes)
        changes.save()
    held(cluster, until=T0)
    meter(cluster, T0 + HOUR)
    row = CapacityHour.objects.get()
    hours = {name: getattr(row, name) / 3_600_000_000_000 for name in ("tenants", "unavailable", "idle", "in_service")}
    # GPU-1 is the tenant's all the time; GPU-3 is free, and unavailable from half past; two are idle.
    assert hours == {"tenants": 1, "unavailable": 0.5, "idle": 2.5, "in_service": 4}
    assert row.difference == 0
    assert IdleHour.objects.get().idle == row.idle


# --- evidence that comes later ---------------------------------------------------------------------------------------


def bind(name: str = "train", uuid: str = "GPU-1") -> None:
    with system_scope("test"):
        DeviceAllocation.objects.filter(pod_name=name).update(device_uuid=uuid)


def test_a_pod_that_ended_earlier_is_credited_until_then(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    """Approved for 20 h; then it turns out that the pod ended 2 h after the fault: 12 h × 2.50 − 2 h × 2.50 = 25."""
    node = make_node(cluster)
    held(cluster, end=T0 + 30 * HOUR)
    fault(node, T0 + 10 * HOUR)
    update()
    assert [(one.amount, one.state) for one in credited()] == [(Decimal(50), "approved")]
    held(cluster, end=T0 + 12 * HOUR)
    update()
    assert [(one.amount, one.state, one.charge_to) for one in credited()] == [(Decimal(5), "approved", T0 + 12 * HOUR)]
    close(issuer)
    with tenant_scope(tenant.pk):
        assert Bill.objects.get().total == Decimal(25)


def test_what_was_approved_is_decided_again_where_it_became_something_else(
    cluster: Cluster, tenant: Tenant, issuer: Issuer, settings: Any
) -> None:
    settings.AIF_FAULT_CREDIT_LIMIT = 10
    node = make_node(cluster)
    held(cluster, end=T0 + 30 * HOUR)
    fault(node, T0 + 10 * HOUR)
    update()
    fault_credit_decide(credit=credited()[0], approve=True, reason="seen in the log", actor=FINANCE)
    assert update() == 0
    held(cluster, end=T0 + 20 * HOUR)
    close(issuer)  # before anybody has looked at the credits again
    with tenant_scope(tenant.pk):
        assert Bill.objects.get().total == Decimal(50), "nothing is given back that is not charged"
    update()
    assert [(one.amount, one.state, one.decided_by) for one in credited()] == [(Decimal(25), "proposed", "")]


def test_time_that_became_another_teams_is_credited_once(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    node = make_node(cluster)
    held(cluster, end=T0 + 30 * HOUR)
    fault(node, T0 + 10 * HOUR)
    update()
    other = make_tenant("audio")
    with system_scope("test"):
        changes = lock_changes(cluster.pk)
        NamespaceClaim.objects.update(tenant_id=other.pk, changed_seq=changes.draw())
        changes.save()
    meter(cluster)
    bind()
    update()
    assert [(one.tenant_id, one.amount) for one in credited()] == [(other.pk, Decimal(50))]
    close(issuer)
    with system_scope("test"):
        assert [(one.tenant_id, one.total) for one in Bill.objects.all()] == [(other.pk, Decimal(25))]


def test_a_bill_with_a_credit_is_made_again_whatever_evidence_comes(
    cluster: Cluster, tenant: Tenant, issuer: Issuer
) -> None:
    node = make_node(cluster)
    held(cluster, end=T0 + 30 * HOUR)
    fault(node, T0 + 10 * HOUR)
    update()
    close(issuer)
    with system_scope("test"):
        DeviceAllocation.objects.update(cost_code="cc-1", share=500_000)
        assert bill_is_reproducible(Bill.objects.select_related("period__issuer").get())
    assert update() == 0, "it is on a bill"


def test_rebuilt_time_is_on_no_bill_and_not_credited(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    node = make_node(cluster)
    held(cluster, end=T0 + 30 * HOUR)
    with system_scope("test"):
        DeviceAllocation.objects.update(source="retroactive")
    fault(node, T0 + 10 * HOUR)
    update()
    assert credited() == []


def test_a_team_that_another_issuer_bills_keeps_its_credit(cluster: Cluster, tenant: Tenant, issuer: Issuer) -> None:
    node = make_node(cluster)
    held(cluster, end=T0 + 30 * HOUR)
    fault(node, T0 + 10 * HOUR)
    update()
    other = Issuer.objects.create(slug="labs", name="labs", currency="EUR", time_zone="UTC", grace_hours=1)
    RateCard.objects.create(issuer=other, name="labs")
    make_rate(other, "1.00")
    with system_scope("test"):
        BillingAccount.objects.create(tenant=tenant, issuer=other)
    close(issuer)
    assert credited()[0].period is None, "it is not taken by bills that don't have the team"
    update()
    assert [(one.issuer_id, one.amount) for one in credited()] == [(other.pk, Decimal(20))]
    close(other)
    with tenant_scope(tenant.pk):
        assert Bill.objects.get().total == Decimal(10)
