"""Who had which device when: time of allocations in any window, and the allocations behind a bill line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from uuid import UUID

from django.db.models import Q

from billing.models import Bucket, DeviceAllocation
from portal.kernel.clock import Interval, clip


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """One pod in a window. Seconds of whole cards, exact: from what was requested, before any floor."""

    pod_uid: str
    namespace: str
    pod: str
    card_seconds: Fraction
    starting_card_seconds: Fraction
    unattributed_card_seconds: Fraction


def overlapping(window: Interval) -> Q:
    """Allocations that have some time in the window."""
    return Q(started_at__lt=window.end) & (Q(ended_at__isnull=True) | Q(ended_at__gt=window.start))


def device_time(window: Interval, *, cluster_id: UUID | None = None) -> list[DeviceTime]:
    """Each pod's card-seconds in a window that need not lie on full hours. Within the open scope.

    An allocation that is still open counts to the end of the window.
    """
    rows = DeviceAllocation.objects.filter(overlapping(window))
    if cluster_id is not None:
        rows = rows.filter(cluster_id=cluster_id)
    return _by_pod(rows.order_by("pod_uid"), window)


def _by_pod(rows: Iterable[DeviceAllocation], window: Interval) -> list[DeviceTime]:
    seconds: dict[tuple[str, str, str], dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for row in rows:
        part = clip(Interval(row.started_at, row.ended_at or window.end), window)
        if part is not None:
            seconds[row.pod_uid, row.namespace, row.pod_name][row.bucket] += row.exact_share * part.ms / 1000
    return [
        DeviceTime(*pod, found[Bucket.TENANTS], found[Bucket.STARTING], found[Bucket.UNATTRIBUTED])
        for pod, found in seconds.items()
    ]
