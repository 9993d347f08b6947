"""How busy a team kept its cards stands beside what it held: a percentage where metrics tell, else "not known"."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from billing.models import DeviceAllocation
from billing.selectors.team_busy import busy_of_tenant
from infra.models import TelemetryHour
from portal.kernel.clock import Interval, hour_start
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.models import Tenant
from tests.billing.estate import NOW
from tests.web.billing.conftest import Browsers
from tests.web.billing.test_figures import page

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def observed(slug: str, *, busy_ms: int | None, observed_ms: int | None) -> DeviceAllocation:
    """An hour of a card that a pod of the tenant held; what others' rows say must not be in its figure."""
    with system_scope("test"):
        held = DeviceAllocation.objects.filter(tenant__slug=slug, bucket="tenants").order_by("-started_at").first()
        assert held is not None
        hour = hour_start(held.started_at)
        base: dict[str, Any] = {
            "hour": hour,
            "uuid": "GPU-1",
            "scope": "card",
            "namespace": held.namespace,
            "container": "main",
        }
        TelemetryHour.objects.create(
            cluster_id=held.cluster_id, pod=held.pod_name, busy_ms=busy_ms, observed_ms=observed_ms, **base
        )
        others: tuple[dict[str, Any], ...] = ({"pod": "another"}, {"pod": held.pod_name, "hour": hour - 400 * DAY})
        for number, other in enumerate(others):
            values: dict[str, Any] = {**base, "uuid": f"GPU-x{number}", **other}
            TelemetryHour.objects.create(cluster_id=held.cluster_id, busy_ms=1, observed_ms=3_600_000, **values)
        return held


def tenant(slug: str) -> Tenant:
    with system_scope("test"):
        return Tenant.objects.get(slug=slug)


def test_busy_of_what_was_held_alone(browser: Browsers) -> None:
    slug = "vision"
    held = observed(slug, busy_ms=900_000, observed_ms=3_600_000)
    row = tenant(slug)
    with tenant_scope(row.pk):
        use = busy_of_tenant(row.pk, Interval(held.started_at - DAY, NOW + DAY))
        assert (use.busy_ms, use.observed_ms, use.percent) == (900_000, 3_600_000, 25)
        before = busy_of_tenant(row.pk, Interval(held.started_at - 9 * DAY, held.started_at - 8 * DAY))
        assert (before.busy_ms, before.percent) == (None, None), "not known, not zero"


def test_observed_without_a_figure_is_not_known(browser: Browsers) -> None:
    slug = "vision"
    held = observed(slug, busy_ms=None, observed_ms=None)
    row = tenant(slug)
    with tenant_scope(row.pk):
        assert busy_of_tenant(row.pk, Interval(held.started_at - DAY, NOW + DAY)).percent is None


def test_the_usage_page_says_so(browser: Browsers) -> None:
    text = page(browser("owner"), "/t/vision/usage/")
    assert "Busy not known no metrics tell of it" in text
    observed("vision", busy_ms=1_800_000, observed_ms=3_600_000)
    assert "Busy 50 % of 1 card-hour that metrics tell of" in page(browser("owner"), "/t/vision/usage/")
