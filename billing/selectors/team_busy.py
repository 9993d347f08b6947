"""How busy a team kept what it held, beside the hours that it is charged for. Unknown is None, never 0."""

from __future__ import annotations

from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q, Sum

from billing.models import Bucket, DeviceAllocation
from infra.models import TelemetryHour
from infra.selectors.telemetry import Use
from portal.kernel.clock import HOUR, Interval


def busy_of_tenant(tenant_id: UUID, window: Interval) -> Use:
    """Of the time for which samples tell of the tenant's pods, how much was busy. Within a scope of the tenant."""
    held = DeviceAllocation.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=OuterRef("hour")),
        tenant_id=tenant_id,
        bucket=Bucket.TENANTS,
        cluster=OuterRef("cluster"),
        namespace=OuterRef("namespace"),
        pod_name=OuterRef("pod"),
        started_at__lt=OuterRef("hour") + HOUR,
    )
    clusters = DeviceAllocation.objects.filter(tenant_id=tenant_id, bucket=Bucket.TENANTS).order_by()
    rows = TelemetryHour.objects.filter(
        Exists(held),
        cluster__in=clusters.values("cluster").distinct(),
        namespace__in=clusters.values("namespace").distinct(),
        hour__gte=window.start,
        hour__lt=window.end,
    )
    found = rows.aggregate(busy=Sum("busy_ms"), observed=Sum("observed_ms"), energy=Sum(F("energy_mj")))
    return Use(found["busy"], found["observed"], found["energy"])
