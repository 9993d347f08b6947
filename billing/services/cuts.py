"""Instants inside hours at which usage is cut: where a rate changes, and where a month begins in an issuer's zone.

Most rates change, and all months of whole-hour zones begin, on a full hour; then there is nothing to cut.
"""

from __future__ import annotations

from datetime import datetime

from billing.models import Issuer, Rate
from portal.kernel.clock import Interval, hour_start, next_period, period_of


def cuts_within(window: Interval) -> list[datetime]:
    """The instants inside ``window`` that are no full hours, sorted."""
    cuts: set[datetime] = set()
    for column in ("valid_from", "valid_to"):
        cuts |= set(
            Rate.objects.filter(**{f"{column}__gt": window.start, f"{column}__lt": window.end})
            .values_list(column, flat=True)
            .distinct()
        )
    for tz_name in set(Issuer.objects.values_list("time_zone", flat=True)):
        period = period_of(window.start, tz_name)
        while period.end < window.end:
            cuts.add(period.end)
            period = next_period(period)
    return sorted(cut for cut in cuts if cut != hour_start(cut))
