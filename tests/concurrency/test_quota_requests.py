"""Two decisions on one request at once: one of them holds. First the race, with the lock off."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.clock import utcnow
from portal.kernel.models import AuditEvent
from portal.kernel.problems import Conflict
from portal.kernel.scoping import system_scope
from tenants.models import GPUQuota, QuotaRequest, Tenant
from tenants.services import quota_requests
from tenants.services.quota_requests import (
    quota_request_approve,
    quota_request_create,
    quota_request_deny,
    quota_request_withdraw,
)
from tests.support.fleet import make_type
from tests.support.tenants import CARD, TESTER, make_tenant
from tests.support.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def admin(name: str) -> Actor:
    return Actor(kind="user", name=name, user_id=uuid4(), platform_role=PLATFORM_ADMIN)


def submitted(tenant: Tenant, limit: int = 8, **more: Any) -> QuotaRequest:
    return quota_request_create(
        tenant=tenant, gpu_type=make_type(), limit=limit * CARD, reason="A larger model.", submit=True, actor=TESTER,
        **more,
    )  # fmt: skip


def decisions(row: QuotaRequest) -> list[str]:
    with system_scope("test"):
        return list(
            AuditEvent.objects.filter(object_id=row.pk)
            .exclude(verb="quota_request_create")
            .values_list("verb", flat=True)
        )


def both(tenant: Tenant, row: QuotaRequest, other: Any) -> list[Any]:
    return at_once([lambda: quota_request_approve(tenant=tenant, request_id=row.pk, actor=admin("first")), other])


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have read the request before either of them writes (where no lock keeps them apart)."""
    barrier = threading.Barrier(2)
    found = quota_requests._found

    def together(rows: Any) -> QuotaRequest:
        row = found(rows)
        barrier.wait(20)
        return row

    monkeypatch.setattr(quota_requests, "_found", together)


def test_without_the_lock_both_decide(tenant: Tenant, meeting: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_requests, "LOCK_REQUEST", False)
    row = submitted(tenant)
    results = both(tenant, row, lambda: quota_request_withdraw(tenant=tenant, request_id=row.pk, actor=TESTER))
    assert not [result for result in results if isinstance(result, BaseException)], results
    assert len(decisions(row)) == 2
    with system_scope("test"):
        assert GPUQuota.objects.get().limit == 8 * CARD  # and it may well be called withdrawn


@pytest.mark.parametrize("rival", ["approve", "withdraw", "deny"])
def test_one_decision_holds(tenant: Tenant, rival: str) -> None:
    row = submitted(tenant)
    others: dict[str, Any] = {
        "approve": lambda: quota_request_approve(tenant=tenant, request_id=row.pk, actor=admin("second")),
        "deny": lambda: quota_request_deny(tenant=tenant, request_id=row.pk, comment="No.", actor=admin("second")),
        "withdraw": lambda: quota_request_withdraw(tenant=tenant, request_id=row.pk, actor=TESTER),
    }
    results = both(tenant, row, others[rival])
    lost = [result for result in results if isinstance(result, BaseException)]
    assert len(lost) == 1
    assert isinstance(lost[0], Conflict), lost[0]
    assert len(decisions(row)) == 1
    with system_scope("test"):
        state = QuotaRequest.objects.get(pk=row.pk).state
        limit = GPUQuota.objects.filter(limit__gt=0).values_list("limit", flat=True).first()
    assert limit == (8 * CARD if state == "approved" else None)


def test_two_time_boxes_are_not_granted_at_once(tenant: Tenant) -> None:
    until = utcnow() + timedelta(hours=1)
    rows = [submitted(tenant, limit, until=until) for limit in (6, 8)]
    results = at_once(
        [
            lambda row=row: quota_request_approve(tenant=tenant, request_id=row.pk, actor=admin(f"a{row.pk}"))
            for row in rows
        ]
    )
    lost = [result for result in results if isinstance(result, BaseException)]
    assert [type(one) for one in lost] == [Conflict]
    with system_scope("test"):
        assert QuotaRequest.objects.filter(state="approved").count() == 1
