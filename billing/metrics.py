"""Billing as gauges: hours that wait to be final, cards without a price, pods that can't be metered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from django.conf import settings
from django.db.models import Count, Q
from prometheus_client.core import Metric

from billing.models import BillingAccount, Bucket, DeviceAllocation, Issuer, MeterProgress, Rate
from infra.models import Cluster
from infra.selectors.operations import database_clock
from portal.kernel import metrics
from portal.kernel.clock import HOUR, hour_start
from portal.kernel.metrics import gauge


def collect() -> Iterator[Metric]:
    """Some rows a cluster, and one for each type of card that is held without a price."""
    now = database_clock()
    progress = {row.cluster_id: row for row in MeterProgress.objects.all()}
    clusters = list(Cluster.objects.filter(abandoned_at__isnull=True).order_by("slug"))
    yield gauge(
        "aif_hours_not_final",
        "Hours that have ended and are not final; no row: the cluster has no final hour yet.",
        ("cluster",),
        [((one.slug,), _behind(progress.get(one.pk), now)) for one in clusters],
    )
    yield gauge(
        "aif_unmetered_pods",
        "Pods that hold cards of which not enough is known; they block the close.",
        ("cluster",),
        [((one.slug,), len(progress[one.pk].unmetered)) for one in clusters if one.pk in progress],
    )
    labels = ("gpu_type", "sharing", "profile", *(("tenant",) if settings.AIF_METRICS_TENANTS else ()))
    yield gauge(
        "aif_unpriced_devices",
        "Devices that tenants hold now and that have no rate in force; their time blocks the close.",
        labels,
        sorted(_unpriced(now).items()),
    )


def _behind(progress: MeterProgress | None, now: datetime) -> int | None:
    if progress is None or progress.final_until is None:
        return None
    return max(0, (hour_start(now) - progress.final_until) // HOUR)


def _unpriced(now: datetime) -> Counter[tuple[str, ...]]:
    """Open allocations on tenants' account, by what a rate would have to price."""
    by_account = dict(BillingAccount.objects.values_list("tenant_id", "issuer_id"))
    default = Issuer.objects.filter(is_default=True).values_list("pk", flat=True).first()
    in_force = Rate.objects.filter(
        Q(valid_to__isnull=True) | Q(valid_to__gt=now), resource=Rate.Resource.GPU, valid_from__lte=now
    )
    priced = set(in_force.values_list("card__issuer_id", "gpu_type__slug", "sharing", "profile"))
    held = (
        DeviceAllocation.objects.filter(ended_at__isnull=True, bucket=Bucket.TENANTS)
        .values_list("tenant_id", "gpu_type__slug", "sharing", "profile", "tenant__slug")
        .annotate(devices=Count("id"))
        .order_by()
    )
    found: Counter[tuple[str, ...]] = Counter()
    for tenant_id, gpu_type, sharing, profile, slug, devices in held:
        if (by_account.get(tenant_id, default), gpu_type, sharing, profile) in priced:
            continue
        key = (gpu_type or "not known", sharing, profile)
        found[(*key, slug) if settings.AIF_METRICS_TENANTS else key] += devices
    return found


def register() -> None:
    """Have them told at each scrape."""
    metrics.register("billing", collect)
